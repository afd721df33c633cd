"""What lag costs: `python benchmarks/lag.py [--seeds 0 1 2 3] [--runs DIR]`, accuracy under lag 0, 1 and 4.

In two miniatures, the quickstart and `worlds/reasoning_gym`, each seed is taught once, and from the weights that this
leaves the rl stage runs with `loop.max_policy_lag` 0, 1 and 4: the same steps, the same tasks in the same order.
Compared is held-out accuracy of sampled answers after as many steps, and after as many seconds: those that the fastest
of the three took for all its steps. The machine should do nothing else meanwhile. Runs that are done are not repeated.
Writes every run's numbers into `docs/lag.json` and draws `docs/lag.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import study
from report import Report
from study import ROOT, spread

from launch.tools.analysis.draw import COLOURS

RESULTS = ROOT / "docs" / "lag.json"
LAGS = (0, 1, 4)
EVERY = 6  # steps, between two evaluations


@dataclass(frozen=True, slots=True, kw_only=True)
class Miniature:
    config: str
    taught: int  # steps of its first stage
    steps: int  # of its second one


MINIATURES = {
    "quickstart": Miniature(config="quickstart", taught=200, steps=24),
    "gym": Miniature(config="worlds/reasoning_gym", taught=500, steps=24),
}


def arm(name: str, lag: int) -> str:
    return f"{name} lag {lag}"


def end(arms: study.Arms, name: str, lag: int) -> float:
    """Accuracy after all steps."""
    return float(arms[arm(name, lag)]["curve"][-1]["accuracy"])


def fastest(arms: study.Arms, name: str) -> float:
    """Seconds after which the fastest of the three lags has taken all its steps."""
    return min(float(arms[arm(name, lag)]["curve"][-1]["seconds"]) for lag in LAGS)


def at_best(arms: study.Arms, name: str, lag: int) -> float:
    """Accuracy after the seconds of `fastest`, interpolated between two evaluations."""
    curve = arms[arm(name, lag)]["curve"]
    at, accuracies = ([point[key] for point in curve] for key in ("seconds", "accuracy"))
    return float(np.interp(fastest(arms, name), at, accuracies))


def step_s(arms: study.Arms, name: str, lag: int) -> float:
    return float(arms[arm(name, lag)]["step_s"])


def slowdown(arms: study.Arms, name: str, lag: int) -> float:
    return step_s(arms, name, lag) / step_s(arms, name, 0)


# Written before any run of this study. Known were the seconds of a step of both recipes as they are (lag 1), and that
# on two cores engines and learner take turns at the processor, so that little is there to overlap.
PREDICTIONS = (
    study.Prediction(
        "lag 1 ends at most 0.05 below lag 0 in both miniatures",
        lambda arms: all(end(arms, name, 1) >= end(arms, name, 0) - 0.05 for name in MINIATURES),
        share=0.75,
    ),
    study.Prediction(
        "lag 4 ends at most 0.10 below lag 0 in both miniatures",
        lambda arms: all(end(arms, name, 4) >= end(arms, name, 0) - 0.10 for name in MINIATURES),
        share=0.75,
    ),
    study.Prediction(
        "a step under lag 1 takes at most 0.9 of one under lag 0 in both miniatures",
        lambda arms: all(step_s(arms, name, 1) <= 0.9 * step_s(arms, name, 0) for name in MINIATURES),
        share=0.75,
    ),
    study.Prediction(
        "after as many seconds lag 1 is at most 0.02 below lag 0 in both miniatures",
        lambda arms: all(at_best(arms, name, 1) >= at_best(arms, name, 0) - 0.02 for name in MINIATURES),
        share=0.75,
    ),
    study.Prediction(
        "no step is beyond its lag",
        lambda arms: all(arms[arm(name, lag)]["lag"] <= lag for name in MINIATURES for lag in LAGS),
        share=1.0,
    ),
)


def measure(folder: Path) -> dict[str, Any]:
    """Held-out accuracy by evaluation of the rl stage, with the steps and seconds up to there; what a step took."""
    steps = [row for row in study.rows(folder, "metrics") if row["stage"] == "rl"]
    curve = []
    for row in study.rows(folder, "evaluations"):
        if row["stage"] == "rl":
            before = [step["time/step"] for step in steps if step["step"] <= row["step"]]
            curve.append({"steps": len(before), "seconds": sum(before), "accuracy": row["sampled/accuracy"]})
    return {
        "curve": curve,
        "step_s": sum(step["time/step"] for step in steps) / len(steps),
        "lag": max(step["lag/max"] for step in steps),
        "reward": [step["reward/mean"] for step in steps],
    }


def play_seed(seed: int, runs: Path) -> study.Arms:
    arms = {}
    base_changes = [f"seed={seed}", f"env.seed={seed}", "eval.tasks=200", "eval.samples=1", "eval.greedy=false"]
    for name, recipe in MINIATURES.items():
        taught = runs / f"{seed}-{name}-taught"
        study.train(recipe.config, taught, [*base_changes, "stages.rl=null"])
        start = ["stages.sft=null", f"model.path={study.weights(taught, recipe.taught)}"]
        for lag in LAGS:
            folder = runs / f"{seed}-{name}-lag-{lag}"
            setting = [f"stages.rl.steps={recipe.steps}", f"eval.every={EVERY}", f"checkpoint.every={recipe.steps}"]
            study.train(recipe.config, folder, [*base_changes, *start, *setting, f"loop.max_policy_lag={lag}"])
            arms[arm(name, lag)] = measure(folder)
    return arms


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    columns = ("accuracy after all steps", "after as many seconds", "seconds of a step", "to lag 0", "largest lag")
    report.head("miniature, loop.max_policy_lag", *columns)
    for name in MINIATURES:
        for lag in LAGS:
            numbers = [
                [take(arms, name, lag) for arms in by_seed.values()] for take in (end, at_best, step_s, slowdown)
            ]
            largest = max(arms[arm(name, lag)]["lag"] for arms in by_seed.values())
            report.row(arm(name, lag), *map(spread, numbers), largest)
    report.head("to lag 0, paired by seed", "after all steps", "after as many seconds")
    for name in MINIATURES:
        for lag in LAGS[1:]:
            changes = [study.paired(by_seed, partial(change, take=take, name=name, lag=lag)) for take in (end, at_best)]
            report.row(arm(name, lag), *changes)


def change(arms: study.Arms, *, take: Any, name: str, lag: int) -> float:
    return float(take(arms, name, lag) - take(arms, name, 0))


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    note = f"{len(by_seed)} seeds, a thin line each, and their mean; held-out accuracy of sampled answers"
    with study.picture(path, "Quality under lag, by steps and by time", note, columns=4, sharey=True) as grid:
        for place, (name, at) in enumerate((name, at) for name in MINIATURES for at in ("steps", "seconds")):
            for lag, colour in zip(LAGS, COLOURS, strict=False):
                lines = [[*zip(*points(arms, name, lag, at), strict=True)] for arms in by_seed.values()]
                for line in lines:
                    grid[place].plot(*line, color=colour, linewidth=0.7, alpha=0.5)
                grid[place].plot(*np.mean(lines, axis=0), color=colour, linewidth=2, label=f"lag {lag}")
            unit = "step of the rl stage" if at == "steps" else "time, of what lag 0 takes for all steps"
            grid[place].set(title=name, xlabel=unit, ylim=(0, 1))


def points(arms: study.Arms, name: str, lag: int, at: str) -> list[tuple[float, float]]:
    """Seeds may have run on machines of different speed: seconds are divided by those of lag 0 in the same seed."""
    scale = arms[arm(name, 0)]["curve"][-1]["seconds"] if at == "seconds" else 1
    return [(point[at] / scale, point["accuracy"]) for point in arms[arm(name, lag)]["curve"]]


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS, seeds=(0, 1, 2, 3))
