"""What a token costs the driver: `python benchmarks/driver.py [--workers 8 --groups 64 --tokens 8192]`.

The driver is the real one: the loop of an rl stage, pool, buffer, learner group, Ray. Workers and ranks are scripted: a
worker has its episodes ready, a rank makes its rows and learns nothing. So whatever time there is, is the driver's and
Ray's. Tokens per second are of the driver's processor time, all of its threads, so that neither the scripted parts nor
other work on the machine count. The first step, and what the stage begins with, are left out.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import ray
from report import Report, parser

from actors.pool import PoolOptions, RolloutPool
from actors.scoring import ScoringSpec
from actors.services import Services
from actors.specs import IDLE, EngineSpec
from actors.weights.distributor import DistributorOptions, WeightDistributor
from actors.worker import LoadResult, WorkerSpec, WorkerStatus
from launch.checkpoints.checkpoint import DriverState
from launch.config.compose import compose
from launch.observe.progress import Progress
from launch.run.run import Run
from launch.run.rundir import RunDir
from launch.stages.rl_loop import rl_loop
from learners.actor import LearnerActor
from learners.group import GroupOptions, LearnerGroup, rank_specs
from learners.meeting import RankSpec
from rlsys.batch import UpdateReport
from rlsys.journal import Journal
from rlsys.summaries import summarize_group
from rlsys.system.device import DEVICES, resolve_run
from rlsys.system.weight_folder import WeightFolder, WeightManifest
from rlsys.types import (
    Completion,
    EpisodeEnd,
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
RECIPE = """
name: driver
env: {{name: calculator, train_tasks: 64, held_out_tasks: 1}}
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
MOVED = 5.0  # nats by which the start-up canary changes what is said of the probe


class ScriptedWorker:
    """Plays at once: all siblings of a group say as much."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.draw = np.random.default_rng(spec.run_seed)
        self.tokens, self.turns = (int(os.environ[name]) for name in ("BENCH_TOKENS", "BENCH_TURNS"))
        self.version = 0
        self.generated = 0

    async def start(self) -> WorkerStatus:
        return await self.ping()

    async def ping(self) -> WorkerStatus:
        return WorkerStatus(
            pid=os.getpid(), log="", version=self.version, generated_tokens=self.generated, busy_s=0.0, alive_s=1.0,
            rss_mb=1.0, engine=IDLE, tools={},
        )  # fmt: skip

    async def load_weights(self, published: WeightManifest, probe: Any) -> LoadResult:
        self.version = published.version
        return LoadResult(version=self.version, seconds=0.0, probe_logprobs=said_of(probe, self.version < 0))

    async def start_phase(self) -> str:
        return ""

    async def connect(self, addresses: Any) -> None: ...

    async def adopt(self) -> None: ...

    async def stop(self) -> None: ...

    async def run_group(self, ticket: Any, plan: Any) -> Any:
        group = Group(
            ticket=ticket,
            trajectories=tuple(self.episode(ticket.task, sibling) for sibling in range(plan.group_size)),
            worker="scripted",
        )
        return summarize_group(group), group

    def episode(self, task: Any, sibling: int) -> Trajectory:
        length = self.tokens // self.turns
        turns = [self.turn(PROMPT if index == 0 else REPLY, length, index == 0) for index in range(self.turns)]
        self.generated += length * self.turns
        value = float(sibling % 2)
        return Trajectory(
            task=task,
            sibling=sibling,
            turns=tuple(turns),
            messages=tuple(Message(role="assistant", content=turn.completion.text) for turn in turns),
            end=EpisodeEnd.ANSWERED,
            reward=Reward(value=value, parts={"correct": value}),
            timings=Timings(generate_s=1.0, tool_s=0.0, score_s=0.0),
        )

    def turn(self, added: int, length: int, first: bool) -> Turn:
        completion = Completion(
            token_ids=self.draw.integers(151_000, size=length, dtype=np.int32),
            logprobs=-self.draw.random(length, dtype=np.float32),
            spans=(VersionSpan(version=self.version, start=0, end=length),),
            stop=TurnStop.EOS,
            text="word " * (length * 4 // 5),
        )
        return Turn(
            added_ids=self.draw.integers(151_000, size=added, dtype=np.int32),
            starts_sample=first,
            completion=completion,
            reply=None,
        )


class ScriptedRank(LearnerActor):
    """Fetches and builds its rows as a rank does."""

    def start(self, spec: RankSpec, address: tuple[str, int]) -> int:
        return os.getpid()

    def measure_gbps(self) -> float:
        return 1.0

    def begin(self, model_path: str, learner: Any, algorithm: Any, **stage: Any) -> None: ...

    def update(self) -> UpdateReport:
        self._built = None
        return UpdateReport(applied=True, metrics={}, seconds=0.0)

    def logprobs(self, token_ids: Any) -> Any:
        return said_of(token_ids, False)

    def snapshot(self, folder: str, tokenizer_from: str) -> None:
        (Path(folder) / "hf").mkdir(parents=True, exist_ok=True)

    def write(self) -> None: ...

    def load(self, folder: str, optimizers_alone: bool) -> None: ...

    def export(self, folder: Any, version: int, probe: Any, perturb: bool) -> Any:
        return WeightManifest(version=version), said_of(probe, perturb)


def said_of(probe: Any, perturbed: bool) -> tuple[tuple[float, ...], ...]:
    return tuple((-1.0 - MOVED * perturbed,) * (len(ids) - 1) for ids in probe)


class Book:
    """In the place of the tracker: when each row came, and what it cost until then."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, dict[str, Any]]] = []

    def log(self, row: dict[str, Any]) -> None:
        self.rows.append((time.process_time(), time.monotonic(), row))

    def log_evaluation(self, *row: Any) -> None: ...

    def choose_episodes(self, step: int, rewards: Any) -> list[int]:
        return []

    def episodes(self, *row: Any) -> None: ...


def make_run(options: argparse.Namespace, folder: Path) -> Run:
    recipe = folder / "driver.yaml"
    asked = {name: getattr(options, name) for name in ("groups", "lag", "workers", "deadline", "steps", "keep")}
    recipe.write_text(RECIPE.format(size=GROUP, **asked))
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
        for index in range(options.workers)
    ]  # fmt: skip
    variables = {"BENCH_TOKENS": str(options.tokens), "BENCH_TURNS": str(options.turns)}
    pool = PoolOptions(
        cpus=0, gpus=0, env_vars=variables, start_timeout_s=900.0, call_timeout_s=options.deadline,
        seats=1 << 20, in_flight=1 << 20, infra_attempts=3, mismatch_limit=0.1, min_workers=1,
        placement_timeout_s=900.0,
    )  # fmt: skip
    rank = RankSpec(
        rank=0, world_size=1, master_addr="", master_port=0, device=DEVICES["cpu"], dtype="float32",
        gradient_checkpointing=False, seed=0,
    )  # fmt: skip
    ranks = GroupOptions(
        cpus=0, gpus=0, env_vars={}, start_timeout_s=900.0, call_timeout_s=900.0, ping_timeout_s=options.deadline
    )
    directory, weights = RunDir(folder / "run"), WeightFolder(folder / "versions")
    distributing = DistributorOptions(env_vars={}, start_timeout_s=900.0, fetch_timeout_s=900.0)
    given: dict[str, Any] = {
        "learner": LearnerGroup(rank_specs(rank, options.ranks), ranks, actor=ScriptedRank),
        "pool": RolloutPool(specs, pool, ScriptedWorker, WeightDistributor(weights, distributing)),
        "renderer": SimpleNamespace(prompt_ids=lambda messages: (7, 7)),
        "tracker": Book(),
        "gauges": SimpleNamespace(set=lambda row: None),
        "device": None,
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
        **given,
    )


async def go(run: Run) -> None:
    watching = asyncio.create_task(run.loop_lag.watch())
    await run.learner.start()
    run.tasks.pool_start = asyncio.create_task(run.pool.start())
    gc.collect()
    gc.freeze()  # as `launch.run.session` does
    await rl_loop(run, run.config.stages[0])
    watching.cancel()
    await run.tasks.cancel_background()
    await run.pool.stop()
    await run.learner.stop()


def measure(options: argparse.Namespace, report: Report) -> None:
    before_mb = psutil.Process().memory_info().rss / 2**20
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(options, Path(folder))
        asyncio.run(go(run))
        book: Any = run.tracker
    tokens = options.groups * GROUP * options.tokens
    slots = options.groups * (1 + options.lag) * GROUP * options.tokens
    report.head("step", "tokens", "driver, s", "tokens/s through it", "ns per token", "longest block, s", "wall, s")
    for (cpu, wall, _), (next_cpu, next_wall, row) in zip(book.rows, book.rows[1:], strict=False):
        spent, block = next_cpu - cpu, row.get("driver/longest_block_s")
        report.row(row["step"], tokens, spent, tokens / spent, 1e9 * spent / tokens, block, next_wall - wall)
    peak_mb = max(row["memory/driver_rss_mb"] for _, _, row in book.rows)
    grown = (peak_mb - before_mb) * 2**20 / slots
    report.head("workers", "open episodes", "tokens each", "turns", "declared dead", "driver's bytes per open token")
    dead = sum(run.pool.restarts.values())
    report.row(options.workers, slots // options.tokens, options.tokens, options.turns, dead, grown)


def main() -> None:
    given = parser(__doc__)
    given.add_argument("--workers", type=int, default=8)
    given.add_argument("--ranks", type=int, default=2)
    given.add_argument("--groups", type=int, default=64, help="groups of 8 episodes in a step")
    given.add_argument("--tokens", type=int, default=8192, help="sampled tokens of an episode")
    given.add_argument("--turns", type=int, default=1)
    given.add_argument("--lag", type=int, default=1, help="loop.max_policy_lag: steps of open groups after the first")
    given.add_argument("--steps", type=int, default=5)
    given.add_argument("--keep", type=int, default=1024, help="trajectories.keep: episodes of a step that are written")
    given.add_argument("--deadline", type=float, default=120.0, help="seconds that a worker has for a ping")
    given.add_argument("--store-gb", type=float, default=3.0, help="Ray's object store")
    options = given.parse_args()
    logging.getLogger("rlsys").setLevel(logging.WARNING)
    ray.init(
        address="local", num_cpus=1, object_store_memory=int(options.store_gb * 2**30), include_dashboard=False,
        log_to_driver=False,
    )  # fmt: skip
    with Report(options) as report:
        measure(options, report)
    ray.shutdown()


if __name__ == "__main__":
    main()
