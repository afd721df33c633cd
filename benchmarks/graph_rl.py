"""Graph-RL in miniature: `python benchmarks/graph_rl.py [--seeds 2] [--runs DIR]`, two rewards by two algorithms.

For each seed `rlsys train graph_rl/tiny` teaches and then trains by GRPO with the process reward. From the weights that
its first stage leaves, GRPO with the solution reward and DPO with both begin too. Runs that are done are not repeated.
Writes every run's numbers into `docs/graph_rl.json`, prints them with the spread over seeds, and draws
`docs/graph_rl.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import study
from report import Report, parser
from study import ROOT, spread

from launch.analysis.draw import COLOURS, DARK

RESULTS, PICTURE = ROOT / "docs" / "graph_rl.json", ROOT / "docs" / "graph_rl.svg"
FIRST = "grpo-process"  # the run that is taught
RUNS = {
    FIRST: ("graph_rl/tiny", "process"),
    "grpo-solution": ("graph_rl/tiny", "solution"),
    "dpo-process": ("graph_rl/ablations/tiny-dpo", "process"),
    "dpo-solution": ("graph_rl/ablations/tiny-dpo", "solution"),
}
TAUGHT = 400  # steps of the first stage
NUMBERS = {
    "accuracy, greedy": "graphs/greedy/accuracy",
    "accuracy, sampled": "graphs/sampled/accuracy",
    "invented steps, sampled": "graphs/sampled/hallucinated_steps",
    "process reward, sampled": "graphs/sampled/mean_reward",
}
NO = "answers of no, sampled"


def numbers(folder: Path) -> dict[str, Any]:
    """Before and after the last stage."""
    rows = study.rows(folder, "evaluations")
    last = rows[-1]["stage"]
    found = {}
    for row in rows:
        if row["stage"] == last:
            answers = study.answers(folder, f"eval-{last}-{row['when']}-graphs-sampled")
            found[row["when"]] = {name: row.get(key, 0.0) for name, key in NUMBERS.items()}
            found[row["when"]][NO] = statistics.mean("The answer is no." in text for text in answers)
    return found


def play(seeds: int, runs: Path) -> dict[str, Any]:
    """Of each run its numbers; those after a seed's first begin with what its first stage left."""
    found = {}
    for seed in range(seeds):
        for name, (config, kind) in RUNS.items():
            folder = runs / f"{seed}-{name}"
            changes = [f"seed={seed}", f"env.seed={seed}", f"reward.kind={kind}"]
            if name != FIRST:
                changes += ["stages.sft=null", f"model.path={study.weights(runs / f'{seed}-{FIRST}', TAUGHT)}"]
            study.train(config, folder, changes)
            found[f"{seed}-{name}"] = numbers(folder)
    return found


def tell(report: Report, found: dict[str, dict[str, Any]], seeds: int) -> None:
    """Means over the seeds, with the smallest and the largest."""
    report.head("after", *NUMBERS, NO)
    rows = {"demonstrations": [found[f"{seed}-{FIRST}"]["before"] for seed in range(seeds)]}
    rows |= {name: [found[f"{seed}-{name}"]["after"] for seed in range(seeds)] for name in RUNS}
    for name, each in rows.items():
        report.row(name, *(spread([one[number] for one in each]) for number in (*NUMBERS, NO)))


def draw(found: dict[str, dict[str, Any]], seeds: int) -> None:
    title = "What a reward for each step changes"
    note = f"bars: means of {seeds} seeds; dots: each of them; greedy answers are in the table"
    with study.picture(PICTURE, title, note) as grid:
        for axis, number in zip(grid, ("accuracy, sampled", "invented steps, sampled"), strict=True):
            before = [found[f"{seed}-{FIRST}"]["before"][number] for seed in range(seeds)]
            axis.axhline(statistics.mean(before), color=DARK, linestyle="--", linewidth=1, label="before")
            for place, name in enumerate(RUNS):
                values = [found[f"{seed}-{name}"]["after"][number] for seed in range(seeds)]
                reward = "process reward" if "process" in name else "solution reward"
                first = place == next(at for at, each in enumerate(RUNS) if ("process" in each) == ("process" in name))
                colour = COLOURS["solution" in reward]
                axis.bar(place, statistics.mean(values), 0.6, color=colour, alpha=0.6, label=reward if first else None)
                axis.plot([place] * len(values), values, "o", color=DARK, markersize=3)
            axis.set_xticks(range(len(RUNS)), [name.replace("-", "\n") for name in RUNS])
            axis.set(title=number.capitalize(), ylabel="share of answers" if "accuracy" in number else "share of steps")


if __name__ == "__main__":
    options = study.add_options(parser(__doc__), RESULTS, seeds=(0, 1)).parse_args()
    measured = study.measured(options, RESULTS, play)
    draw(*measured)
    with Report(options) as made:
        tell(made, *measured)
