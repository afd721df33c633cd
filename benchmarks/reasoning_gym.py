"""Public problems in miniature: `python benchmarks/reasoning_gym.py [--seeds 0 1 2 3 4] [--runs DIR]`, one run a seed.

`rlsys train worlds/reasoning_gym` teaches a policy from nothing with demonstrations, half of which show the answer of
another problem, and then trains it by GRPO on the scores of reasoning-gym's scorers. Each seed has a policy and
problems of its own. Held-out problems are asked before, during and after. Runs that are done are not repeated. Writes
the numbers into `docs/reasoning_gym.json`, prints them with the spread over seeds and what became of the predictions,
and draws `docs/reasoning_gym.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Prediction

from launch.tools.analysis.draw import COLOURS

RESULTS = ROOT / "docs" / "reasoning_gym.json"
ARM = "grpo"
LEVELS = ("aiw 0", "family_relationships 0")  # the families of the recipe, each at the easiest level
KINDS = ("greedy", "sampled")


def _asked(arms: study.Arms, when: str, level: str, kind: str) -> float:
    return float(arms[ARM][when][level][kind])


def _gain(arms: study.Arms, level: str, kind: str) -> float:
    return _asked(arms, "after", level, kind) - _asked(arms, "before", level, kind)


# When these were written, two runs were known: seed=100 of six other families, and seed=101 of this recipe. In that one
# sampled accuracy went from 0.64 to 0.99 (aiw) and from 0.29 to 0.45 (family_relationships), greedy accuracy from 1.00
# to 1.00 and from 0.41 to 0.47. There about one in four of the wrong demonstrations was right by chance, for
# the other problem had the same answer. Since then a wrong demonstration has another answer; no known run has seen it.
PREDICTIONS = (
    Prediction(
        "accuracy of sampled answers to aiw rises by at least 0.2, to at least 0.9",
        lambda arms: _gain(arms, "aiw 0", "sampled") >= 0.2 and _asked(arms, "after", "aiw 0", "sampled") >= 0.9,
    ),
    Prediction(
        "accuracy of sampled answers to family_relationships rises by at least 0.1",
        lambda arms: _gain(arms, "family_relationships 0", "sampled") >= 0.1,
    ),
    Prediction(
        "accuracy of greedy answers falls by more than 0.05 in neither",
        lambda arms: all(_gain(arms, level, "greedy") >= -0.05 for level in LEVELS),
    ),
)


def numbers(folder: Path) -> dict[str, Any]:
    """Accuracy on held-out problems by family: before and after the rl stage, and during it by its step."""
    rows = [row for row in study.rows(folder, "evaluations") if row["stage"] == "rl"]
    arm = {row["when"]: _numbers(row) for row in rows if row["when"] != "during"}
    first = rows[0]["step"]
    return {**arm, "curve": {str(row["step"] - first): _numbers(row) for row in rows}}


def _numbers(row: dict[str, Any]) -> dict[str, dict[str, float]]:
    return {level: {kind: row[f"{kind}/accuracy_by_level/{level}"] for kind in KINDS} for level in LEVELS}


def play_seed(seed: int, runs: Path) -> study.Arms:
    folder = runs / f"{seed}-{ARM}"
    study.train("worlds/reasoning_gym", folder, [f"seed={seed}", f"env.seed={seed}"])
    return {ARM: numbers(folder)}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    rows = {f"{level}, {kind}": partial(_asked, level=level, kind=kind) for level in LEVELS for kind in KINDS}
    study.tell_gains(report, "held-out accuracy", by_seed, rows)


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    title = "Problems of reasoning-gym, by the scores of its scorers"
    note = f"thin lines: {len(by_seed)} seeds; thick: their mean; held-out problems, one sampled answer each"
    with study.picture(path, title, note, columns=len(LEVELS)) as grid:
        for axis, level in zip(grid, LEVELS, strict=True):
            curves = [arms[ARM]["curve"] for arms in by_seed.values()]
            steps = [step for step in curves[0] if all(step in curve for curve in curves)]
            lines = [[curve[step][level]["sampled"] for step in steps] for curve in curves]
            study.plot_seeds(axis, list(map(int, steps)), lines, COLOURS[0])
            axis.set(title=level, xlabel="step of the rl stage", ylabel="share of problems", ylim=(0, 1))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS)
