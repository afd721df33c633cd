"""What a run needs of the memory and the disks of given machines, by the arithmetic of `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.filesize import decimal as size

from launch.checkpoints.disk_space import room_for
from launch.checks import preflight
from launch.checks.gpu_plan import gpu_plan
from launch.checks.memory_table import MemoryRow
from launch.plan.nodes import Nodes
from launch.plan.split import Split, fits_nodes, split_of
from launch.stages.base import needs_engines, stage_of
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES, Device, resolve_run


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    unit: str  # of the table
    rows: Sequence[MemoryRow]
    problem: str | None  # why it does not fit


def device_of(nodes: Nodes) -> Device:
    return DEVICES["cpu" if nodes.card is None else "cuda"]


def training_of(config: RunConfig) -> list[tuple[str, RecipeConfig]]:
    """Name and recipe of the stages that train."""
    return [(stage.name, stage.config) for stage in config.stages if stage_of(stage.kind).has_length]


def plan_memory(config: RunConfig, nodes: Nodes, served: int = 0) -> Memory:
    """served: GPUs of the run's judges and retrievers. Raises BadInput for a model whose sizes are not known."""
    device = device_of(nodes)
    full = resolve_run(config, device)
    disk = _disk_row(config, device)
    if nodes.card is None:
        rows, needed = preflight.memory_plan(full.recipe, learner=True, there=nodes.ram)
        return Memory(unit="MiB", rows=[*rows, *disk], problem=_too_much(needed, nodes, full.recipe))
    found = gpu_plan(
        full.recipe, training_of(full), device, preflight.parameters(full.recipe), nodes.ram, node_gpus=nodes.gpus
    )
    if not found.rows:
        raise BadInput(found.model, expected="a size with --shape, such as --shape 7b, or a network")
    engines = any(needs_engines(config, stage) for stage in config.stages)
    split = split_of(full.recipe) if engines else replace(split_of(full.recipe), workers=0)
    rows = [row for row in found.rows if engines or row.name != "engine"]
    return Memory(unit="GB", rows=[*rows, *disk], problem=_too_few(split, nodes, served) or found.problem)


def _disk_row(config: RunConfig, device: Device) -> list[MemoryRow]:
    room = room_for(config, device)
    if room is None:
        return []
    each = f"{room.most} checkpoints of {size(room.each)}"
    parts = [(each, float(room.each * room.most)), *([("of other models", float(room.extra))] if room.extra else [])]
    return [MemoryRow(name="disk", parts=tuple(parts), note="in the run directory")]


def _too_few(split: Split, nodes: Nodes, served: int) -> str | None:
    if fits_nodes(nodes, split, served):
        return None
    asked = f"{split.workers} engines x {split.tensor_parallel} + {split.ranks} ranks" + (
        f" + {served} of services" if served else ""
    )
    return f"{asked} = {split.gpus + served} GPUs, {nodes.all_gpus} are there ({nodes.describe()})"


def _too_much(needed_mb: int, nodes: Nodes, recipe: RecipeConfig) -> str | None:
    if nodes.ram is None or needed_mb * 2**20 <= nodes.ram * nodes.count:
        return None
    lower = "lower rollout.workers or engine.kv_cache_mb"
    return f"the run needs about {needed_mb:,} MiB, there are {nodes.ram * nodes.count / 2**20:,.0f}: {lower}"


def with_less_memory(config: RunConfig, nodes: Nodes) -> tuple[RunConfig, list[str]] | None:
    """On CPUs: fewer engines, then a smaller cache, that fit; and the keys. None where nothing does."""
    recipe = config.recipe
    for workers in range(recipe.rollout.workers, 0, -1):
        for cache in (recipe.engine.kv_cache_mb, 256, 128, 64):
            if cache > recipe.engine.kv_cache_mb:
                continue
            tried = replace(
                config,
                recipe=replace(
                    recipe,
                    rollout=replace(recipe.rollout, workers=workers, min_workers=1),
                    engine=replace(recipe.engine, kv_cache_mb=cache),
                ),
            )
            if plan_memory(tried, nodes).problem is None:
                keys = [f"rollout.workers={workers}"] * (workers != recipe.rollout.workers)
                return tried, keys + [f"engine.kv_cache_mb={cache}"] * (cache != recipe.engine.kv_cache_mb)
    return None
