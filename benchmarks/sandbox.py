"""Executions per second of the Python sandbox: `python benchmarks/sandbox.py [--workers 2] [--seconds 5]`.

Prints one line per choice of loaded packages: a fork costs more the more memory the worker holds.
"""

from __future__ import annotations

import asyncio
import statistics
import time

import psutil
from report import Report, parser

from envs.tools.sandbox import Sandbox, SandboxConfig

CODE = "print(1+1)"


async def measure(config: SandboxConfig, seconds: float) -> tuple[float, ...]:
    """Executions per second, ms of one alone, seconds to start, MiB a worker."""
    sandbox = Sandbox(config)
    began = time.perf_counter()
    await sandbox.start()
    start_s = time.perf_counter() - began
    try:
        latencies: list[float] = []
        end = time.perf_counter() + seconds

        async def caller() -> None:
            while (called := time.perf_counter()) < end:
                result = await sandbox.run(CODE)
                assert result.text == "2", result
                latencies.append(time.perf_counter() - called)

        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(2 * config.num_workers)))
        rate = len(latencies) / (time.perf_counter() - began)
        alone = [await timed(sandbox) for _ in range(50)]
        memory = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True)) / 2**20
        return rate, 1000 * statistics.median(alone), start_s, memory / config.num_workers
    finally:
        await sandbox.close()


async def timed(sandbox: Sandbox) -> float:
    began = time.perf_counter()
    await sandbox.run(CODE)
    return time.perf_counter() - began


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--workers", type=int, default=2)
    cli.add_argument("--seconds", type=float, default=5.0)
    options = cli.parse_args()
    standard = [name for name in SandboxConfig().preload if name not in ("numpy", "sympy")]
    with Report(options) as report:
        report.head("loaded", "per second", "ms alone (median)", "s to start", "MiB per worker")
        for title, preload in (("default", SandboxConfig().preload), ("no numpy, sympy", standard), ("nothing", [])):
            config = SandboxConfig(workers=options.workers, preload=preload)
            report.row(title, *asyncio.run(measure(config, options.seconds)))
        report.note(f"{options.workers} workers, code: {CODE}")


if __name__ == "__main__":
    main()
