"""Graph-RL in miniature, where a bad step costs accuracy: `python benchmarks/graph_rl_misread.py [--seeds 0 1 2 3 4]`.

For each seed `rlsys train graph_rl/ablations/tiny-misread` teaches a policy the shortest paths of triangles, then to
misread a weight of the longer path, and trains it by GRPO with the process reward; from the same spoilt weights begins
GRPO with the solution reward. What counts is accuracy, over the steps: a misread weight makes an answer wrong in three
of ten, so that both rewards can find it, and the process reward sees it each time. Runs that are done are not repeated.
Writes every seed's numbers into `docs/graph_rl_misread.json`, prints them with what became of each prediction, and
draws `docs/graph_rl_misread.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import graph_rl
import study
from graph_rl import FIRST
from report import Report
from study import ROOT, Arms, ArmsBySeed, Prediction, spread

from launch.tools.analysis.draw import COLOURS

RESULTS = ROOT / "docs" / "graph_rl_misread.json"
RECIPE = "graph_rl/ablations/tiny-misread"
SOLUTION = "grpo-solution"
ARMS = {FIRST: (RECIPE, "process"), SOLUTION: (RECIPE, "solution")}
TAUGHT = 950  # steps of the supervised stages
EARLY, LAST = (4, 8, 12, 16), 32  # steps of GRPO whose evaluations are the claim's, and after which it should be gone
NUMBERS = {
    "accuracy": "graphs/sampled/accuracy",
    "right by real steps": "graphs/sampled/right_by_real_steps",
    "invented steps": "graphs/sampled/hallucinated_steps",
}


def numbers(folder: Path) -> Arms:
    """The numbers of each evaluation of the last stage, by its step; of the run that teaches the reader's accuracy."""
    rows = study.rows(folder, "evaluations")
    during = [row for row in rows if row["stage"] == "rl"]
    curve = {
        str(row["step"] - during[0]["step"]): {name: row.get(NUMBERS[name], 0.0) for name in NUMBERS} for row in during
    }
    reader = [row["graphs/greedy/accuracy"] for row in rows if row["stage"] == "reader"]
    return {"curve": curve} | ({"reader": reader[0]} if reader else {})


def at(arms: Arms, arm: str, number: str, *steps: int) -> float:
    """The mean over the evaluations after these steps."""
    return float(statistics.mean(arms[arm]["curve"][str(step)][number] for step in steps))


def lead(arms: Arms, number: str, steps: Sequence[int]) -> float:
    """By how much the number is higher with the process reward, after these steps."""
    return at(arms, FIRST, number, *steps) - at(arms, SOLUTION, number, *steps)


# Written before any run of this world.
PREDICTIONS = (
    Prediction(
        "the reader is right in at least 0.95 of its greedy answers", lambda arms: arms[FIRST]["reader"] >= 0.95
    ),
    Prediction(
        "table 1: mean accuracy after 4, 8, 12 and 16 steps is at least 0.03 higher with the process reward",
        lambda arms: lead(arms, "accuracy", EARLY) >= 0.03,
    ),
    Prediction(
        "after 32 steps accuracy differs by at most 0.03",
        lambda arms: abs(lead(arms, "accuracy", [LAST])) <= 0.03,
    ),
    Prediction(
        "after 16 steps the share of invented steps is lower with the process reward",
        lambda arms: lead(arms, "invented steps", EARLY[-1:]) < 0,
    ),
)


def play_seed(seed: int, runs: Path) -> Arms:
    return graph_rl.play_arms(ARMS, TAUGHT, numbers, seed, runs)


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest, and differences with their intervals."""
    steps = list(map(int, next(iter(by_seed.values()))[FIRST]["curve"]))
    for number in NUMBERS:
        report.head(number, *(f"after {step} steps" for step in steps))
        for arm in ARMS:
            report.row(arm, *(spread([at(arms, arm, number, step) for arms in by_seed.values()]) for step in steps))
    report.head("process less solution, with its 95 % interval", *NUMBERS)
    for title, when in (("mean after 4, 8, 12 and 16 steps", EARLY), ("after 32 steps", (LAST,))):
        leads = (partial(lead, number=number, steps=when) for number in NUMBERS)
        report.row(title, *(study.paired(by_seed, difference) for difference in leads))


def draw(by_seed: ArmsBySeed, path: Path) -> None:
    note = f"seeds: {', '.join(map(str, by_seed))}; thick: their mean; sampled answers"
    with study.picture(path, "Where a misread weight costs accuracy", note, columns=len(NUMBERS), sharey=True) as grid:
        steps = list(map(int, next(iter(by_seed.values()))[FIRST]["curve"]))
        for axis, number in zip(grid, NUMBERS, strict=True):
            for arm, colour in zip(ARMS, COLOURS, strict=False):
                lines = [[at(arms, arm, number, step) for step in steps] for arms in by_seed.values()]
                study.plot_seeds(axis, steps, lines, colour)
                axis.plot([], [], color=colour, label=arm)
            axis.set(title=number.capitalize(), xlabel="step of GRPO", ylim=(0, 1))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS)
