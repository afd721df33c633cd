"""What a curriculum saves: `python benchmarks/curriculum.py [--seeds 0 1 2] [--runs DIR]`, the same accuracy sooner.

For each seed the quickstart's first stage teaches, and from the weights that it leaves the second trains with each way
of drawing tasks, evaluated on held-out tasks every few steps. Compared are the seconds, the tokens that engines sampled
and the steps until the sampled answers reach a given accuracy, as ratios to `uniform` of the same seed. The machine
should do nothing else meanwhile. Runs that are done are not repeated. Writes every run's numbers into
`docs/curriculum.json` and draws `docs/curriculum.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import study
from report import Report
from study import ROOT, spread

from launch.tools.analysis.draw import COLOURS
from launch.tools.report.over_seeds import average_changes

RESULTS = ROOT / "docs" / "curriculum.json"
FIRST = "uniform"
RUNS = {FIRST: [], "difficulty": ["curriculum.name=difficulty"], "oversample": ["loop.oversample=3"]}
COSTS = {"seconds": "time/step", "tokens sampled": "tokens/generated"}
SIGNAL = "groups with a signal, a step"
TARGETS = (0.7, 0.8, 0.85)
EVERY = 3  # steps


def curve(folder: Path) -> list[dict[str, float]]:
    """By evaluation: held-out accuracy of sampled answers, and what the steps up to there took."""
    steps = [row for row in study.rows(folder, "metrics") if row["stage"] == "rl"]
    points = []
    for row in study.rows(folder, "evaluations"):
        if row["stage"] == "rl":
            before = [step for step in steps if step["step"] <= row["step"]]
            costs = {name: sum(step[key] for step in before) for name, key in COSTS.items()}
            point = {"accuracy": row["sampled/accuracy"], "steps": len(before)} | costs
            if before:
                point[SIGNAL] = sum(step["groups/trained"] for step in before) / len(before)
            points.append(point)
    return points


def reach(points: list[dict[str, float]], target: float, cost: str) -> float | None:
    """The cost until the curve reaches that accuracy, interpolated between two evaluations; None if it never does."""
    for before, after in zip([None, *points], points, strict=False):
        if after["accuracy"] >= target:
            if before is None:  # it began there
                return None
            part = (target - before["accuracy"]) / (after["accuracy"] - before["accuracy"])
            return before[cost] + part * (after[cost] - before[cost])
    return None


def play_seed(seed: int, runs: Path) -> study.Arms:
    """Each way of drawing tasks, from the weights that this seed's first run left."""
    folders = study.train_from_taught(seed, runs, RUNS, [f"eval.every={EVERY}"])
    return {name: curve(folder) for name, folder in folders}


def _mean_of_all(costs: list[float | None]) -> float | None:
    """None where a run never reached the target."""
    reached = [cost for cost in costs if cost is not None]
    return statistics.mean(reached) if len(reached) == len(costs) else None


def ratio(by_seed: study.ArmsBySeed, name: str, target: float, cost: str) -> str | None:
    """To `uniform` of the same seed: the geometric mean, with its 95 % interval over seeds. None: a run never did."""
    logs = []
    for arms in by_seed.values():
        ours, theirs = (reach(arms[arm], target, cost) for arm in (name, FIRST))
        if ours is None or theirs is None:
            return None
        logs.append(math.log(ours / theirs))
    if len(logs) < 2:
        return f"{math.exp(logs[0]):.2f}"
    mean = average_changes(logs)
    return f"{math.exp(mean.mean):.2f} ({math.exp(mean.low):.2f} to {math.exp(mean.high):.2f})"


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    costs = ["steps", *COSTS]
    report.head("at the end", "accuracy", SIGNAL, *costs)
    for name in RUNS:
        last = [arms[name][-1] for arms in by_seed.values()]
        report.row(name, *(spread([point[key] for point in last]) for key in ("accuracy", SIGNAL, *costs)))
    for target in TARGETS:
        report.head(f"to {target:g}", *costs, *(f"{cost}, of uniform's" for cost in costs))
        for name in RUNS:
            totals = {cost: [reach(arms[name], target, cost) for arms in by_seed.values()] for cost in costs}
            means = [_mean_of_all(totals[cost]) for cost in costs]
            ratios = [None if name == FIRST else ratio(by_seed, name, target, cost) for cost in costs]
            report.row(name, *means, *ratios)


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    """What each setting costs until the target is reached: a dot for each seed, a line at their mean."""
    target = TARGETS[-1]
    note = f"dots: {len(by_seed)} seeds; line: their mean; sampled answers"
    title = f"Cost of {target:.0%} held-out accuracy"
    with study.picture(path, title, note, sharey=True) as grid:
        for axis, cost in zip(grid, COSTS, strict=True):
            for place, (name, colour) in enumerate(zip(RUNS, COLOURS, strict=False)):
                reached = [reach(arms[name], target, cost) for arms in by_seed.values()]
                values = [value for value in reached if value is not None]
                axis.plot(values, [place] * len(values), "o", color=colour)
                axis.vlines(statistics.mean(values), place - 0.3, place + 0.3, color=colour)
            axis.set(title=f"{cost.capitalize()} in the rl stage", ylim=(len(RUNS) - 0.5, -0.5))
            axis.set_xlim(left=0)
            axis.locator_params(axis="x", nbins=5)
            axis.grid(False, axis="y")
            axis.grid(True, axis="x")
        grid[0].set_yticks(range(len(RUNS)), list(RUNS))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, seeds=(0, 1, 2))
