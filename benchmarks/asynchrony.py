"""What asynchrony saves: `python benchmarks/asynchrony.py [--smallest]`, an rl stage under lag 0, 1, 2 and 4.

The loop, pool, buffer, journal, learner group and Ray are the real ones (`scripted.py`). Episodes sleep for as long as
their tokens would take on a seat of an engine, with lognormal lengths whose 99th percentile is ten times the median;
an update sleeps too. All points play the same groups. A step is mostly sleeping, so that two shared cores measure it.

A step takes at least as long as the slower side needs alone: the learner its update, the engines the step's tokens with
every seat taken. That is the ceiling. Measured are the steps in the middle of a run, while the pipeline is full: the
first `EDGE` fill it, and in the last ones there is nothing left to begin. `launch/tools/plan/simulate.py` predicts
the same steps from the script alone.

`--variant first-come` and `--variant discarding` put, under lag 1, a buffer in the place of the real one that waits for
no late group, and one that throws away what is older than the bound; they join the results that are there. The first
breaks the bound, the second leaves long episodes out, which the test of lengths shows after ten times as many steps.
That both fail that test where enough is left out, is shown in the simulation too
(`tests/unit/launch/tools/audit/test_lengths.py`).

Writes the numbers into `docs/asynchrony.json` and draws `docs/asynchrony.svg`; `--draw` takes what is there, and
`--predict` prints the simulation alone, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest import mock

import ray
import study
from report import Report, parser
from scripted import GROUP, Script, broken_tokens, go, make_run, start_ray
from study import ROOT

from launch.tools.analysis.draw import COLOURS
from launch.tools.audit.files import read_run
from launch.tools.audit.lengths import compare_lengths
from launch.tools.audit.properties import CERTAIN, FATES, audit
from launch.tools.plan.simulate import Episode, Setting, StepCost, simulate
from rlsys.buffer import SlotBuffer
from rlsys.files import replace_file
from rlsys.journal import Dispatched, Finished, read_surviving

RESULTS = ROOT / "docs" / "asynchrony.json"
EDGE = 4  # steps at either end of a run that are not measured
DEFAULT = Script(
    workers=2, groups=32, steps=24, tokens=200, sigma=math.log(10) / 2.3263, token_s=0.0008, update_s=1.75,
    seats=16, in_flight=128, dull=0.1, failing=0.02, keep=1 << 20,
)  # fmt: skip
SMALLEST = replace(DEFAULT, groups=8, steps=12, token_s=0.0004, update_s=0.8, seats=8, workers=1)
FEW = "4, few in flight"  # episodes of a worker: twice its seats, what rollout.in_flight=null means
LAGS = {"0": 0, "1": 1, "2": 2, "4": 4, FEW: 4}

Point = dict[str, Any]
Points = Mapping[str, Point]


def error(point: Point) -> float:
    return float(point["predicted_s"] / point["step_s"] - 1)


# Written before the first run of the default setting, with the simulation's own numbers known.
PREDICTIONS: tuple[tuple[str, Callable[[Points, float], bool]], ...] = (
    ("lag 4 is at least 2.0 times as fast as lag 0", lambda of, _: of["0"]["step_s"] >= 2 * of["4"]["step_s"]),
    ("lag 4 has at least 0.9 of the ceiling", lambda of, ceiling: ceiling >= 0.9 * of["4"]["step_s"]),
    (
        "the simulation is within 15 % at every point",
        lambda of, _: all(abs(error(point)) <= 0.15 for point in of.values()),
    ),
    ("no step of any point is beyond its lag", lambda of, _: all(of[name]["lag"] <= LAGS[name] for name in of)),
    ("generated tokens are accounted for to the last one", lambda of, _: all(point["closes"] for point in of.values())),
    (
        f"lengths of trained and of other episodes do not differ (p >= {CERTAIN:g})",
        lambda of, _: all(point["p"] >= CERTAIN for point in of.values()),
    ),
    ("the audit finds nothing", lambda of, _: not any(point["offenders"] for point in of.values())),
)


class FirstCome(SlotBuffer):
    """A step waits for no late group, and there is always another one to begin."""

    def __init__(self, *, total: int, **setting: Any) -> None:
        super().__init__(total=1 << 40, **setting)

    def _ready(self, version: int) -> bool:
        return len(self._finished) >= self.groups_per_step


class Discarding(FirstCome):
    """The same, and what has become too old is thrown away."""

    def _ready(self, version: int) -> bool:
        for sequence, group in list(self._finished.items()):
            if group.ticket.start_version < version - self.max_policy_lag:
                del self._finished[sequence]
                self._free += 1
                self._changed.notify_all()
        return super()._ready(version)


VARIANTS = {"first-come": (FirstCome, 24), "discarding": (Discarding, 240)}  # and steps


def ceiling_of(script: Script) -> float:
    """Seconds that a step takes at least, whatever the lag."""
    tokens = fmean(sum(script.lengths(sequence)) for sequence in range(script.steps * script.groups)) * script.groups
    return max(script.update_s, tokens * script.token_s / (script.workers * script.seats))


def middle(seconds: list[float], script: Script) -> float:
    edge = EDGE if script.steps > 4 * EDGE else script.steps // 4
    return fmean(seconds[edge:-edge])


def predict(script: Script) -> list[float]:
    """Seconds of each step, from the script alone: what driver and Ray take is in no number."""
    setting = Setting(
        groups_per_step=script.groups, group_size=GROUP, max_policy_lag=script.lag, workers=script.workers,
        seats=script.seats, in_flight=script.in_flight, base_s=script.token_s, each_s=0.0,
    )  # fmt: skip
    sequence = count()
    steps = simulate(
        setting,
        lambda _: [Episode(tokens=tokens) for tokens in script.lengths(next(sequence))],
        lambda _: StepCost(update_s=script.update_s),
        steps=script.steps,
        skip=0,
        total=script.steps * script.groups,
    )
    return [step.seconds for step in steps]


def measure(script: Script, variant: type[SlotBuffer] | None = None) -> Point:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        with mock.patch("launch.driver.stages.rl_loop.SlotBuffer", variant or SlotBuffer):
            run = make_run(script, folder)
            asyncio.run(go(run))
        run.journal.close()
        run.dir.close()
        rows = study.rows(folder / "run", "metrics")
        seconds = [row["time/step"] for row in rows]
        offenders = [
            f"{check.name}: {offender}" for check in audit(read_run(folder / "run")) for offender in check.offenders
        ]
        predicted = predict(script)
        return {
            "step_s": middle(seconds, script),
            "predicted_s": middle(predicted, script),
            "whole_s": sum(seconds),
            "predicted_whole_s": sum(predicted),
            "lag": max(row["lag/max"] for row in rows),
            "offenders": offenders,
            **account(script, folder / "run", rows),
        }


def account(script: Script, folder: Path, rows: list[dict[str, Any]]) -> Point:
    """What became of each token that the script has sampled, and of which lengths the trained episodes are."""
    journal = list(read_surviving(folder / "journal.jsonl"))
    dispatched = {row.sequence for row in journal if isinstance(row, Dispatched)}
    ended = {row.sequence for row in journal if isinstance(row, Finished)}
    lengths = {(sequence, i): length for sequence in dispatched for i, length in enumerate(script.lengths(sequence))}
    broken = {key: broken_tokens(length) for key, length in lengths.items() if key[1] % 2 and script.fails(*key)}
    fates = {says: sum(row[f"tokens/{name}"] for row in rows) for name, says in FATES.items()}
    fates["discarded"] = sum(row["tokens/discarded"] for row in rows)
    open_ones = {key for key in lengths if key[0] not in ended}
    fates["in flight or thrown away"] = sum(lengths[key] + broken.get(key, 0) for key in open_ones)
    generated = sum(lengths.values()) + sum(broken.values())
    trained = {
        (episode["sequence"], episode["sibling"]): episode["num_tokens"]
        for episode in study.episodes(folder, "step-*")
        if episode["advantage"] is not None and "failure" not in episode
    }
    untrained = [length for key, length in lengths.items() if key not in trained]
    test = compare_lengths(list(trained.values()), untrained)
    return {
        "generated": generated,
        "fates": {says: round(tokens) for says, tokens in fates.items() if tokens},
        "closes": generated == sum(fates.values()) and all(lengths[key] == tokens for key, tokens in trained.items()),
        "p": test.p,
        "trained_mean": test.trained_mean,
        "played_mean": test.played_mean,
        "left_out": test.left_out,
    }


def scripts_of(script: Script) -> dict[str, Script]:
    """Of each point of the sweep."""
    few = 2 * script.seats
    return {name: replace(script, lag=lag, **({"in_flight": few} if name == FEW else {})) for name, lag in LAGS.items()}


def tell_prediction(report: Report, script: Script) -> None:
    ceiling, predicted = ceiling_of(script), {name: predict(setting) for name, setting in scripts_of(script).items()}
    first = middle(predicted["0"], script)
    report.head("loop.max_policy_lag", "a step, simulated, s", "to lag 0", "of the ceiling", "whole stage, s")
    for name, seconds in predicted.items():
        step = middle(seconds, script)
        report.row(name, step, f"{first / step:.2f}x", ceiling / step, sum(seconds))
    report.note(f"The ceiling is {ceiling:.2f} s a step.")


@contextmanager
def own_cluster() -> Iterator[None]:
    logging.getLogger("rlsys").setLevel(logging.WARNING)
    start_ray(1.0)
    try:
        yield
    finally:
        ray.shutdown()


def sweep(script: Script) -> dict[str, Any]:
    points = {}
    with own_cluster():
        for name, setting in scripts_of(script).items():
            points[name] = measure(setting)
            print(f"  lag {name}: {points[name]['step_s']:.2f} s a step", file=sys.stderr, flush=True)
    ceiling = ceiling_of(script)
    return {
        "format": 1,
        "setting": asdict(script),
        "ceiling_s": ceiling,
        "points": points,
        "variants": {},
        "predictions": [{"text": text, "holds": bool(holds(points, ceiling))} for text, holds in PREDICTIONS],
    }


def measure_variants(results: Mapping[str, Any], names: Sequence[str]) -> Points:
    """With the setting of the results that they join."""
    script = Script(**results["setting"])
    with own_cluster():
        return {name: measure(replace(script, lag=1, steps=VARIANTS[name][1]), VARIANTS[name][0]) for name in names}


def tell(report: Report, results: Mapping[str, Any]) -> None:
    ceiling, points = results["ceiling_s"], results["points"]
    first = points["0"]["step_s"]
    report.head(
        "loop.max_policy_lag", "a step, s", "to lag 0", "of the ceiling", "simulated, s", "error", "whole stage, s",
        "simulated", "largest lag",
    )  # fmt: skip
    for name, point in points.items():
        took, stage_s = point["step_s"], (point["whole_s"], point["predicted_whole_s"])
        report.row(
            name, took, f"{first / took:.2f}x", ceiling / took, point["predicted_s"], f"{error(point):+.0%}", *stage_s,
            str(point["lag"]),
        )  # fmt: skip
    report.note(f"The ceiling is {ceiling:.2f} s a step.")
    report.head("lag", "tokens generated", "are", "closes", "episodes left out", "p", "trained, tokens", "all", "audit")
    for name, point in {**points, **results["variants"]}.items():
        parts = " + ".join(f"{tokens:,} {says}" for says, tokens in point["fates"].items())
        lengths = (f"{point['trained_mean']:.1f}", f"{point['played_mean']:.1f}")
        closes = "yes" if point["closes"] else "no"
        audited = f"{len(point['offenders'])} offenders" if point["offenders"] else "ok"
        report.row(name, point["generated"], parts, closes, point["left_out"], f"{point['p']:.2g}", *lengths, audited)
    report.head("predicted before the runs", "holds")
    for prediction in results["predictions"]:
        report.row(prediction["text"], "yes" if prediction["holds"] else "no")


def draw(results: Mapping[str, Any], path: Path) -> None:
    names, points = list(LAGS), results["points"]
    note = "scripted engines and learner; lognormal lengths, p99 is ten times the median; dashed: the ceiling"
    with study.picture(path, "What loop.max_policy_lag saves", note) as (left, right):
        at = range(len(names))
        left.bar(at, [points[name]["step_s"] for name in names], color=COLOURS[0], width=0.6, label="measured")
        predicted = [points[name]["predicted_s"] for name in names]
        left.scatter(at, predicted, color=COLOURS[1], zorder=3, label="simulated")
        left.axhline(results["ceiling_s"], color="#555", linestyle="--", linewidth=1)
        left.set(ylabel="seconds of a step", xticks=at, xticklabels=[name.replace(", ", ",\n") for name in names])
        share = [results["ceiling_s"] / points[name]["step_s"] for name in names]
        right.bar(at, share, color=COLOURS[2], width=0.6)
        right.axhline(1, color="#555", linestyle="--", linewidth=1)
        right.set(ylabel="share of the ceiling's speed", ylim=(0, 1.05), xticks=at)
        right.set_xticklabels([name.replace(", ", ",\n") for name in names])


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--smallest", action="store_true", help="few and short steps: a minute, and nothing to publish")
    cli.add_argument("--variant", nargs="+", default=[], choices=VARIANTS, help="buffers that do not keep the rule")
    cli.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="where the numbers are written")
    cli.add_argument("--draw", action="store_true", help="run nothing, take what the results have")
    cli.add_argument("--predict", action="store_true", help="the simulation alone, in seconds")
    options = cli.parse_args()
    if options.draw and options.variant:
        cli.error("--draw runs nothing: give --variant without it")
    script = SMALLEST if options.smallest else DEFAULT
    if options.predict:
        with Report(options) as report:
            tell_prediction(report, script)
        return
    joins = options.draw or options.variant
    if joins and not options.results.is_file():
        sys.exit(f"error: {options.results}: no results; expected: those of a run without --draw and --variant")
    results = json.loads(options.results.read_text()) if joins else sweep(script)
    if options.variant:
        results["variants"] |= measure_variants(results, options.variant)
    if not options.draw:
        replace_file(options.results, json.dumps(results, indent=1) + "\n")
    draw(results, options.results.with_suffix(".svg"))
    with Report(options) as report:
        tell(report, results)


if __name__ == "__main__":
    main()
