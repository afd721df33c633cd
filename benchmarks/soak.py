"""Whether memory is flat: `python benchmarks/soak.py [--minutes 15] [--smallest]`, the driver at its highest rate.

The loop, pool, buffer, journal, learner group and Ray are the real ones, workers and ranks are scripted and wait for
nothing (`scripted.py`): as many steps and episodes as the driver can take. Every few seconds the resident memory of
driver and actors, the bytes in Ray's object store and the open groups of the buffer are looked at. After the first
quarter of the time, in which caches fill, a line is fitted to the means of ten equal parts of the rest: what grows by
more than 3 % of its level in that time, with its 95 % interval above 0, `grows`; all else is flat.

In the same run the seconds of the driver are added up that go into what matters only when something fails: the chain of
the journal, the digests of rows and files, the signs of health, and the journal's fsync, which waits for the disk and
is counted apart. At this rate a step is short; the milliseconds of a step are the same where it is long.

Writes the numbers into `docs/soak.json`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import pkgutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import psutil
import ray
from ray._private.internal_api import get_memory_info_reply, get_state_from_address
from report import Report, parser
from scripted import Script, go, make_run, start_ray
from study import ROOT

from launch.driver.run.run import Run
from launch.driver.run.tasks import StopRequested
from rlsys.files import replace_file

RESULTS = ROOT / "docs" / "soak.json"
PARTS = 10  # of the time after the first quarter
STUDENT = 2.306  # of a t-distribution with PARTS - 2 degrees of freedom, 95 %
MOST = 0.03  # of its level that a flat quantity may grow by
ENDLESS = 1_000_000
GUARDS = {  # what costs time and matters only when something fails: where it is looked up, and what it is
    "rlsys.journal.append_chain_digest": "chain of the journal",
    "launch.driver.run.rundir.digest_of": "digests of rows",
    "rlsys.journal.Journal.commit": "fsync of the journal",
    "launch.driver.observe.health.HealthMonitor.see": "signs of health",
}
SYNCED = "fsync of the journal"
Sample = dict[str, float]


class Watch:
    """A sample every `every_s` seconds, until the time is over; then the run is asked to stop."""

    def __init__(self, minutes: float) -> None:
        self.seconds, self.every_s = minutes * 60, max(1.0, minutes / 3)
        self.samples: list[Sample] = []
        self.steps, self.begun = 0, asyncio.Event()
        self.store = get_state_from_address(ray.get_runtime_context().gcs_address)

    async def watch(self, run: Run) -> None:
        await self.begun.wait()
        began, driver = time.monotonic(), psutil.Process()
        while (at := time.monotonic() - began) < self.seconds:
            self.samples.append({"s": at, "step": float(self.steps), **await asyncio.to_thread(self.look, driver)})
            groups = run.active.groups
            self.samples[-1]["open groups"] = float(len(groups.buffer.open_tickets)) if groups else 0.0
            await asyncio.sleep(self.every_s)
        run.tasks.request_stop()

    def look(self, driver: psutil.Process) -> Sample:
        sample = {"driver, MB": driver.memory_info().rss / 1e6}
        for name, pids in actors().items():
            sample[f"{name}, MB"] = sum(psutil.Process(pid).memory_info().rss for pid in pids) / 1e6
        sample["object store, MB"] = get_memory_info_reply(self.store).store_stats.object_store_bytes_used / 1e6
        return sample


def actors() -> Mapping[str, list[int]]:
    """Processes of this machine's actors by class. Ray names them `ray::Class` or, in a call, `ray::Class.method`."""
    pids: dict[str, list[int]] = defaultdict(list)
    for process in psutil.process_iter(["cmdline"]):
        title = " ".join(process.info["cmdline"] or ())
        if title.startswith("ray::Scripted"):
            pids[title.removeprefix("ray::").split(".")[0].split()[0]].append(process.pid)
    return pids


@contextmanager
def timed(spent: dict[str, float]) -> Iterator[None]:
    """While it lasts, the seconds in each of GUARDS are added up."""
    with ExitStack() as stack:
        for place, name in GUARDS.items():
            stack.enter_context(mock.patch(place, counted(pkgutil.resolve_name(place), name, spent)))
        yield


def counted(call: Callable[..., Any], name: str, spent: dict[str, float]) -> Callable[..., Any]:
    def measure(*args: Any, **kwargs: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - began

    return measure


def fit(samples: Sequence[Sample], key: str) -> dict[str, Any]:
    """The line through the means of PARTS parts of the time after its first quarter."""
    end = samples[-1]["s"]
    begin = end / 4
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for sample in samples:
        if sample["s"] >= begin and key in sample:
            parts[min(PARTS - 1, int(PARTS * (sample["s"] - begin) / (end - begin)))].append(sample[key])
    points = [(number + 0.5, fmean(values)) for number, values in enumerate(parts) if values]
    centre, level = fmean(at for at, _ in points), fmean(value for _, value in points)
    spread = sum((at - centre) ** 2 for at, _ in points)
    slope = sum((at - centre) * (value - level) for at, value in points) / spread
    residual = sum((value - level - slope * (at - centre)) ** 2 for at, value in points)
    error = STUDENT * math.sqrt(residual / (len(points) - 2) / spread)
    low, high = (PARTS * (slope + sign * error) for sign in (-1, 1))
    growth = PARTS * slope
    return {
        "level": level,
        "growth": growth,
        "interval": [low, high],
        "verdict": "grows" if low > 0 and growth > MOST * level else "flat",
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    script = Script(workers=2, groups=32, tokens=256, lag=1, steps=ENDLESS, keep=64)
    watch, spent = Watch(options.minutes), dict[str, float]()

    def note(row: dict[str, Any]) -> None:
        watch.steps = row["step"]
        watch.begun.set()

    async def play(run: Run) -> None:
        watching = asyncio.create_task(watch.watch(run))
        with suppress(StopRequested):
            await go(run)
        await watching

    with tempfile.TemporaryDirectory() as folder, timed(spent):
        run = make_run(script, Path(folder), note)
        asyncio.run(play(run))
    samples = watch.samples
    steps, seconds = samples[-1]["step"] - samples[0]["step"], samples[-1]["s"]
    step_ms = 1000 * seconds / steps
    keys = [key for key in samples[-1] if key not in ("s", "step")]
    return {
        "format": 1,
        "minutes": seconds / 60,
        "steps": steps,
        "episodes_per_s": steps * script.groups * 8 / seconds,
        "step_ms": step_ms,
        "memory": {key: fit(samples, key) for key in keys},
        "guards_ms": {name: 1000 * total / watch.steps for name, total in spent.items()},
        "samples": samples,
    }


def tell(report: Report, results: Mapping[str, Any]) -> None:
    rate, step = results["episodes_per_s"], results["step_ms"]
    report.note(f"{results['minutes']:.1f} minutes, {results['steps']:,.0f} steps, {rate:,.0f} episodes a second")
    report.head("quantity", "level", "growth after the first quarter", "95 % interval", "verdict")
    for key, trend in results["memory"].items():
        low, high = trend["interval"]
        report.row(key, trend["level"], f"{trend['growth']:+.2f}", f"{low:+.2f} to {high:+.2f}", trend["verdict"])
    report.head("guard", "ms of a step", "share of a step at this rate")
    guards = results["guards_ms"]
    rows = {**guards, "all but the fsync": sum(ms for name, ms in guards.items() if name != SYNCED)}
    for name, ms in rows.items():
        report.row(name, ms, f"{ms / step:.2%}")


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--minutes", type=float, default=15.0)
    cli.add_argument("--smallest", action="store_true", help="one minute, too short for a verdict to publish")
    cli.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where the numbers are written")
    options = cli.parse_args()
    options.minutes = 1.0 if options.smallest else options.minutes
    logging.getLogger("rlsys").setLevel(logging.WARNING)
    start_ray(0.5)
    results = measure(options)
    ray.shutdown()
    replace_file(options.results, json.dumps(results, indent=1) + "\n")
    with Report(options) as report:
        tell(report, results)


if __name__ == "__main__":
    main()
