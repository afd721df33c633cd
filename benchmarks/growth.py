"""What grows with a run, in its driver: `python benchmarks/growth.py [--prompts 100000 1000000]`, three minutes.

Without Ray, engines or a learner: the files of episodes whose answers grow, the admission of groups by so many workers,
and the journal of a run of so many prompts when it is opened, summed up and audited. Files are measured in a process of
their own: memory is the most that it held beyond what it began with. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import Report, parser

from actors.worker_registry import State, WorkerRecord, WorkerRegistry
from launch.driver.run.episodes import EpisodeFiles, Played
from launch.run_dir.names import METRICS, metrics_line_name
from launch.tools.audit.files import read_run
from launch.tools.audit.properties import CHEAP
from rlsys.config.output import TrajectoriesConfig
from rlsys.journal import Journal, count_prompts
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Group,
    Message,
    Reward,
    Task,
    Ticket,
    Timings,
    Trajectory,
    Turn,
    TurnStop,
    VersionSpan,
)

GROUP, VOCABULARY = 8, 151_000
GROUPS_PER_STEP = 64


def measure_in_subprocess(work: Callable[..., Any], *arguments: Any) -> tuple[float, float, Any]:
    """(seconds, MiB, what it returned) of the work in a process that ends with it."""
    ours, theirs = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        began_mb, began = psutil.Process().memory_info().rss / 2**20, time.process_time()
        result = work(*arguments)
        seconds = time.process_time() - began
        theirs.send((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10 - began_mb, result))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    theirs.close()
    usage: tuple[float, float, Any] = ours.recv()
    process.join()
    return usage


def made_group(sequence: int, tokens: int) -> Group:
    draw = np.random.default_rng(sequence)

    def trajectory(sibling: int) -> Trajectory:
        completion = Completion(
            token_ids=draw.integers(VOCABULARY, size=tokens, dtype=np.int32),
            logprobs=-draw.random(tokens, dtype=np.float32),
            spans=(VersionSpan(version=1, start=0, end=tokens),),
            stop=TurnStop.EOS,
            text="word " * (tokens * 4 // 5),
        )
        turn = Turn(added_ids=np.arange(300, dtype=np.int32), starts_sample=True, completion=completion, reply=None)
        return Trajectory(
            task=task,
            sibling=sibling,
            turns=(turn,),
            messages=(Message(role="assistant", content=completion.text),),
            end=EpisodeEnd.ANSWERED,
            reward=Reward(value=1.0, parts={"correct": 1.0}),
            timings=Timings(generate_s=1.0, tool_s=0.0, score_s=0.0),
        )

    task = Task(task_id=f"task-{sequence}", question="?")
    ticket = Ticket(sequence=sequence, epoch=0, task=task, attempt=0, start_version=1)
    return Group(ticket=ticket, trajectories=tuple(map(trajectory, range(GROUP))), worker="made")


def make_groups(groups: int, tokens: int) -> None:
    """The part of `write_episodes` that makes groups, without writing them."""
    for number in range(groups):
        made_group(number, tokens)


def write_episodes(folder: Path, groups: int, tokens: int) -> None:
    """As they come: each group is made, written and forgotten, as the driver gets it from its worker."""
    config, played = TrajectoriesConfig(), Played(step=1, stage="rl")
    new_groups = (made_group(number, tokens) for number in range(groups))
    EpisodeFiles(folder).save(f"step-{tokens}", new_groups, {}, config, played)


def measure_episodes(report: Report, options: argparse.Namespace) -> None:
    report.head("tokens of an answer", "answers", "seconds", "us a token", "MiB", "bytes a token of the file")
    for tokens in options.tokens:
        groups = max(1, options.written // (GROUP * tokens))
        with tempfile.TemporaryDirectory() as folder:
            making_s, _, _ = measure_in_subprocess(make_groups, groups, tokens)
            seconds, peak, _ = measure_in_subprocess(write_episodes, Path(folder), groups, tokens)
        num_tokens = groups * GROUP * tokens
        seconds -= making_s
        report.row(tokens, groups * GROUP, seconds, 1e6 * seconds / num_tokens, peak, peak * 2**20 / num_tokens)


def make_run(folder: Path, prompts: int) -> None:
    """A run that is done: one journal of `prompts` groups, and a row for each step."""
    journal = Journal(folder / "journal.jsonl")
    tasks = [Task(task_id=f"word-{number:012x}", question="?") for number in range(prompts)]
    with (folder / METRICS).open("w") as rows:
        for step in range(1, 1 + prompts // GROUPS_PER_STEP):
            block = range((step - 1) * GROUPS_PER_STEP, step * GROUPS_PER_STEP)
            for sequence in block:
                ticket = Ticket(sequence=sequence, epoch=0, task=tasks[sequence], attempt=0, start_version=step)
                journal.dispatch("rl", ticket)
            for sequence in block:
                journal.outcome("rl", sequence, "trained" if sequence % 4 else "filtered", step=step)
            rows.write(json.dumps({"step": step, "stage": "rl", "version": step + 1}) + "\n")
            journal.seal(metrics_line_name(step), "0" * 16)
    journal.close()


def open_journal(path: Path) -> None:
    Journal(path, keep=None).close()


def audit_run(folder: Path) -> None:
    looked = read_run(folder)
    for name in ("journal", "prompts", "epochs", "rows"):
        CHEAP[name](looked, lambda message: None)


def measure_journal(report: Report, options: argparse.Namespace) -> None:
    report.head("prompts", "MiB of the journal", "open, s", "MiB", "sum up, s", "MiB", "audit, s", "MiB")
    for prompts in options.prompts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "config.yaml").write_text("name: made\nstages: [{name: rl, kind: rl}]\n")
            make_run(folder, prompts)
            path = folder / "journal.jsonl"
            size = path.stat().st_size / 2**20
            opened, summed = (
                measure_in_subprocess(open_journal, path),
                measure_in_subprocess(count_prompts, path, prompts),
            )
            audited = measure_in_subprocess(audit_run, folder)
        report.row(prompts, size, *opened[:2], *summed[:2], *audited[:2])


async def admit(workers: int, groups: int, rounds: int) -> float:
    """Milliseconds of the processor for a group that leaves and one that takes its place; all workers are full."""
    nobody: Any = SimpleNamespace(handle=None)
    records = [WorkerRecord(spec=nobody, life=nobody, state=State.READY) for _ in range(workers)]
    per_worker = -(-groups // workers)
    registry = WorkerRegistry(records, per_worker * GROUP)
    playing = [await registry.admit(GROUP) for _ in range(workers * per_worker)]
    began = time.process_time()
    for number in range(rounds):
        await registry.leave(playing[number % len(playing)])
        playing[number % len(playing)] = await registry.admit(GROUP)
    return 1e3 * (time.process_time() - began) / rounds


def measure_admission(report: Report, options: argparse.Namespace) -> None:
    report.head("workers", "open groups", "ms for one that leaves and one that begins", "s a step of 4,000 groups")
    for workers in options.workers:
        took = asyncio.run(admit(workers, options.groups, 2000))
        report.row(workers, max(options.groups, workers), took, 4000 * took / 1e3)


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--tokens", type=int, nargs="*", default=[8192, 32768, 131072], help="of an answer")
    cli.add_argument("--written", type=int, default=2**23, help="tokens in a file of episodes")
    cli.add_argument("--prompts", type=int, nargs="*", default=[100_000, 1_000_000])
    cli.add_argument("--workers", type=int, nargs="*", default=[8, 64, 256, 1000])
    cli.add_argument("--groups", type=int, default=4000, help="open at the same time")
    options = cli.parse_args()
    with Report(options) as report:
        measure_episodes(report, options)
        measure_admission(report, options)
        measure_journal(report, options)


if __name__ == "__main__":
    main()
