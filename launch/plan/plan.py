"""`rlsys plan`: whether a run fits on given machines, and if not, which keys would make it fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from launch.checks.gpu_memory import ModelShape, shape_of
from launch.checks.gpu_plan import model_config
from launch.checks.machine import expected_device
from launch.checks.memory_table import MemoryRow
from launch.checks.preflight import parameters
from launch.config.compose import compose
from launch.plan.memory import Memory, device_of, plan_memory, with_less_memory
from launch.plan.nodes import Nodes, assumed_nodes
from launch.plan.split import other_splits, split_of, with_split
from launch.stages.base import needs_engines
from launch.stages.train import gpus_of_services
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput
from rlsys.system.device import dtype_of

MOST_OFFERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for."""

    config: str
    overrides: Sequence[str] = ()
    nodes: Nodes | None = None
    shape: str | None = None  # a known model whose sizes stand for those of the recipe's


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Keys with which the run fits."""

    keys: Sequence[str]
    rank: MemoryRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    request: Request
    config: RunConfig
    nodes: Nodes
    parameters: int
    dtype: str
    memory: Memory
    offers: Sequence[Offer] = ()
    assumes: Sequence[str] = field(default_factory=tuple)

    @property
    def fits(self) -> bool:
        return self.memory.problem is None

    def command(self, keys: Sequence[str] = ()) -> str:
        return " ".join(["rlsys train", self.request.config, *self.request.overrides, *keys])


def make_plan(request: Request) -> Plan:
    """Raises BadInput for a configuration, machine or model that is not known."""
    config = compose(request.config, overrides_for(request))
    served = gpus_of_services(config)
    nodes = request.nodes or _assume(config, served)
    if request.nodes is None and nodes.card is not None:
        config = compose(request.config, overrides_for(request, nodes))
    count = parameters(config.recipe)
    if count is None:
        raise BadInput(
            "neither known, nor downloaded before, nor can its hub be asked",
            key="model.path",
            found=config.recipe.model.path,
            expected="another name, or a model of its size, such as --shape 7b",
        )
    memory = plan_memory(config, nodes, served)
    offers = () if memory.problem is None else tuple(find_offers(request, config, nodes, served))
    return Plan(
        request=request,
        config=config,
        nodes=nodes,
        parameters=count,
        dtype=dtype_of(config.recipe.model.dtype, device_of(nodes)),
        memory=memory,
        offers=offers,
    )


def overrides_for(request: Request, nodes: Nodes | None = None, keys: Sequence[str] = ()) -> list[str]:
    """The machine and the model's sizes go to the configuration as keys; what the command line says comes first."""
    nodes = nodes or request.nodes
    found: list[str] = []
    if nodes is not None:
        found.append(f"cluster.device={device_of(nodes).torch_device}")
        if nodes.card is not None:
            found.append(f"cluster.gpu_memory_gb={nodes.card.memory_gb:g}")
    if request.shape is not None:
        found.append(f"model.path={request.shape}")
    return [*request.overrides, *found, *keys]


def _assume(config: RunConfig, served: int) -> Nodes:
    if not expected_device(config.recipe.cluster).gpus_per_actor:
        return assumed_nodes(config.recipe.cluster, 0)
    engines = any(needs_engines(config, stage) for stage in config.stages)
    split = split_of(config.recipe)
    gpus = split.ranks + served + (split.workers * split.tensor_parallel if engines else 0)
    return assumed_nodes(config.recipe.cluster, gpus)


def shape_for(config: RunConfig) -> ModelShape | None:
    found = model_config(config.recipe)
    return None if found is None else shape_of(found, parameters(config.recipe))


def find_offers(request: Request, config: RunConfig, nodes: Nodes, served: int) -> Iterator[Offer]:
    """Each is planned again from its keys, as the user would."""
    if nodes.card is None:
        found = with_less_memory(config, nodes)
        if found is not None:
            yield Offer(keys=found[1])
        return
    before, shape, offered = split_of(config.recipe), shape_for(config), 0
    candidates = list(other_splits(nodes, before, shape.heads if shape else 1, served))
    candidates.sort(key=lambda split: (len(_kinds(split.overrides(before))), abs(split.ranks - before.ranks)))
    seen: set[Any] = set()
    for split in candidates:
        kind = (split.zero_stage, split.offload)
        if kind in seen or plan_memory(with_split(config, split), nodes, served).problem is not None:
            continue
        keys = split.overrides(before)
        again = plan_memory(compose(request.config, overrides_for(request, nodes, keys)), nodes, served)
        if again.problem is not None:
            continue
        seen.add(kind)
        yield Offer(keys=keys, rank=next((row for row in again.rows if row.name == "rank"), None))
        offered += 1
        if offered == MOST_OFFERS:
            return


def _kinds(keys: Sequence[str]) -> list[str]:
    return [key for key in keys if not key.startswith(("learner.ranks", "rollout.workers"))]
