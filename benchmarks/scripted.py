"""The real driver on parts that follow a script: what benchmarks of the driver and of its loop share.

The loop of an rl stage, pool, buffer, journal, learner group and Ray are the real ones. A worker makes up its episodes,
at once or in the time that a `Script` gives to a token, on as many seats as an engine would have; a rank fetches and
builds its rows, learns nothing, and takes as long as the script says.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import ray

from actors.pool import RolloutPool
from actors.scoring import ScoringSpec
from actors.services import Services
from actors.specs import IDLE, EngineSpec
from actors.weights.distributor import DistributorOptions, WeightDistributor
from actors.worker import LoadResult, WorkerSpec, WorkerStatus
from actors.worker_registry import PoolOptions
from launch.config.compose import compose, to_yaml
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.observe.progress import Progress
from launch.driver.run.run import Run
from launch.driver.run.rundir import RunDir
from launch.driver.stages.rl_loop import rl_loop
from learners.actor import LearnerActor
from learners.group import GroupOptions, LearnerGroup, rank_specs
from learners.meeting import RankSpec
from rlsys.batch import UpdateReport
from rlsys.journal import Journal
from rlsys.probe import Probe, ProbeValues
from rlsys.summaries import summarize_group
from rlsys.system.device import DEVICES, resolve_run
from rlsys.system.weight_folder import WeightFolder, WeightManifest
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
    Group,
    Message,
    Reward,
    Timings,
    Trajectory,
    Turn,
    TurnStop,
    VersionSpan,
)

GROUP, PROMPT, REPLY = 8, 300, 40  # siblings; tokens of a prompt and of what a tool says
WORDS = 151_000  # tokens of the vocabulary
RECIPE = """
name: scripted
env: {{name: calculator, train_tasks: {tasks}, held_out_tasks: 1}}
engine: {{max_model_len: 1000000}}
learner: {{tokens_per_row: 16384}}
loop: {{groups_per_step: {groups}, group_size: {size}, max_policy_lag: {lag}}}
rollout: {{workers: {workers}, call_timeout_s: {deadline}}}
eval: {{tasks: 1}}
trajectories: {{keep: {keep}}}
checkpoint: {{every: 1000000}}
wandb: {{mode: disabled}}
stages: [{{name: rl, kind: rl, steps: {steps}}}]
"""
PLAYED = ("groups", "size", "lag", "workers", "deadline", "tasks", "steps", "keep")  # what RECIPE takes of a Script
MOVED = 5.0  # nats by which the start-up canary changes what is said of the probe
SCRIPT = "BENCH_SCRIPT"  # environment variable by which the actors get theirs
UNBOUNDED = 1 << 20  # seats, and episodes of a worker


@dataclass(frozen=True, kw_only=True)
class Script:
    """What is played, and how long it takes."""

    workers: int = 1
    ranks: int = 1
    groups: int = 8  # in a step
    size: int = GROUP  # episodes of a group
    tasks: int = 64  # that prompts are drawn from
    lag: int = 1  # loop.max_policy_lag
    steps: int = 5
    keep: int = 1024  # trajectories.keep
    deadline: float = 120.0  # seconds that a worker has for a ping
    tokens: int = 256  # sampled in an episode; of a lognormal distribution the median
    sigma: float = 0.0  # of the lengths' logarithm; 0: all as long
    turns: int = 1
    token_s: float = 0.0  # seconds that a sequence with a seat needs for a token
    update_s: float = 0.0
    seats: int = UNBOUNDED  # sequences that a worker samples at the same time
    in_flight: int = UNBOUNDED  # episodes that a worker is given
    dull: float = 0.0  # share of the groups whose rewards are all alike
    failing: float = 0.0  # share of the episodes that fail, half of them after an attempt that broke
    seed: int = 0

    def lengths(self, sequence: int) -> list[int]:
        """Sampled tokens of each sibling of a group, whichever worker plays it and under whatever lag."""
        if not self.sigma:
            return [self.tokens] * self.size
        draw = np.random.default_rng([self.seed, sequence])
        return [max(1, round(length)) for length in self.tokens * np.exp(self.sigma * draw.standard_normal(self.size))]

    def is_dull(self, sequence: int) -> bool:
        return self._chance(self.dull, sequence, self.size)

    def fails(self, sequence: int, sibling: int) -> bool:
        return self._chance(self.failing, sequence, sibling)

    def _chance(self, share: float, sequence: int, place: int) -> bool:
        """The same for the same group in every run of a script."""
        return bool(share) and np.random.default_rng([self.seed, sequence, 1 + place]).random() < share


def broken_tokens(length: int) -> int:
    """Tokens of the failed attempt before a failing episode; only siblings with an odd number have one."""
    return length // 2


class ScriptedWorker:
    """Plays what its script says: at once, or each episode on a seat for as long as its tokens take."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.script = Script(**json.loads(os.environ[SCRIPT]))
        self.draw = np.random.default_rng(spec.run_seed)
        self.seats = asyncio.Semaphore(self.script.seats)
        self.loads: list[tuple[float, int]] = [(0.0, 0)]  # when weights came, and which
        self.generated = 0

    async def start(self) -> WorkerStatus:
        return await self.ping()

    async def ping(self) -> WorkerStatus:
        return WorkerStatus(
            pid=os.getpid(), log="", version=self.loads[-1][1], generated_tokens=self.generated, busy_s=0.0,
            alive_s=1.0, rss_mb=1.0, engine_cpu_s=0.0, own_cpu_s=0.0, engine=IDLE, tools={},
        )  # fmt: skip

    async def load_weights(self, published: WeightManifest, probe: Any) -> LoadResult:
        self.loads = [*self.loads[-100:], (time.monotonic(), published.version)]
        return LoadResult(
            version=published.version, seconds=0.0, probe_logprobs=probe_logprobs(probe, published.version < 0)
        )

    async def start_phase(self) -> str:
        return ""

    async def connect(self, addresses: Any) -> None: ...

    async def adopt(self) -> None: ...

    async def sleep(self) -> None: ...

    async def wake(self) -> None: ...

    async def stop(self) -> None: ...

    async def idle_s(self, purpose: str, sequence: int, attempt: int) -> float | None:
        return 0.0

    async def run_group(self, ticket: Any, plan: Any) -> Any:
        dull = self.script.is_dull(ticket.sequence)
        lengths = self.script.lengths(ticket.sequence)
        episodes = [self.episode(ticket, sibling, length, dull) for sibling, length in enumerate(lengths)]
        played = await asyncio.gather(*episodes) if self.script.token_s else [await episode for episode in episodes]
        group = Group(ticket=ticket, trajectories=tuple(played), worker="scripted")
        return summarize_group(group), group

    async def episode(self, ticket: Any, sibling: int, length: int, dull: bool) -> Trajectory:
        async with self.seats:
            began = time.monotonic()
            if self.script.token_s:
                await asyncio.sleep(length * self.script.token_s)
            turn_tokens = length // self.script.turns
            turns = [self.turn(began, index, turn_tokens) for index in range(self.script.turns)]
        self.generated += turn_tokens * self.script.turns
        value = 0.0 if dull else float(sibling % 2)
        failed = self.script.fails(ticket.sequence, sibling)
        failure = Failure(kind=FailureKind.DATA, where="scripted", detail="as the script says")
        return Trajectory(
            task=ticket.task,
            sibling=sibling,
            turns=tuple(turns),
            messages=tuple(Message(role="assistant", content=turn.completion.text) for turn in turns),
            end=EpisodeEnd.FAILED if failed else EpisodeEnd.ANSWERED,
            reward=failure if failed else Reward(value=value, parts={"correct": value}),
            timings=Timings(generate_s=1.0, tool_s=0.0, score_s=0.0),
            retried=(failure,) if failed and sibling % 2 else (),
            discarded_tokens=broken_tokens(length) if failed and sibling % 2 else 0,
        )

    def turn(self, began: float, index: int, length: int) -> Turn:
        first = began + index * length * self.script.token_s
        completion = Completion(
            token_ids=self.draw.integers(WORDS, size=length, dtype=np.int32),
            logprobs=-self.draw.random(length, dtype=np.float32),
            spans=self.spans(first, length),
            stop=TurnStop.EOS,
            text="word " * (length * 4 // 5),
        )
        return Turn(
            added_ids=self.draw.integers(WORDS, size=REPLY if index else PROMPT, dtype=np.int32),
            starts_sample=not index,
            completion=completion,
            reply=None,
        )

    def spans(self, began: float, length: int) -> tuple[VersionSpan, ...]:
        """Which weights sampled which of `length` tokens, the first of which began then."""
        before = [version for at, version in self.loads if at <= began]
        cuts = [(0, before[-1] if before else self.loads[0][1])]
        if self.script.token_s:
            cuts += [(int((at - began) / self.script.token_s), version) for at, version in self.loads if at > began]
        ends = [min(length, start) for start, _ in cuts[1:]] + [length]
        return tuple(
            VersionSpan(version=version, start=start, end=end)
            for (start, version), end in zip(cuts, ends, strict=True)
            if start < end
        )


class ScriptedRank(LearnerActor):
    """Fetches and builds its rows as a rank does."""

    def start(self, spec: RankSpec, address: tuple[str, int]) -> int:
        self.update_s = Script(**json.loads(os.environ[SCRIPT])).update_s
        return os.getpid()

    def measure_gbps(self) -> float:
        return 1.0

    def begin(self, model_path: str, learner: Any, algorithm: Any, **stage: Any) -> None: ...

    def connect(self, served: Any) -> None: ...

    def update(self) -> UpdateReport:
        self._built = None
        time.sleep(self.update_s)
        return UpdateReport(applied=True, metrics={}, seconds=self.update_s)

    def logprobs(self, token_ids: Any) -> Any:
        return probe_logprobs(token_ids, False)

    def snapshot(self, folder: str, tokenizer_from: str) -> None:
        (Path(folder) / "hf").mkdir(parents=True, exist_ok=True)

    def write(self) -> None: ...

    def leave_card(self) -> None: ...

    def return_to_card(self) -> None: ...

    def load(self, folder: str, optimizers_alone: bool) -> None: ...

    def measure(self, probe: Probe) -> ProbeValues:
        logprobs = probe_logprobs(probe.samples, bool(probe.noise))
        return ProbeValues(logprobs=logprobs, rounded=logprobs)

    def export(self, folder: Any, version: int, probe: Probe) -> tuple[WeightManifest, ProbeValues]:
        return WeightManifest(version=version), self.measure(probe)


def probe_logprobs(probe: Any, perturbed: bool) -> tuple[tuple[float, ...], ...]:
    return tuple((-1.0 - MOVED * perturbed,) * (len(ids) - 1) for ids in probe)


class Book:
    """In the place of the tracker: `note` sees each row when it comes."""

    def __init__(self, note: Callable[[dict[str, Any]], None]) -> None:
        self.log = note

    def log_evaluation(self, *row: Any) -> None: ...

    def choose_episodes(self, step: int, rewards: Any) -> list[int]:
        return []

    def episodes(self, *row: Any) -> None: ...


def make_run(
    script: Script,
    folder: Path,
    note: Callable[[dict[str, Any]], None] = lambda row: None,
    worker: type[ScriptedWorker] = ScriptedWorker,
) -> Run:
    """Its run directory is `folder / "run"`."""
    recipe = folder / "scripted.yaml"
    settings = {name: getattr(script, name) for name in PLAYED}
    recipe.write_text(RECIPE.format(**settings))
    config = resolve_run(compose(str(recipe), []), DEVICES["cpu"])
    engine = EngineSpec(
        model_path="", dtype="float32", max_model_len=8, max_num_seqs=1, seed=0, prefix_cache=False,
        enforce_eager=True, threads=1, kv_cache_mb=1, gpu_memory_utilization=0.5, block_size=32,
    )  # fmt: skip
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    specs = [
        WorkerSpec(
            name=f"rollout:{index}", engine=engine, run_seed=index, scoring=scoring, stall_s=60.0, block_s=60.0,
            start_timeout_s=60.0,
        )
        for index in range(script.workers)
    ]  # fmt: skip
    variables = {SCRIPT: json.dumps(asdict(script))}
    pool = PoolOptions(
        cpus=0, gpus=0, env_vars=variables, start_timeout_s=900.0, call_timeout_s=script.deadline,
        in_flight=script.in_flight, infra_attempts=3, min_workers=1,
        placement_timeout_s=900.0,
    )  # fmt: skip
    rank = RankSpec(
        rank=0, world_size=1, master_addr="", master_port=0, device=DEVICES["cpu"], dtype="float32",
        gradient_checkpointing=False, seed=0,
    )  # fmt: skip
    ranks = GroupOptions(
        cpus=0, gpus=0, env_vars=variables, start_timeout_s=900.0, call_timeout_s=900.0, ping_timeout_s=script.deadline
    )
    directory, weights = RunDir(folder / "run"), WeightFolder(folder / "versions")
    directory.write("config.yaml", to_yaml(config))
    distributing = DistributorOptions(env_vars={}, start_timeout_s=900.0, fetch_timeout_s=900.0)
    renderer = SimpleNamespace(prompt_ids=lambda messages, offer: (7, 7), vocabulary_size=WORDS)
    renderer.under = lambda args: renderer
    parts: dict[str, Any] = {
        "learner": LearnerGroup(rank_specs(rank, script.ranks), ranks, actor=ScriptedRank),
        "pool": RolloutPool(specs, pool, worker, WeightDistributor(weights, distributing)),
        "renderer": renderer,
        "tracker": Book(note),
        "gauges": SimpleNamespace(set=lambda row: None, set_held_out=lambda name, values: None),
        "device": DEVICES["cpu"],
    }
    return Run(
        config=config,
        dir=directory,
        state=DriverState(),
        earlier=DriverState(),
        journal=Journal(directory.journal, keep=0),
        services=Services([], env_vars={}, start_timeout_s=1),
        progress=Progress(),
        model_path=str(folder),
        **parts,
    )


async def go(run: Run) -> None:
    """The stage from its first group to its last row."""
    watching = asyncio.create_task(run.loop_lag.watch())
    await run.learner.start()
    run.tasks.pool_start = asyncio.create_task(run.pool.start())
    gc.collect()
    gc.freeze()  # as `launch.driver.run.session` does
    try:
        await rl_loop(run, run.config.stages[0])
    finally:
        watching.cancel()
        await run.tasks.cancel_background()
        await run.pool.stop()
        await run.learner.stop()
        gc.unfreeze()


def start_ray(store_gb: float) -> None:
    ray.init(
        address="local", num_cpus=1, object_store_memory=int(store_gb * 2**30), include_dashboard=False,
        log_to_driver=False,
    )  # fmt: skip
