"""ICRL on SmolLM2 without what teaches it: `python benchmarks/icrl_smollm2_controls.py [--seeds 0 1] [--runs DIR]`.

For each seed two runs of `rlsys train icrl/smollm2`, examples as earlier turns of the chat: one that begins with the
stage without any example, and one whose three examples answer at once instead of searching. Runs that are done are not
repeated. Writes the numbers into `docs/icrl_smollm2_controls.json`; `--draw` takes what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Prediction

RESULTS = ROOT / "docs" / "icrl_smollm2_controls.json"
NONE, ANSWERING = "no examples", "examples that answer at once"
ARMS = {
    NONE: ["stages.shots_3=null", "stages.shots_1=null"],
    ANSWERING: ["stages.shots_1=null", "stages.shots_0=null", "env.made_up_examples=answer"],
}
KINDS = {NONE: "alone", ANSWERING: "shown"}  # in which set an arm is asked as it is trained
NUMBERS = [f"{kind}/{number}" for kind in ("greedy", "sampled") for number in ("accuracy", "calls")]

# Written before these runs. The second arm had been run by hand with both seeds: 1 and 0 of 50 sampled answers searched
# before, none after. A run without examples was known of a GPU and an earlier recipe: 49 steps, none right.
PREDICTIONS = (
    Prediction(
        "without examples at most 0.02 of the answers are right after 24 steps, greedy and sampled",
        lambda arms: max(last(arms, NONE, f"{kind}/accuracy") for kind in ("greedy", "sampled")) <= 0.02,
    ),
    Prediction(
        "after examples that answer at once at most 0.05 of the sampled answers are right, and at most 0.05 search",
        lambda arms: max(last(arms, ANSWERING, f"sampled/{number}") for number in ("accuracy", "calls")) <= 0.05,
    ),
)


def last(arms: study.Arms, arm: str, number: str) -> float:
    return float(arms[arm][-1][number])


def play_seed(seed: int, runs: Path) -> study.Arms:
    arms: dict[str, Any] = {}
    for name, changes in ARMS.items():
        folder = runs / f"{seed}-{name.replace(' ', '-')}"
        settings = [f"seed={seed}", f"env.seed={seed}", "tracker=none", "checkpoint.keep=1", *changes]
        study.train("icrl/smollm2", folder, settings)
        arms[name] = [numbers(row, KINDS[name]) for row in study.rows(folder, "evaluations")]
    return arms


def numbers(row: dict[str, Any], asked: str) -> dict[str, Any]:
    """Of an evaluation; calls that were never made have no key in a row."""
    made = {f"{asked}/{key}": 0.0 for key in NUMBERS if key.endswith("/calls")} | row
    return {"step": row["step"]} | {key: made[f"{asked}/{key}"] for key in NUMBERS}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    for name in ARMS:
        report.head(name, "seed", *NUMBERS)
        for seed, arms in by_seed.items():
            for row in arms[name]:
                report.row(f"step {row['step']}", str(seed), *(row[key] for key in NUMBERS))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, predictions=PREDICTIONS, seeds=(0, 1))
