"""What a token costs the driver: `python benchmarks/driver.py [--workers 8 --groups 64 --tokens 8192]`.

The driver is the real one: the loop of an rl stage, pool, buffer, learner group, Ray. Workers and ranks are scripted: a
worker has its episodes ready, a rank makes its rows and learns nothing. So whatever time there is, is the driver's and
Ray's. Tokens per second are of the driver's processor time, all of its threads, so that neither the scripted parts nor
other work on the machine count. The first step, and what the stage begins with, are left out. `--hosts 4`: all workers
are in four actors, since a machine has no room for a thousand processes; the driver knows a thousand.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import ray
from report import Report, parser
from scripted import Script, go, make_run, start_ray

import actors.pool
from actors.worker_registry import create

ASKED = ("workers", "ranks", "groups", "size", "tasks", "tokens", "turns", "lag", "steps", "keep", "deadline")


class Hosts:
    """Actors of which each stands for many workers."""

    def __init__(self, count: int) -> None:
        self.count, self.actors = count, dict[int, Any]()

    def create(self, actor_class: type, options: Any, worker: Any) -> Any:
        place = int(worker.spec.name.partition(":")[2]) % self.count
        if place not in self.actors:
            self.actors[place] = create(actor_class, options, worker)
        return self.actors[place]


def measure(options: argparse.Namespace, report: Report) -> None:
    if options.hosts:
        vars(actors.pool)["create"] = Hosts(options.hosts).create
    before_mb = psutil.Process().memory_info().rss / 2**20
    book: list[tuple[float, float, dict[str, Any]]] = []  # when each row came, and what it cost until then
    script = Script(**{name: getattr(options, name) for name in ASKED})
    with tempfile.TemporaryDirectory() as folder:
        run = make_run(script, Path(folder), lambda row: book.append((time.process_time(), time.monotonic(), row)))
        asyncio.run(go(run))
    tokens = options.groups * options.size * options.tokens
    slots = options.groups * (1 + options.lag) * options.size * options.tokens
    report.head(
        "step",
        "tokens",
        "driver, s",
        "tokens/s through it",
        "ns per token",
        "ms per group",
        "longest block, s",
        "wall, s",
        "driver, MiB",
    )
    for (cpu, wall, _), (next_cpu, next_wall, row) in zip(book, book[1:], strict=False):
        spent, block = next_cpu - cpu, row.get("driver/longest_block_s")
        each_ms = 1e3 * spent / options.groups
        rss_mb = row["memory/driver_rss_mb"]
        report.row(
            row["step"], tokens, spent, tokens / spent, 1e9 * spent / tokens, each_ms, block, next_wall - wall, rss_mb
        )
    peak_mb = max(row["memory/driver_rss_mb"] for _, _, row in book)
    grown = (peak_mb - before_mb) * 2**20 / slots
    report.head(
        "workers",
        "open episodes",
        "tokens each",
        "turns",
        "declared dead",
        "driver's bytes per open token",
        "MiB it grew",
    )
    dead = sum(run.pool.restarts.values())
    report.row(
        options.workers, slots // options.tokens, options.tokens, options.turns, dead, grown, peak_mb - before_mb
    )


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--workers", type=int, default=8)
    cli.add_argument("--hosts", type=int, default=0, help="actors that all workers are in; 0: each is its own")
    cli.add_argument("--ranks", type=int, default=2)
    cli.add_argument("--groups", type=int, default=64, help="groups in a step")
    cli.add_argument("--size", type=int, default=8, help="episodes of a group")
    cli.add_argument("--tasks", type=int, default=64, help="that the prompts are drawn from")
    cli.add_argument("--tokens", type=int, default=8192, help="sampled tokens of an episode")
    cli.add_argument("--turns", type=int, default=1)
    cli.add_argument("--lag", type=int, default=1, help="loop.max_policy_lag: steps of open groups after the first")
    cli.add_argument("--steps", type=int, default=5)
    cli.add_argument("--keep", type=int, default=1024, help="trajectories.keep: episodes of a step that are written")
    cli.add_argument("--deadline", type=float, default=120.0, help="seconds that a worker has for a ping")
    cli.add_argument("--store-gb", type=float, default=3.0, help="Ray's object store")
    options = cli.parse_args()
    logging.getLogger("rlsys").setLevel(logging.WARNING)
    start_ray(options.store_gb)
    with Report(options) as report:
        measure(options, report)
    ray.shutdown()


if __name__ == "__main__":
    main()
