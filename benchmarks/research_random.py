"""ReSearch in miniature under a random reward: `python benchmarks/research_random.py [--seeds 0 1 2 3 4] [--runs DIR]`.

For each seed the first stage of `rlsys train research/tiny` once, and from the weights that it leaves its stage of
reinforcement twice: with the paper's reward, and with one that a coin decides (`benchmarks/coin.py`). Unlike the reward
for form alone, of `benchmarks/research_controls.py`, the coin leaves hardly a group without a signal. Runs that are
done are not repeated. Writes the numbers into `docs/research_random.json`, and prints them with what became of the
predictions.
"""

from __future__ import annotations

import statistics
from pathlib import Path

import research
import study
from report import Report
from research import CALLS, MATCH
from research_controls import gain
from study import ROOT, Arms, ArmsBySeed, Prediction, spread

RESULTS = ROOT / "docs" / "research_random.json"
TAUGHT = 300  # steps of the supervised stage
OUTCOME, COIN = "the outcome", "a coin"
ARMS: dict[str, list[str]] = {OUTCOME: [], COIN: ["stages.rl.reward.name=benchmarks.coin.CoinReward"]}
FILTERED = "groups without a signal"  # of 16 a step, mean over the stage

# Written before any of these runs.
PREDICTIONS = (
    Prediction("by the outcome greedy exact match rises by at least 0.4", lambda arms: gain(arms, OUTCOME) >= 0.4),
    Prediction("by a coin it rises by at most 0.05", lambda arms: gain(arms, COIN) <= 0.05),
    Prediction(
        "a coin leaves fewer groups without a signal than the outcome does",
        lambda arms: arms[COIN][FILTERED] < arms[OUTCOME][FILTERED],
    ),
)


def play_seed(seed: int, runs: Path) -> Arms:
    asked_during = ["report=none", "stages.before=null", "stages.test=null"]
    folders = study.train_from_taught(seed, runs, ARMS, recipe="research/tiny", steps=TAUGHT, of_all=asked_during)
    return {name: numbers(folder) for name, folder in folders}


def numbers(folder: Path) -> Arms:
    filtered = [row["groups/filtered"] for row in study.rows(folder, "metrics") if row["stage"] == "rl"]
    return {"curve": research.curve(folder), FILTERED: round(statistics.mean(filtered), 3)}


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest."""
    steps = list(next(iter(by_seed.values()))[COIN]["curve"])
    for number in (MATCH, CALLS):
        report.head(f"{number}, greedy", *(f"after {step} steps" for step in steps))
        for name in ARMS:
            curves = [arms[name]["curve"] for arms in by_seed.values()]
            report.row(name, *(spread([curve[step][number] for curve in curves]) for step in steps))
    report.head("of 16 groups a step", FILTERED)
    for name in ARMS:
        report.row(name, spread([arms[name][FILTERED] for arms in by_seed.values()]))
    report.head("difference over the seeds", "with its 95 % interval")
    difference = study.paired(by_seed, lambda arms: gain(arms, OUTCOME) - gain(arms, COIN))
    report.row(f"gain in exact match, {OUTCOME} - {COIN}", difference)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, predictions=PREDICTIONS)
