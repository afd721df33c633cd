"""What teaches SmolLM2 to search, for other rewards: `python benchmarks/smollm2_rewards.py [--seeds 0 1] [--runs D]`.

Examples in the prompt while it is reinforced, its own right answers taught without them, reinforcement without
(`benchmarks/smollm2.py`): with ReSearch's protocol and reward (`rlsys train research/smollm2`), and on one family of
reasoning-gym with its scorer (`rlsys train worlds/reasoning_gym_smollm2`). Held-out questions are asked with the
examples around the first stage, and without any around each. Runs that are done are not repeated. Writes the numbers
into `docs/smollm2_rewards.json`, and prints them with what became of the predictions.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Arms, ArmsBySeed, Prediction

RESULTS = ROOT / "docs" / "smollm2_rewards.json"
SEARCH, KIN = "research", "reasoning_gym"
ARMS = {SEARCH: "research/smollm2", KIN: "worlds/reasoning_gym_smollm2"}
KINDS = ("shown/greedy", "shown/sampled", "alone/greedy", "alone/sampled")


def numbers(folder: Path) -> list[dict[str, Any]]:
    """Held-out accuracy at each evaluation, and the share of the commonest last message of the policy."""
    return [
        {"stage": row["stage"], "when": row["when"], "step": row["step"]}
        | {kind: row[f"{kind}/accuracy"] for kind in KINDS if f"{kind}/accuracy" in row}
        | {f"{kind}, one text": share_of_one_text(folder, row, kind) for kind in KINDS if f"{kind}/accuracy" in row}
        for row in study.rows(folder, "evaluations")
    ]


def share_of_one_text(folder: Path, row: dict[str, Any], kind: str) -> float:
    texts = study.answers(folder, f"eval-{row['stage']}-{row['when']}-{kind.replace('/', '-')}")
    return Counter(texts).most_common(1)[0][1] / len(texts)


def at(arms: Arms, arm: str, kind: str, place: int) -> float:
    """At an evaluation that asks in this way, by its place among them."""
    return float([row[kind] for row in arms[arm] if kind in row][place])


# Written before any of these runs. Known was, of the untrained model with three examples: ReSearch's form 34 of 40
# greedy and 10 sampled answers right; of 16 problems of the family 4 greedy ones and 1 sampled one.
PREDICTIONS = (
    Prediction(
        "research: without examples at most 0.02 are right before, and at least 0.85 of the sampled ones at the end",
        lambda arms: at(arms, SEARCH, "alone/greedy", 0) <= 0.02 and at(arms, SEARCH, "alone/sampled", -1) >= 0.85,
        share=1.0,
    ),
    Prediction(
        "research: the first stage adds at least 0.4 to the sampled answers after three examples",
        lambda arms: at(arms, SEARCH, "shown/sampled", -1) - at(arms, SEARCH, "shown/sampled", 0) >= 0.4,
        share=1.0,
    ),
    Prediction(
        "research: and leaves those without any at 0.02 or less",
        lambda arms: at(arms, SEARCH, "alone/sampled", 1) <= 0.02,
        share=1.0,
    ),
    Prediction(
        "reasoning_gym: the first stage adds at least 0.3 to the sampled answers after three examples",
        lambda arms: at(arms, KIN, "shown/sampled", -1) - at(arms, KIN, "shown/sampled", 0) >= 0.3,
        share=1.0,
    ),
    Prediction(
        "reasoning_gym: without examples at least 0.4 of the sampled answers are right at the end, and none before",
        lambda arms: at(arms, KIN, "alone/greedy", 0) <= 0.02 and at(arms, KIN, "alone/sampled", -1) >= 0.4,
        share=1.0,
    ),
)


def play_seed(seed: int, runs: Path) -> Arms:
    arms: Arms = {}
    for name, recipe in ARMS.items():
        folder = runs / f"{seed}-{name}"
        study.train(recipe, folder, [f"seed={seed}", f"env.seed={seed}", "tracker=none", "report=none"])
        arms[name] = numbers(folder)
    return arms


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    for arm, recipe in ARMS.items():
        report.head(f"{recipe}: right of held-out questions", "stage", "seed", *KINDS)
        for seed, arms in by_seed.items():
            for row in arms[arm]:
                values = (row.get(kind, "") for kind in KINDS)
                report.row(f"{row['when']}, step {row['step']}", row["stage"], str(seed), *values)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, predictions=PREDICTIONS, seeds=(0, 1))
