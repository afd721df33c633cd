"""Long CoT in miniature: `python benchmarks/long_cot.py [--seeds 0 1 2 3 4] [--runs DIR]`, two comparisons.

Rewards (figures 3 and 4): for each seed `rlsys train long_cot/tiny` teaches and trains by PPO with the cosine reward
and the penalty on repetition; from the weights that its first stage leaves, the second also trains without the penalty,
and with the classic reward. Starts (figure 1): a policy taught long chains, and one taught short chains, each trained
by the same reward. Runs that are done are not repeated. Writes every seed's numbers into `docs/long_cot.json`, prints
them with what became of the predictions, and draws `docs/long_cot.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Arms, Prediction, paired, spread

from launch.tools.analysis.draw import COLOURS

RESULTS = ROOT / "docs" / "long_cot.json"
FIRST = "cosine, penalty"  # the run that is taught
REWARDS: dict[str, list[str]] = {
    FIRST: [],
    "cosine": ["reward.repetition_penalty=0.0"],
    "classic": ["reward.kind=classic"],
}
TAUGHT = 480  # steps of its first stage
STARTS = {"long chains": 1.0, "short chains": 0.0}  # share of demonstrations by columns
OF_STARTS = ["stages.sft.steps=300", "window.tokens=160", "env.sums.max_terms=4", "env.demo_error_rate=0.3"]
OF_STARTS += ["env.demo_recheck_rate=0.1", "env.demo_doubt_rate=0"]
# Evaluated as it is trained: at T 0.7 slips are hardly sampled.
OF_STARTS += ["eval.temperature=1.0", "eval.top_p=1.0", "eval.samples=2"]
WORD = "recheck"  # how a line that is written again begins
COLUMN = ": "  # in an addition by columns


def numbers(folder: Path) -> dict[str, Any]:
    """Held-out accuracy over the steps of the rl stage, and what its training answers were between two evaluations."""
    steps = [row for row in study.rows(folder, "metrics") if row["stage"] == "rl"]
    begin = steps[0]["step"] - 1
    curve = [
        {"step": row["step"] - begin, "accuracy": row["sampled/accuracy"], "tokens": row["sampled/tokens"]}
        for row in study.rows(folder, "evaluations")
        if row["stage"] == "rl"
    ]
    parts = [of_answers(folder, steps[low:high]) for low, high in pairwise(point["step"] for point in curve)]
    return {"curve": curve, "parts": parts}


def of_answers(folder: Path, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Means over the answers of these steps."""
    texts = [text for row in rows for text in study.answers(folder, f"step-{row['step']:06d}")]
    return {
        "cut off": statistics.mean(row["episode/token_limit"] for row in rows),
        "tokens": statistics.mean(row["episode/tokens"] for row in rows),
        "rechecks": statistics.mean(text.count(WORD) for text in texts),
        "by columns": statistics.mean(COLUMN in text for text in texts),
    }


def play_seed(seed: int, runs: Path) -> Arms:
    """Three rewards from one start, then one reward from two starts."""
    arms = play_rewards(seed, runs)
    for name, share in STARTS.items():
        folder = folder_of(runs, seed, name)
        study.train("long_cot/tiny", folder, [*seed_changes(seed), *OF_STARTS, f"env.demo_column_rate={share}"])
        arms[name] = numbers(folder)
    return arms


def seed_changes(seed: int) -> list[str]:
    return [f"seed={seed}", f"env.seed={seed}", "stages.test=null", "checkpoint.keep=9", "report=none"]


def play_rewards(seed: int, runs: Path, changes: Sequence[str] = ()) -> Arms:
    """The first teaches a policy, from which the others begin."""
    taught = folder_of(runs, seed, FIRST)
    arms = {}
    for name, reward in REWARDS.items():
        folder = folder_of(runs, seed, name)
        start = [] if name == FIRST else ["stages.sft=null", f"model.path={study.weights(taught, TAUGHT)}"]
        study.train("long_cot/tiny", folder, [*seed_changes(seed), *changes, *start, *reward])
        arms[name] = numbers(folder)
    return arms


def folder_of(runs: Path, seed: int, name: str) -> Path:
    return runs / f"{seed}-{name.replace(', ', '-').replace(' ', '-')}"


def before(arm: dict[str, Any]) -> float:
    return float(arm["curve"][0]["accuracy"])


def after(arm: dict[str, Any]) -> float:
    return float(arm["curve"][-1]["accuracy"])


def gain(arm: dict[str, Any]) -> float:
    return after(arm) - before(arm)


def last(arm: dict[str, Any], number: str) -> float:
    """Of the answers of the last training steps."""
    return float(arm["parts"][-1][number])


def during(arm: dict[str, Any]) -> float:
    """Mean accuracy of the evaluations after the first: less noise than the last has."""
    return float(statistics.mean(point["accuracy"] for point in arm["curve"][1:]))


# Written before seeds 0 to 4 were run, and after seed 100, on which the settings were chosen. There the last two about
# rewards did not come true: they stand here because the paper says so. The starts were evaluated at T 0.7 there, and
# trained for 16 steps: long chains went from 0.926 to 0.875, short ones from 0.094 to 0.023.
PREDICTIONS = (
    Prediction(
        "figure 10: training answers of the last 8 steps are at least 3 tokens shorter with the penalty than without",
        lambda arms: last(arms[FIRST], "tokens") <= last(arms["cosine"], "tokens") - 3,
    ),
    Prediction(
        "section 3.5: with the penalty they have at most two thirds of the rechecks that they have without",
        lambda arms: last(arms[FIRST], "rechecks") <= last(arms["cosine"], "rechecks") * 2 / 3,
    ),
    Prediction(
        "section 3.5: the cosine reward without the penalty leaves at least 1.3 times the classic reward's rechecks",
        lambda arms: last(arms["cosine"], "rechecks") >= 1.3 * last(arms["classic"], "rechecks"),
    ),
    Prediction(
        "figure 4: mean accuracy after 8, 16 and 24 steps is at least as high with the penalty as without",
        lambda arms: during(arms[FIRST]) >= during(arms["cosine"]),
    ),
    Prediction(
        "figure 4: it is at least as high with cosine reward and penalty as with the classic reward",
        lambda arms: during(arms[FIRST]) >= during(arms["classic"]),
    ),
    Prediction(
        "figure 3: in the last 8 steps the classic reward has 0.03 more answers cut off than cosine with the penalty",
        lambda arms: last(arms["classic"], "cut off") >= last(arms[FIRST], "cut off") + 0.03,
    ),
    Prediction(
        "figure 1: before rl, long chains are right at least 0.2 more often than short ones",
        lambda arms: before(arms["long chains"]) >= before(arms["short chains"]) + 0.2,
    ),
    Prediction(
        "figure 1: rl adds at least 0.03 of accuracy to long chains, and more than to short ones",
        lambda arms: gain(arms["long chains"]) >= max(0.03, gain(arms["short chains"])),
    ),
)
DIFFERENCES: dict[str, Callable[[Arms], float]] = {  # paired by seed
    "tokens in the last steps, with the penalty - without": lambda arms: (
        last(arms[FIRST], "tokens") - last(arms["cosine"], "tokens")
    ),
    "rechecks in the last steps, cosine without the penalty - classic": lambda arms: (
        last(arms["cosine"], "rechecks") - last(arms["classic"], "rechecks")
    ),
    "mean accuracy, with the penalty - without": lambda arms: during(arms[FIRST]) - during(arms["cosine"]),
    "mean accuracy, cosine with the penalty - classic": lambda arms: during(arms[FIRST]) - during(arms["classic"]),
    "gain by rl, long chains": lambda arms: gain(arms["long chains"]),
    "gain by rl, short chains": lambda arms: gain(arms["short chains"]),
    "gain by rl, long - short chains": lambda arms: gain(arms["long chains"]) - gain(arms["short chains"]),
}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest; then differences of two arms of the same seed."""
    tell_rewards(report, by_seed)
    report.head("starts: accuracy", "before rl", "after", "gain", "tokens before", "after")
    for name in STARTS:
        arms = [seed_arms[name] for seed_arms in by_seed.values()]
        lengths = ([arm["curve"][end]["tokens"] for arm in arms] for end in (0, -1))
        values = [map(before, arms), map(after, arms), map(gain, arms), *lengths]
        report.row(name, *(spread(list(column)) for column in values))
    report.head("difference over the seeds", "with its 95 % interval")
    for name, difference in DIFFERENCES.items():
        report.row(name, paired(by_seed, difference))


def tell_rewards(report: Report, by_seed: study.ArmsBySeed) -> None:
    steps = [point["step"] for point in next(iter(by_seed.values()))[FIRST]["curve"]]
    spans = [f"{low + 1}-{high}" for low, high in pairwise(steps)]
    report.head("rewards: accuracy", *(f"after {step} steps" for step in steps))
    for name in REWARDS:
        curves = [[point["accuracy"] for point in arms[name]["curve"]] for arms in by_seed.values()]
        report.row(name, *(spread(values) for values in zip(*curves, strict=True)))
    for number in ("cut off", "tokens", "rechecks", "by columns"):
        report.head(f"training answers: {number}", *(f"steps {span}" for span in spans))
        for name in REWARDS:
            report.row(
                name,
                *(spread([arms[name]["parts"][i][number] for arms in by_seed.values()]) for i in range(len(spans))),
            )


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    note = f"lines: means of {len(by_seed)} seeds; dots: each of them; held-out sums, sampled answers"
    with study.picture(path, "Long CoT in miniature", note, columns=3) as (cut, accuracy, starts):
        draw_rewards(cut, accuracy, by_seed)
        for name, style in zip(STARTS, ("-", "--"), strict=True):
            values = [[before(arms[name]), after(arms[name])] for arms in by_seed.values()]
            lines(starts, (0, 1), values, COLOURS[0], name, style)
        starts.set(title="Accuracy by start: long, short (dashed)")
        starts.set_xticks((0, 1), ("before rl", "after"))
        starts.set_ylim(0, 1)


def draw_rewards(cut: Any, accuracy: Any, by_seed: study.ArmsBySeed) -> None:
    """Two pairs of axes: what was cut off, and how much was right."""
    for name, colour in zip(REWARDS, COLOURS, strict=False):
        arms = [seed_arms[name] for seed_arms in by_seed.values()]
        steps = [point["step"] for point in arms[0]["curve"]]
        lines(accuracy, steps, [[point["accuracy"] for point in arm["curve"]] for arm in arms], colour, name)
        middles = [(low + high) / 2 for low, high in pairwise(steps)]
        lines(cut, middles, [[part["cut off"] for part in arm["parts"]] for arm in arms], colour, name)
    cut.set(title="Answers cut off in training", xlabel="step of PPO", ylabel="share of answers")
    accuracy.set(title="Accuracy by reward", xlabel="step of PPO")
    accuracy.set_ylim(0, 1)
    cut.set_ylim(bottom=0)


def lines(
    axis: Any, steps: Sequence[float], seeds: list[list[float]], colour: str, name: str, style: str = "-"
) -> None:
    """A line at the mean over seeds, a dot for each."""
    means = [statistics.mean(column) for column in zip(*seeds, strict=True)]
    axis.plot(steps, means, style, color=colour, label=name)
    for values in seeds:
        axis.plot(steps, values, "o", color=colour, markersize=3, alpha=0.5)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS)
