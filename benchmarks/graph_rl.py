"""Graph-RL in miniature: a reader of graphs whose habits were spoilt, then two rewards by two algorithms.

    python benchmarks/graph_rl.py [--seeds 0 1 2 3 4] [--runs DIR]

For each seed `rlsys train graph_rl/tiny` teaches a policy to read graphs, spoils its habits, and trains it by GRPO with
the process reward. From the same spoilt weights begin GRPO with the solution reward, and DPO with both. Runs that are
done are not repeated. Writes every seed's numbers into `docs/graph_rl.json`, prints them with what became of each
prediction, and draws `docs/graph_rl.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import study
from report import Report
from study import ROOT, Arms, ArmsBySeed, Prediction, spread

from launch.tools.analysis.draw import COLOURS, DARK

RESULTS = ROOT / "docs" / "graph_rl.json"
FIRST = "grpo-process"  # the run that teaches
ARMS = {
    FIRST: ("graph_rl/tiny", "process"),
    "grpo-solution": ("graph_rl/tiny", "solution"),
    "dpo-process": ("graph_rl/ablations/tiny-dpo", "process"),
    "dpo-solution": ("graph_rl/ablations/tiny-dpo", "solution"),
}
TEACHING = ("read", "reader", "spoilt")  # stages of the first run before its last
TAUGHT = 880  # their steps
NUMBERS = {  # as the table and the file call them, and as an evaluation does
    "right by real steps": "sampled/right_by_real_steps",
    "accuracy": "sampled/accuracy",
    "accuracy, greedy": "greedy/accuracy",
    "invented steps": "sampled/hallucinated_steps",
    "process reward": "sampled/mean_reward",
}
NO = "answers of no"
Counts = Mapping[str, Callable[[str], float]]  # of one answer; the mean over those that were sampled is shown
COUNTS: Counts = {NO: lambda text: "The answer is no." in text}
LARGER, OF_LARGER = "right by real steps, greedy, 7 and 8 nodes", "larger/greedy/right_by_real_steps"
DIFFERENCES = ("right by real steps", "accuracy", "invented steps")
PAIRS = (
    ("grpo-process", "grpo-solution"),
    ("dpo-process", "dpo-solution"),
    ("grpo-process", "dpo-process"),
    ("grpo-solution", "dpo-solution"),
)


def after(arms: Arms, name: str, number: str) -> float:
    return float(arms[name]["after"][number])


def real(arms: Arms, name: str) -> float:
    return after(arms, name, "right by real steps")


# Written before the seeds 0 to 4 ran; settings were chosen on the seeds from 100 on. The third is the paper's claim,
# which seed 100 contradicted (accuracy 0.801 and 0.871).
PREDICTIONS = (
    Prediction(
        "the reader is right in at least 0.85 of its greedy answers",
        lambda arms: arms[FIRST]["reader"]["accuracy, greedy"] >= 0.85,
    ),
    Prediction(
        "GRPO: right by real steps at least 0.15 higher with the process reward than with the solution reward",
        lambda arms: real(arms, "grpo-process") - real(arms, "grpo-solution") >= 0.15,
        share=1.0,
    ),
    Prediction(
        "GRPO: accuracy with the process reward not below that with the solution reward by more than 0.02",
        lambda arms: after(arms, "grpo-process", "accuracy") - after(arms, "grpo-solution", "accuracy") >= -0.02,
    ),
    Prediction(
        "process reward: accuracy higher by GRPO than by DPO",
        lambda arms: after(arms, "grpo-process", "accuracy") > after(arms, "dpo-process", "accuracy"),
    ),
)


def numbers(folder: Path, counts: Counts = COUNTS) -> dict[str, dict[str, float]]:
    """Before and after the last stage; in the run that teaches also of the `reader`. Only what was counted."""
    arm = {}
    for row in study.rows(folder, "evaluations"):
        when = "reader" if row["stage"] == "reader" else row["when"]
        arm[when] = {name: row[f"graphs/{key}"] for name, key in NUMBERS.items() if f"graphs/{key}" in row}
        if when != "reader":
            arm[when].setdefault("invented steps", 0.0)  # nothing is counted where no answer has a step
            arm[when] |= {LARGER: row[OF_LARGER]} if OF_LARGER in row else {}
            answers = study.answers(folder, f"eval-{row['stage']}-{when}-graphs-sampled")
            arm[when] |= {name: statistics.mean(map(count, answers)) for name, count in counts.items()}
    return arm


def play_seed(seed: int, runs: Path) -> Arms:
    return play_arms(ARMS, TAUGHT, numbers, seed, runs)


def play_arms(
    arms: Mapping[str, tuple[str, str]], taught: int, numbers: Callable[[Path], Arms], seed: int, runs: Path
) -> Arms:
    """Of each arm its numbers; all but the first begin with what its supervised stages left, after `taught` steps."""
    by_arm: Arms = {}
    for name, (config, kind) in arms.items():
        folder = runs / f"{seed}-{name}"
        changes = [f"seed={seed}", f"env.seed={seed}", f"reward.kind={kind}"]
        if name != FIRST:
            changes += [f"stages.{stage}=null" for stage in TEACHING]
            changes += [f"model.path={study.weights(runs / f'{seed}-{FIRST}', taught)}"]
        study.train(config, folder, changes)
        by_arm[name] = numbers(folder)
    return by_arm


def tell(report: Report, by_seed: ArmsBySeed, extra_columns: tuple[str, ...] = (NO, LARGER)) -> None:
    """Means over the seeds, with the smallest and the largest; then differences, and what was predicted.

    extra_columns: columns after those that are always there.
    """
    columns = (*NUMBERS, *extra_columns)
    report.head("after", *columns)
    rows = {"learning to read": (FIRST, "reader"), "the bad habits": (FIRST, "before")}
    for title, (name, when) in (rows | {name: (name, "after") for name in ARMS}).items():
        runs = [arms[name][when] for arms in by_seed.values()]
        report.row(title, *(spread([run[column] for run in runs]) if column in runs[0] else None for column in columns))
    report.head("mean difference over seeds, and its 95 % interval", *DIFFERENCES)
    for a, b in PAIRS:
        report.row(f"{a} less {b}", *(study.paired(by_seed, partial(difference, a, b, key)) for key in DIFFERENCES))


def difference(a: str, b: str, number: str, arms: Arms) -> float:
    return after(arms, a, number) - after(arms, b, number)


def draw(by_seed: ArmsBySeed, path: Path, title: str = "What a reward for each step changes") -> None:
    note = f"sampled answers; bars: means of {len(by_seed)} seeds; dots: each of them"
    with study.picture(path, title, note, columns=len(DIFFERENCES), sharey=True) as grid:
        for axis, number in zip(grid, DIFFERENCES, strict=True):
            before = statistics.mean(arms[FIRST]["before"][number] for arms in by_seed.values())
            axis.axhline(before, color=DARK, linestyle="--", linewidth=1, label="before")
            for place, name in enumerate(ARMS):
                values = [after(arms, name, number) for arms in by_seed.values()]
                reward = "process" if "process" in name else "solution"
                label = f"{reward} reward" if name.startswith("grpo") else None
                axis.bar(
                    place, statistics.mean(values), 0.6, color=COLOURS[reward == "solution"], alpha=0.6, label=label
                )
                axis.plot([place] * len(values), values, "o", color=DARK, markersize=3)
            axis.set_xticks(range(len(ARMS)), [name.replace("-", "\n") for name in ARMS])
            axis.set(title=number.capitalize(), ylim=(0, 1))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS)
