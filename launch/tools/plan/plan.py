"""`rlsys plan`: whether a run fits on given machines, how long a step takes, and which keys would be better."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.checks.gpu_memory import ModelShape
from launch.checks.gpu_plan import most_zero
from launch.checks.machine import expected_device
from launch.checks.memory_table import MemoryRow
from launch.checks.model_size import parameters, policy_shape
from launch.checks.service_needs import ServiceNeed
from launch.config.compose import compose
from launch.driver.stages.base import needs_engines, recipes_with_rollouts
from launch.driver.stages.train import gpus_of_services, services_of
from launch.tools.plan.calibrate import Calibration, calibrate
from launch.tools.plan.memory import Memory, device_of, plan_memory, with_less_memory
from launch.tools.plan.nodes import Nodes, assumed_nodes
from launch.tools.plan.schedule import (
    Source,
    Timed,
    best_splits,
    can_alternate,
    fixed_of,
    planned_recipe,
    same_kind,
    time_step,
)
from launch.tools.plan.split import Split, keys_for, other_splits, split_of, with_split
from launch.tools.plan.trace import read_trace
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput
from rlsys.system.device import dtype_of

MOST_OFFERS = 3  # remedies in a list for people
ALIKE = 0.02  # a tied head, or the padding of a vocabulary, is counted or is not


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    config: str
    overrides: Sequence[str] = ()
    nodes: Nodes | None = None
    shape: str | None = None  # a known model whose sizes stand for those of the recipe's
    run: Path | None = None  # a run directory that speeds and lengths are taken from
    network: float | None = None  # Gbit/s between nodes
    answer_tokens: int | None = None
    prefill_tokens: int = 0  # of them: prompt and results of tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Keys with which the run fits."""

    keys: Sequence[str]
    rank: MemoryRow | None = None
    timed: Timed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    request: Request
    config: RunConfig
    nodes: Nodes
    parameters: int
    dtype: str
    memory: Memory
    services: Sequence[ServiceNeed] = ()  # judges and retrievers of the run's own
    offers: Sequence[Offer] = ()
    timed: Timed | None = None  # None: see `untimed`, or nothing is played
    untimed: str = ""  # why the time of a step is not known
    splits: Sequence[Timed] = ()  # of GPUs, the fastest first
    calibration: Calibration | None = None

    @property
    def problem(self) -> str | None:
        """Why it cannot run on these machines."""
        problems = (f"{need.name}: {need.problem}" for need in self.services if need.problem is not None)
        return self.memory.problem or next(problems, None)

    @property
    def fits(self) -> bool:
        return self.problem is None

    def command(self, keys: Sequence[str] = ()) -> str:
        """The run with other keys: they take the place of those that the command line has."""
        turned = {key.partition("=")[0] for key in keys}
        overrides = [key for key in self.request.overrides if key.partition("=")[0] not in turned]
        return shlex.join(["rlsys", "train", self.request.config, *overrides, *keys])


def make_plan(request: Request) -> Plan:
    """Raises BadInput for a configuration, machine or model that is not known."""
    if request.nodes is not None:
        check_device(request, request.nodes)
    config = compose(request.config, overrides_for(request))
    check_window(config, request.answer_tokens)
    served = gpus_of_services(config)
    nodes = request.nodes or assume_machines(config, served)
    if request.nodes is None and nodes.card is not None:
        config = _compose_again(request, overrides_for(request, nodes))
    count = parameters(config.recipe)
    if count is None:
        raise BadInput(
            "neither known, nor downloaded before, nor can its hub be asked",
            key="model.path",
            found=config.recipe.model.path,
            expected="another name, or a model of its size, such as --shape 7b",
        )
    memory, shape = plan_memory(config, nodes, served), shape_for(config)
    sheets = Source(
        shape=shape, nodes=nodes, network=request.network, answer_tokens=request.answer_tokens,
        prefill_tokens=request.prefill_tokens,
    )  # fmt: skip
    calibration = None if request.run is None else _calibrate(request.run, config, sheets, count)
    source = replace(sheets, calibration=calibration)
    timed, untimed, splits = _time(config, source, served) if memory.problem is None else (None, "", ())
    # Offers turn keys that change the speeds of a run: their times are by the data sheets.
    offers = () if memory.problem is None else tuple(find_offers(request, config, sheets, served))
    return Plan(
        request=request,
        config=config,
        nodes=nodes,
        parameters=count,
        dtype=dtype_of(config.recipe.model.dtype, device_of(nodes)),
        memory=memory,
        services=services_of(config, device_of(nodes)),
        offers=offers,
        timed=timed,
        untimed=untimed,
        splits=splits,
        calibration=calibration,
    )


def _compose_again(request: Request, overrides: Sequence[str]) -> RunConfig:
    """Without the warnings, which are said once."""
    logging.disable(logging.WARNING)
    try:
        return compose(request.config, overrides)
    finally:
        logging.disable(logging.NOTSET)


def check_device(request: Request, nodes: Nodes) -> None:
    """Raises BadInput where the configuration asks for a device that these machines do not have."""
    device = _compose_again(request, overrides_for(replace(request, nodes=None))).recipe.cluster.device
    actual = device_of(nodes).torch_device
    if device not in ("auto", actual):
        raise BadInput(key="cluster.device", found=device, expected=f"auto or {actual} with --nodes {nodes.describe()}")


def check_window(config: RunConfig, answer_tokens: int | None) -> None:
    """Raises BadInput for an answer, its prompt included, that the planned stage's window does not hold."""
    windows = [recipe.engine.max_model_len for recipe in recipes_with_rollouts(config)]
    if windows and (answer_tokens or 0) > windows[-1]:
        raise BadInput(key="--answer-tokens", found=answer_tokens, expected=f"up to engine.max_model_len={windows[-1]}")


def _calibrate(run: Path, config: RunConfig, sheets: Source, count: int) -> Calibration:
    """Raises BadInput for a run of another model or on other devices, or one that says too little."""
    trace, nodes = read_trace(run), sheets.nodes
    trained = trace.setting.parameters
    if trained is not None and abs(trained - count) > ALIKE * count:
        raise BadInput(
            f"it trained a model of {trained:,} parameters", key="--from", found=str(run), expected=f"one of {count:,}"
        )
    if trace.setting.gpus != (nodes.card is not None):
        devices = "GPUs" if trace.setting.gpus else "CPUs"
        raise BadInput(f"it ran on {devices}", key="--from", found=str(run), expected=f"a run on {nodes.describe()}")
    if nodes.card is None:
        cores = float(nodes.cores or 1)
        return calibrate(trace, cores=cores, learner_cores=cores)
    return calibrate(trace, cores=None, fixed=fixed_of(config, sheets))


def _time(config: RunConfig, source: Source, served: int | None) -> tuple[Timed | None, str, Sequence[Timed]]:
    """(the run's, why there is none, the fastest divisions of the GPUs). served: None asks for no divisions."""
    recipe = planned_recipe(config, source.nodes)
    if recipe is None:
        return None, "it has no rl and no stepwise stage", ()
    try:
        timed = time_step(recipe, source)
    except BadInput as error:
        return None, str(error), ()
    if source.nodes.card is None or served is None:
        return timed, "", ()
    measured = source.calibration is not None
    candidates = same_kind(config, source.nodes, source.heads, served, measured=measured)
    splits = best_splits(config, source, candidates, served, timed)
    return timed, "", splits


def overrides_for(request: Request, nodes: Nodes | None = None, keys: Sequence[str] = ()) -> list[str]:
    """The machine and the model's sizes go to the configuration as keys, behind those of the command line."""
    nodes = nodes or request.nodes
    overrides: list[str] = []
    if nodes is not None:
        overrides.append(f"cluster.device={device_of(nodes).torch_device}")
        if nodes.card is not None:
            overrides.append(f"cluster.gpu_memory_gb={nodes.card.memory_gb:g}")
    if request.shape is not None:
        overrides.append(f"model.path={request.shape}")
    return [*request.overrides, *overrides, *keys]


def time_recipe(config: RunConfig, answer_tokens: int | None = None, prefill_tokens: int = 0) -> Timed | None:
    """Of a step on the machines that the recipe takes, by their data sheets; None where nothing is known of them.

    answer_tokens: of an answer with its prompt; None takes the longest that the limits allow. prefill_tokens: of them.
    """
    nodes = assume_machines(config, gpus_of_services(config))
    recipe = planned_recipe(config, nodes)
    if nodes.card is None or recipe is None:
        return None
    shape = shape_for(config)
    source = Source(shape=shape, nodes=nodes, answer_tokens=answer_tokens, prefill_tokens=prefill_tokens)
    return _time(config, source, None)[0]


def assume_machines(config: RunConfig, served: int) -> Nodes:
    """Where it was not given on which machines the run is to run."""
    if not expected_device(config.recipe.cluster).gpus_per_actor:
        return assumed_nodes(config.recipe.cluster, 0)
    engines = any(needs_engines(config, stage) for stage in config.stages)
    split = split_of(config.recipe)
    return assumed_nodes(config.recipe.cluster, served + (split.gpus if engines else split.ranks))


def shape_for(config: RunConfig) -> ModelShape | None:
    return policy_shape(config.recipe, parameters(config.recipe))


def find_offers(request: Request, config: RunConfig, source: Source, served: int) -> Iterator[Offer]:
    """Each is planned again from its keys, as the user would. Of each choice of ZeRO stage, offload and tensor
    parallelism the division of the GPUs in which a step takes least."""
    nodes = source.nodes
    if nodes.card is None:
        reduced_keys = with_less_memory(config, nodes)
        new_plan = None if reduced_keys is None else _plan_again(request, nodes, reduced_keys, served)
        if reduced_keys is not None and new_plan is not None and new_plan.problem is None:
            yield Offer(keys=reduced_keys)
        return
    before = split_of(config.recipe)
    kinds: dict[Any, list[Split]] = {}
    most = most_zero(config.recipe.model.lora.rank > 0)
    for split in other_splits(nodes, before, source.heads, served, most_zero=most, in_turn=can_alternate(config)):
        kinds.setdefault((split.offload, split.zero_stage, split.tensor_parallel, split.placement), []).append(split)
    offered = 0
    for candidates in sorted(kinds.values(), key=lambda splits: len(_other_keys(splits[0].overrides(before)))):
        fits = [split for split in candidates if plan_memory(with_split(config, split), nodes, served).problem is None]
        if not fits:
            continue
        timed = _fastest(config, source, fits, served)
        keys = keys_for(config.recipe, timed.split if timed else fits[0])
        new_plan = _plan_again(request, nodes, keys, served)
        if new_plan is not None and new_plan.problem is None:
            yield Offer(keys=keys, rank=next((row for row in new_plan.rows if row.name == "rank"), None), timed=timed)
            offered += 1
        if offered == MOST_OFFERS:
            return


def _plan_again(request: Request, nodes: Nodes, keys: Sequence[str], served: int) -> Memory | None:
    """From keys, as the user would. None where the configuration refuses them."""
    try:
        return plan_memory(_compose_again(request, overrides_for(request, nodes, keys)), nodes, served)
    except BadInput:
        return None


def _fastest(config: RunConfig, source: Source, candidates: Sequence[Split], served: int) -> Timed | None:
    try:
        return next(iter(best_splits(config, source, candidates, served)), None)
    except BadInput:  # a card without a data sheet
        return None


def _other_keys(keys: Sequence[str]) -> list[str]:
    return [key for key in keys if not key.startswith(("learner.ranks", "rollout.workers", "rollout.min_workers"))]
