"""What the retrievers and judges that a run starts take of its machines, and whether a retriever on CPUs keeps up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from envs import new_player
from envs.rewards import judge_config_of
from envs.services.judge.config import JudgeConfig
from envs.services.retriever.sizes import (
    GPU_FLOPS,
    POSTING,
    POSTINGS,
    THREAD_FLOPS,
    IndexSize,
    count_passages,
    index_size,
)
from envs.tools.search import SearchConfig
from launch.checks.gpu_memory import BYTES, GIGA, EnginePlan, ModelShape, engine_memory, total
from launch.checks.gpu_plan import VLLM_SHARE, card_gb, engine_remedies, reference_share
from launch.checks.memory_table import plural
from launch.checks.model_size import TEACHER, shape_at, teacher_parameters
from launch.checks.teachers import check_serving
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.system.device import Device, dtype_of

HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceNeed:
    """Of one server of the run."""

    name: str
    gpus: int
    cpus: int
    holds: str = ""  # its index or its model, in words; "" where that is not known
    host_bytes: float = 0.0  # of its node's RAM: what an index is read from
    problem: str | None = None  # why it cannot work
    warning: str | None = None  # why it may be too slow

    def describe(self) -> str:
        gpus = f"{plural(self.gpus, 'GPU')}, " if self.gpus else ""
        parts = [f"{gpus}{plural(self.cpus, 'CPU')}", self.holds, f"warning: {self.warning}" if self.warning else ""]
        return f"{self.name}: {'; '.join(filter(None, parts))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What asks the servers."""

    episodes: int | None = None  # at once; None: those of a step of training
    workers: int | None = None  # processes that play them; None: `rollout.workers`

    def searches(self, recipe: RecipeConfig, config: SearchConfig) -> int:
        """At once, at most: a process has `guard.max_concurrent` of them under way."""
        step = recipe.loop.groups_per_step * recipe.loop.group_size
        workers = recipe.rollout.workers if self.workers is None else self.workers
        return min(workers * config.guard.max_concurrent, step if self.episodes is None else self.episodes)


def with_every_core(device: Device) -> Device:
    """For servers in this process: null in `threads` is every core there, not an engine's share."""
    return replace(device, engine_threads=len(os.sched_getaffinity(0)))


def service_needs(played: Sequence[RecipeConfig], device: Device, load: Load | None = None) -> list[ServiceNeed]:
    """One for each server, in the order in which stages ask for them. played: stages and evaluation sets that play.

    load: None is that of training.
    """
    needs: dict[str, ServiceNeed] = {}
    for recipe in played:
        for need in _of_recipe(recipe, device, load or Load()):
            first = needs.setdefault(need.name, need)
            if (first.gpus, first.cpus) != (need.gpus, need.cpus):
                counts = " and ".join(f"{server.gpus} GPUs and {server.cpus} CPUs" for server in (first, need))
                problem = f"one server is asked for with {counts}: give it the same gpus and threads everywhere"
                needs[need.name] = replace(first, problem=first.problem or problem)
    return list(needs.values())


def check_needs(needs: Iterable[ServiceNeed], say: Callable[[str], None]) -> None:
    """Say which may be too slow. Raises BadInput for a server that cannot keep up, or that its GPUs cannot hold."""
    for need in needs:
        if need.problem is not None:
            raise BadInput(need.problem, where=need.name)
        if need.warning is not None:
            say(f"{need.name}: {need.warning}")


def _of_recipe(recipe: RecipeConfig, device: Device, load: Load) -> Iterator[ServiceNeed]:
    world = new_player(recipe.env)
    if world.service:
        cpus, gpus = world.service_threads or device.engine_threads, world.service_gpus * device.gpus_per_actor
        bare = ServiceNeed(name=world.service, gpus=gpus, cpus=cpus)
        retriever = getattr(recipe.env, "retriever", None)
        yield of_retriever(bare, retriever, recipe, load) if isinstance(retriever, SearchConfig) else bare
    judge = judge_config_of(recipe.reward)
    if judge is not None and judge.server:
        yield of_judge(judge, recipe, device)


def of_retriever(bare: ServiceNeed, config: SearchConfig, recipe: RecipeConfig, load: Load) -> ServiceNeed:
    """On GPUs it keeps up: for a batch of 64 it reads 32 GB there in a fiftieth of a second."""
    if config.corpus is None:
        return bare
    if config.kind == "bm25":
        return _of_words(bare, config.corpus)
    size = index_size(config, config.corpus)
    if size is None:
        return replace(bare, holds=f"an index of {config.corpus}, whose size is not known here")
    on_gpus = (
        f", {size.gpu_bytes / GIGA:.1f} GB on its {plural(bare.gpus, 'GPU')}" if bare.gpus and size.gpu_bytes else ""
    )
    holds = (
        f"{config.corpus}, {size.passages / 1e6:.2f} M passages x {size.encoder.dimension} in {size.faiss}, "
        f"{size.bytes / GIGA:.1f} GB of its node's RAM{on_gpus}"
    )
    if config.index is not None and not size.built:
        holds += f"; `rlsys index` takes {build_time(size)}"
    if bare.gpus:  # of its encoder at least: a graph is searched on CPUs, which read little of it
        problem, warning = _too_large(size, bare.gpus, VLLM_SHARE * card_gb(recipe.cluster)), None
    else:
        problem, warning = speed_problem(size, config, load.searches(recipe, config), bare.cpus)
    return replace(bare, holds=holds, host_bytes=float(size.bytes), problem=problem, warning=warning)


def _too_large(size: IndexSize, gpus: int, room: float) -> str | None:
    """room: GB of a card that the index may take; its encoder has less than the rest."""
    gpu_gb = size.gpu_bytes / gpus / GIGA
    if gpu_gb <= room:
        return None
    return f"its index has {gpu_gb:.0f} GB on each GPU, of {room:.0f}: try env.retriever.gpus={2 * gpus}"


def _of_words(bare: ServiceNeed, corpus: str) -> ServiceNeed:
    passages = count_passages(corpus)
    if passages is None:
        return bare
    postings = float(passages * POSTINGS * POSTING)
    words = f"{corpus}, {passages / 1e6:.2f} M passages in BM25, about {postings / GIGA:.1f} GB mapped from disk"
    return replace(bare, holds=words, host_bytes=postings)


def build_time(size: IndexSize) -> str:
    """Of `rlsys index`, which encodes every passage; the index itself is made in minutes."""
    disk = (size.vector_bytes + size.bytes) / GIGA
    hours = size.encode_flops / HOUR
    on_gpu, on_cpu = hours / GPU_FLOPS, hours / THREAD_FLOPS
    return f"about {on_gpu:.1f} h on a GPU ({on_cpu:,.0f} h of a CPU's threads) and {disk:.0f} GB of disk"


def speed_problem(size: IndexSize, config: SearchConfig, at_once: int, threads: int) -> tuple[str | None, str | None]:
    """(why a CPU cannot answer so many searches at once in time, why it may be too slow for them).

    The last of them waits for all others. After `guard.deadline_s` it is asked again, `guard.attempts` times in all.
    """
    guard = config.guard
    wait_s = at_once * size.query_flops / (threads * THREAD_FLOPS)
    if wait_s <= guard.deadline_s:
        return None, None
    problem = (
        f"{at_once:,} searches at once take about {wait_s:,.0f} s on {plural(threads, 'thread')} "
        f"({size.query_flops / GIGA:.1f} GFLOP each, {THREAD_FLOPS / GIGA:.0f} GFLOP/s a thread), "
        f"env.retriever.guard.deadline_s={guard.deadline_s:g}"
    )
    tries = "env.retriever.gpus=1, more env.retriever.threads, or an index with env.retriever.faiss=HNSW32"
    problem = f"{problem}: try {tries}"
    return (problem, None) if wait_s > guard.attempts * guard.deadline_s else (None, problem)


def of_reference(recipe: RecipeConfig, device: Device) -> ServiceNeed:
    """Of `learner.serve_reference`."""
    path, gpus = str(recipe.learner.served_teacher), recipe.learner.reference_gpus * device.gpus_per_actor
    bare = ServiceNeed(name="reference", gpus=gpus, cpus=recipe.rollout.threads or device.engine_threads)
    try:
        check_serving(recipe, gpus)
    except BadInput as error:
        return replace(bare, problem=str(error))
    count, dtype = teacher_parameters(path), dtype_of(recipe.model.dtype, device)
    if count is None:
        return bare
    weights = float(count * BYTES[dtype]) / max(1, gpus) / GIGA
    if not gpus:
        return replace(bare, holds=f"{weights:.1f} GB of weights")
    shape = shape_at(path, TEACHER, count)
    if shape is not None:
        problem = _no_room_for_a_sequence(shape, recipe, dtype, gpus)
    else:
        room, more = reference_share(recipe) * card_gb(recipe.cluster), f"try learner.reference_gpus={2 * gpus}"
        problem = f"it has {weights:.0f} GB of weights on each GPU, of {room:.0f}: {more}" if weights > room else None
    return replace(bare, holds=f"{weights:.1f} GB of weights on each", problem=problem)


def _no_room_for_a_sequence(shape: ModelShape, recipe: RecipeConfig, dtype: str, gpus: int) -> str | None:
    """Of a reference, whose engine begins where one sequence of the longest, and the token after it, fits in."""
    window, card = recipe.engine.max_model_len + 1, card_gb(recipe.cluster)
    seats, share = recipe.engine.max_num_seqs, reference_share(recipe)
    plan = EnginePlan(
        tensor_parallel=gpus, dtype=dtype, max_num_seqs=seats, max_model_len=window, card=card * GIGA, share=share
    )
    memory = engine_memory(shape, plan)
    if memory.tokens >= window:
        return None
    tries = engine_remedies(shape, plan, "learner.reference_gpus", share)
    keys = (key for key, trial in tries if engine_memory(shape, trial).tokens >= window)
    remedy, engine_gb = next(keys, "GPUs with more memory"), total(memory.fixed) / GIGA
    holds = f"{engine_gb:.1f} GB for weights and one step, and room for engine.max_model_len={window - 1}"
    return f"it needs {holds}, on each GPU, of {share * card:.1f} GB: try {remedy}"


def of_judge(judge: JudgeConfig, recipe: RecipeConfig, device: Device) -> ServiceNeed:
    """With a model of its own."""
    gpus, name = judge.gpus * device.gpus_per_actor, judge.server
    cpus = judge.threads or recipe.rollout.threads or device.engine_threads
    shape = shape_at(str(judge.model), "reward.judge.model")
    if shape is None:
        return ServiceNeed(name=name, gpus=gpus, cpus=cpus)
    weights = float(shape.parameters * BYTES[device.dtype])
    if not gpus:
        return ServiceNeed(name=name, gpus=0, cpus=cpus, holds=f"{weights / GIGA:.1f} GB of weights")
    gpu_gb, room = weights / gpus / GIGA, VLLM_SHARE * card_gb(recipe.cluster)
    problem = None
    if gpu_gb > room:
        problem = f"{name} has {gpu_gb:.0f} GB of weights on each GPU, of {room:.0f}: try reward.judge.gpus={2 * gpus}"
    return ServiceNeed(name=name, gpus=gpus, cpus=cpus, holds=f"{gpu_gb:.1f} GB of weights on each", problem=problem)
