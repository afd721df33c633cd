"""What a run needs of the memory and the disks of given machines, by the arithmetic of `--dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.filesize import decimal as size

from launch.checks import cpu_memory, model_size
from launch.checks.gpu_plan import gpu_plan
from launch.checks.memory_table import MemoryRow
from launch.driver.checkpoints.disk_space import room_for
from launch.driver.stages.base import list_training, needs_engines
from launch.tools.plan.nodes import Nodes
from launch.tools.plan.split import Split, fits_nodes, keys_for, split_of, with_split
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES, Device, resolve_run

CACHES_MB = (256, 128, 64)  # of an engine on CPUs, that are offered


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    unit: str  # of the table
    rows: Sequence[MemoryRow]
    problem: str | None  # why it does not fit


def device_of(nodes: Nodes) -> Device:
    return DEVICES["cpu" if nodes.card is None else "cuda"]


def plan_memory(config: RunConfig, nodes: Nodes, served: int = 0) -> Memory:
    """served: GPUs of the run's judges and retrievers. Raises BadInput for a model whose sizes are not known."""
    device = device_of(nodes)
    full = resolve_run(config, device)
    disk = _disk_row(config, device)
    if nodes.card is None:
        return _plan_cpus(full, nodes, disk)
    plan = gpu_plan(
        full.recipe, list_training(full), device, model_size.parameters(full.recipe), nodes.ram, node_gpus=nodes.gpus
    )
    if not plan.rows:
        raise BadInput(plan.model, expected="a size with --shape, such as --shape 7b, or a network")
    engines = any(needs_engines(config, stage) for stage in config.stages)
    split = split_of(full.recipe) if engines else replace(split_of(full.recipe), workers=0)
    rows = [row for row in plan.rows if engines or row.name != "engine"]
    rows.append(replace(cpu_memory.driver_row(full.recipe), of=nodes.ram, note="of RAM"))
    return Memory(unit="GB", rows=[*rows, *disk], problem=_too_few(split, nodes, served) or plan.problem)


def _plan_cpus(config: RunConfig, nodes: Nodes, disk: Sequence[MemoryRow]) -> Memory:
    """A process is on one node: with several, each is compared with a node, and their sum with all of them."""
    recipe, total_ram = config.recipe, None if nodes.ram is None else nodes.ram * nodes.count
    rows, _ = cpu_memory.memory_plan(recipe, learner=True, there=total_ram, stages=list_training(config))
    *processes, together = rows
    if nodes.count > 1:
        processes = [replace(row, of=nodes.ram) for row in processes]
    return Memory(unit="MiB", rows=[*processes, together, *disk], problem=_too_much(processes, nodes, recipe))


def _disk_row(config: RunConfig, device: Device) -> list[MemoryRow]:
    room = room_for(config, device)
    if room is None:
        return []
    label = f"{room.most} checkpoints of {size(room.each)}"
    parts = [(label, float(room.each * room.most)), *([("of other models", float(room.extra))] if room.extra else [])]
    return [MemoryRow(name="disk", parts=tuple(parts), note="in the run directory")]


def _too_few(split: Split, nodes: Nodes, served: int) -> str | None:
    if fits_nodes(nodes, split, served):
        return None
    engines = f"{split.workers} engines x {split.tensor_parallel} + {split.ranks} ranks"
    demand = engines if split.placement == "split" else f"a rank and an engine on each of {split.ranks}"
    demand += f" + {served} of services" if served else ""
    return f"{demand} = {split.gpus + served} GPUs, {nodes.all_gpus} are there ({nodes.describe()})"


def _too_much(processes: Sequence[MemoryRow], nodes: Nodes, recipe: RecipeConfig) -> str | None:
    times = {"engine": recipe.rollout.workers, "learner": recipe.learner.ranks, "driver": 1}
    kinds = [(row.needed, times[row.name]) for row in processes]
    if nodes.ram is None or pack(kinds, nodes.ram, nodes.count):
        return None
    lower, room = "lower rollout.workers or engine.kv_cache_mb", f"{nodes.ram / 2**20:,.0f}"
    largest = max(processes, key=lambda row: row.needed)
    if nodes.count > 1 and largest.needed > nodes.ram:
        demand = f"{largest.needed / 2**20:,.0f} MiB of one process ({largest.name})"
        return f"the run needs about {demand}, a node has {room}: take larger nodes, or {lower}"
    demand = f"{sum(per_process * count for per_process, count in kinds) / 2**20:,.0f} MiB"
    if nodes.count > 1:
        return f"the run needs about {demand} in whole processes, there are {nodes.count} nodes of {room}: {lower}"
    return f"the run needs about {demand}, there are {room}: {lower}"


def pack(sizes: Sequence[tuple[float, int]], room: float, nodes: int) -> bool:
    """Whether so many nodes have room for all processes, the largest placed first, each where the first room is.

    sizes: bytes of each kind of process, and how many there are.
    """
    remaining = sorted((kind for kind in sizes if kind[1]), reverse=True)
    for _ in range(nodes):
        free, unplaced = room, []
        for need, count in remaining:
            placed = min(count, int(free // need))
            free -= placed * need
            unplaced += [(need, count - placed)] * (count > placed)
        remaining = unplaced
        if not remaining:
            return True
    return not remaining


def with_less_memory(config: RunConfig, nodes: Nodes) -> list[str] | None:
    """On CPUs: the keys of fewer engines, then of a smaller cache, that fit. None where nothing does."""
    recipe = config.recipe
    cache_mb, ram = recipe.engine.kv_cache_mb, (nodes.ram or 0.0) * nodes.count
    most = int(ram // (cpu_memory.WORKER_MB * 2**20)) or 1  # engines, that any memory could hold
    for workers in range(min(recipe.rollout.workers, most), 0, -1):
        for cache in (cache_mb, *(mb for mb in CACHES_MB if mb < cache_mb)):
            split = replace(split_of(recipe), workers=workers)
            candidate = with_split(config, split)
            lower = replace(candidate.recipe, engine=replace(candidate.recipe.engine, kv_cache_mb=cache))
            if plan_memory(replace(candidate, recipe=lower), nodes).problem is None:
                return keys_for(recipe, split) + [f"engine.kv_cache_mb={cache}"] * (cache != cache_mb)
    return None
