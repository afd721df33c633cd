"""How GPUs are divided between learner ranks and engines, and with what: the keys that a plan may turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from launch.checks.gpu_plan import MOST_RANKS
from launch.tools.plan.nodes import Nodes
from rlsys.config.recipe import RecipeConfig, RunConfig

Offload = Literal["none", "optimizer", "all"]
Zero = Literal[1, 2, 3]
Placement = Literal["split", "shared", "sleep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    ranks: int
    workers: int
    tensor_parallel: int
    zero_stage: Zero
    offload: Offload
    placement: Placement = "split"
    sequence_parallel: int = 1  # ranks that share a row: they are moved together

    @property
    def gpus(self) -> int:
        if self.placement == "split":
            return self.ranks + self.workers * self.tensor_parallel
        return self.ranks

    def keys(self) -> dict[str, str]:
        return {
            "cluster.placement": self.placement,
            "learner.ranks": str(self.ranks),
            "rollout.workers": str(self.workers),
            "engine.tensor_parallel": str(self.tensor_parallel),
            "learner.zero_stage": str(self.zero_stage),
            "learner.offload": self.offload,
        }

    def overrides(self, than: Split) -> list[str]:
        """What to add to a command whose configuration has the other one."""
        before = than.keys()
        return [f"{key}={value}" for key, value in self.keys().items() if value != before[key]]

    def describe(self) -> str:
        if self.placement == "sleep":
            return f"{self.ranks} in turn"
        return f"{self.ranks}+{self.workers}" + (f"x{self.tensor_parallel}" if self.tensor_parallel > 1 else "")


def split_of(recipe: RecipeConfig) -> Split:
    learner = recipe.learner
    return Split(
        ranks=learner.ranks,
        workers=recipe.rollout.workers,
        tensor_parallel=recipe.engine.tensor_parallel,
        zero_stage=learner.zero_stage,
        offload=learner.offload,
        placement=recipe.cluster.placement,
        sequence_parallel=learner.sequence_parallel,
    )


def keys_for(recipe: RecipeConfig, split: Split) -> list[str]:
    """What to add to the command of a recipe for this division: with fewer engines than it needs, that number too."""
    return split.overrides(split_of(recipe)) + fewer_needed(split.workers, recipe.rollout.min_workers)


def fewer_needed(workers: int, min_workers: int) -> list[str]:
    """The key without which a run that needs more engines than that is refused."""
    return [f"rollout.min_workers={workers}"] if workers < min_workers else []


def with_split(config: RunConfig, split: Split) -> RunConfig:
    """The same run, divided in another way: what differs from its division holds in all of its stages."""
    before = split_of(config.recipe)
    stages = tuple(replace(stage, config=_divided(stage.config, before, split)) for stage in config.stages)
    return replace(config, recipe=_divided(config.recipe, before, split), stages=stages)


def _divided(recipe: RecipeConfig, before: Split, split: Split) -> RecipeConfig:
    """A stage may have a ZeRO stage and an offload of its own, which a command line without these keys leaves it."""
    learner, rollout = recipe.learner, recipe.rollout
    zero = learner.zero_stage if split.zero_stage == before.zero_stage else split.zero_stage
    offload = learner.offload if split.offload == before.offload else split.offload
    return replace(
        recipe,
        cluster=replace(recipe.cluster, placement=split.placement),
        learner=replace(learner, ranks=split.ranks, zero_stage=zero, offload=offload),
        rollout=replace(rollout, workers=split.workers, min_workers=min(rollout.min_workers, split.workers)),
        engine=replace(recipe.engine, tensor_parallel=split.tensor_parallel),
    )


def most_engines(nodes: Nodes, ranks: int, tensor_parallel: int, served: int = 0) -> int:
    """How many engines have room next to so many ranks, which are packed: an engine is on one node.

    served: GPUs of judges and retrievers, which are placed like ranks.
    """
    remaining, engines = ranks + served, 0
    for _ in range(nodes.count):
        used = min(remaining, nodes.gpus)
        remaining -= used
        engines += (nodes.gpus - used) // tensor_parallel
    return engines if remaining == 0 else 0


def fits_nodes(nodes: Nodes, split: Split, served: int = 0) -> bool:
    if split.placement != "split":
        return split.gpus + served <= nodes.all_gpus
    enough = split.ranks + served <= nodes.all_gpus
    return enough and split.workers <= most_engines(nodes, split.ranks, split.tensor_parallel, served)


def other_splits(
    nodes: Nodes, split: Split, heads: int, served: int = 0, *, most_zero: Zero = 3, in_turn: bool = False
) -> Iterator[Split]:
    """Every way to use all GPUs with the same offload and stage, then with keys changed: fewest changes first; and all
    of them in turn, where nothing else has to change for it."""
    ways = [way for way in (1, 2, 4, 8) if way <= nodes.gpus and heads % way == 0]
    ways.sort(key=lambda way: way != split.tensor_parallel)
    stages: list[Zero] = [split.zero_stage, *((most_zero,) if split.zero_stage < most_zero else ())]
    sharing = split.sequence_parallel
    offloads: list[Offload] = [split.offload, *(("optimizer",) if split.offload == "none" else ())]
    for offload in offloads:
        for stage in stages:
            for way in ways:
                for ranks in range(sharing, min(nodes.all_gpus, MOST_RANKS) + 1, sharing):
                    workers = most_engines(nodes, ranks, way, served)
                    if workers:
                        yield Split(
                            ranks=ranks, workers=workers, tensor_parallel=way, zero_stage=stage, offload=offload,
                            sequence_parallel=sharing,
                        )  # fmt: skip
    all_gpus = nodes.all_gpus - served
    if in_turn and all_gpus and all_gpus % sharing == 0 and all_gpus <= MOST_RANKS:
        yield replace(split, ranks=all_gpus, workers=all_gpus, placement="sleep")
