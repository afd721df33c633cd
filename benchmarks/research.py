"""ReSearch in miniature: `python benchmarks/research.py [--seeds 0 1 2 3 4] [--runs DIR]`, one run a seed.

`rlsys train research/tiny` teaches the forms, with demonstrations of which nine in ten search once and then answer
wrongly, and then trains by the paper's reward alone. Each seed has a policy, questions and passages of its own. The
same held-out questions are asked before and after, in ReSearch's protocol and in three baselines'. Runs that are done
are not repeated. Writes the numbers into `docs/research.json`, prints them with the spread over seeds and what became
of the predictions, and draws `docs/research.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Prediction, spread

from launch.tools.analysis.draw import COLOURS, DARK

RESULTS = ROOT / "docs" / "research.json"
ARM = "research"
WAYS = {"direct answer": "direct", "CoT": "cot", "RAG": "rag", "ReSearch": "research"}
MATCH, CALLS = "exact match", "searches"
HEALTHY = (  # columns of metrics.jsonl, which the recipe's page shows
    *("episode/calls", "reward/mean", "groups/filtered", "entropy/mean", "kl/reference"),
    *("episode/response_tokens", "episode/malformed"),
)
EVERY = 5  # steps of rl that a row of these columns is the mean of

# When these were written, runs with seed=0, 1 and 2 were known, all on the questions of env.seed=0.
PREDICTIONS = (
    Prediction(
        "greedy exact match in ReSearch's protocol rises by at least 0.4",
        lambda arms: _gain(arms, "ReSearch") >= 0.4,
    ),
    Prediction(
        "the greedy policy searches more than 1.8 times after, and less than 1.2 times before",
        lambda arms: _asked(arms, "after", "ReSearch", CALLS) > 1.8 and _asked(arms, "before", "ReSearch", CALLS) < 1.2,
    ),
    Prediction(
        "asked for a direct answer, a chain of thought or with RAG, it stays below 0.1",
        lambda arms: all(_asked(arms, "after", way, MATCH) < 0.1 for way in WAYS if way != "ReSearch"),
    ),
)


def _asked(arms: study.Arms, when: str, way: str, number: str) -> float:
    return float(arms[ARM][when][way][number])


def _gain(arms: study.Arms, way: str) -> float:
    return _asked(arms, "after", way, MATCH) - _asked(arms, "before", way, MATCH)


def numbers(folder: Path) -> dict[str, Any]:
    """Before and after the rl stage, by the way of asking; greedy evaluations during it, by its step."""
    rows = study.rows(folder, "evaluations")
    stages = {"before": "before", "after": "test"}
    arm: dict[str, Any] = {
        when: {way: _numbers(row, f"{name}/greedy") for way, name in WAYS.items()}
        for when, stage in stages.items()
        for row in rows
        if row["stage"] == stage
    }
    arm["curve"] = curve(folder)
    trained = [row for row in study.rows(folder, "metrics") if row["stage"] == "rl"]
    parts = [trained[start : start + EVERY] for start in range(0, len(trained), EVERY)]
    arm["metrics"] = {
        name: [round(statistics.mean(row.get(name, 0.0) for row in part), 4) for part in parts] for name in HEALTHY
    }
    return arm


def curve(folder: Path) -> dict[str, dict[str, float]]:
    """Of the greedy evaluations of the rl stage, by its step."""
    during = [row for row in study.rows(folder, "evaluations") if row["stage"] == "rl"]
    return {str(row["step"] - during[0]["step"]): _numbers(row, "greedy") for row in during}


def _numbers(row: dict[str, Any], kind: str) -> dict[str, float]:
    return {MATCH: row[f"{kind}/exact_match"], CALLS: row.get(f"{kind}/calls", 0.0)}


def play_seed(seed: int, runs: Path) -> study.Arms:
    folder = runs / f"{seed}-{ARM}"
    study.train("research/tiny", folder, [f"seed={seed}", f"env.seed={seed}", "report=none"])
    return {ARM: numbers(folder)}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest, and the mean of the differences with its interval."""
    report.head("asked as", "before", "after", "difference")
    for way in WAYS:
        values = [[_asked(arms, when, way, MATCH) for arms in by_seed.values()] for when in ("before", "after")]
        report.row(f"{way}, exact match", *map(spread, values), study.paired(by_seed, partial(_gain, way=way)))
    values = [[_asked(arms, when, "ReSearch", CALLS) for arms in by_seed.values()] for when in ("before", "after")]
    report.row("ReSearch, searches", *map(spread, values), None)
    report.head("step of rl", MATCH, CALLS)
    for step in next(iter(by_seed.values()))[ARM]["curve"]:
        rows = [arms[ARM]["curve"][step] for arms in by_seed.values() if step in arms[ARM]["curve"]]
        report.row(step, *(spread([row[number] for row in rows]) for number in (MATCH, CALLS)))
    parts = range(len(next(iter(by_seed.values()))[ARM]["metrics"][HEALTHY[0]]))
    report.head("means over seeds", *(f"steps {EVERY * part + 1} to {EVERY * (part + 1)}" for part in parts))
    for name in HEALTHY:
        report.row(
            name, *(statistics.mean(arms[ARM]["metrics"][name][part] for arms in by_seed.values()) for part in parts)
        )


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    title, note = (
        "A second search, by reward alone",
        f"thin lines: {len(by_seed)} seeds; thick: their mean; greedy answers",
    )
    with study.picture(path, title, note) as grid:
        for axis, number, label in zip(grid, (CALLS, MATCH), ("per question", "share of questions"), strict=True):
            curves = [arms[ARM]["curve"] for arms in by_seed.values()]
            steps = [step for step in curves[0] if all(step in curve for curve in curves)]
            lines = [[curve[step][number] for step in steps] for curve in curves]
            study.plot_seeds(axis, list(map(int, steps)), lines, COLOURS[0])
            if number == CALLS:
                axis.axhline(2, color=DARK, linestyle="--", linewidth=1)
            axis.set(title=number.capitalize(), xlabel="step of the rl stage", ylabel=label)
            axis.set_ylim(bottom=0)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS)
