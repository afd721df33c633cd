"""Long CoT in miniature: `python benchmarks/long_cot.py [--seeds 2] [--runs DIR]`, its rewards against one another.

For each seed `rlsys train long_cot/tiny` teaches, trains by PPO with the cosine reward, and tests. From the weights
that its first stage leaves, the second also trains with the classic reward, without the penalty on repetition, and with
a discount below 1 of the outcome. Runs that are done are not repeated. Writes every run's numbers into
`docs/long_cot.json` and prints them with the spread over seeds; `--draw` takes what is there.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import study
from report import Report, parser
from study import ROOT, spread

RESULTS = ROOT / "docs" / "long_cot.json"
FIRST = "cosine"  # the run that is taught
RUNS = {
    FIRST: [],
    "classic": ["reward.kind=classic"],
    "cosine without the penalty": ["reward.repetition_penalty=0.0"],
    "discount 0.9 of the outcome": ["algorithm.discount=0.9"],
}
TAUGHT = 240  # steps of the first stage
WORD = "recheck"  # how a line of the demonstrations that is written again begins


def numbers(folder: Path) -> dict[str, Any]:
    """What became of the answers' length over the steps of the rl stage, and held-out accuracy."""
    steps = [row for row in study.rows(folder, "metrics") if row["stage"] == "rl"]
    parts = {"first": steps[:6], "second": steps[6:12], "last": steps[-6:]}
    accuracy = study.summary(folder)["eval"]["stages"]["rl"]
    return {
        "cut off, steps 1-6": _mean(parts["first"], "episode/token_limit"),
        "cut off, 7-12": _mean(parts["second"], "episode/token_limit"),
        "cut off, last 6": _mean(parts["last"], "episode/token_limit"),
        "tokens, last 6": _mean(parts["last"], "episode/tokens"),
        f'with "{WORD}", 7-12': _share(folder, parts["second"]),
        f'with "{WORD}", last 6': _share(folder, parts["last"]),
        "accuracy before": accuracy["before"]["sampled"],
        "accuracy after": accuracy["after"]["sampled"],
    }


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return statistics.mean(row[key] for row in rows)


def _share(folder: Path, rows: list[dict[str, Any]]) -> float:
    """Of the answers of these steps, those that have the word."""
    return statistics.mean(WORD in text for row in rows for text in study.answers(folder, f"step-{row['step']:06d}"))


def play(seeds: int, runs: Path) -> dict[str, Any]:
    found = {}
    for seed in range(seeds):
        taught = runs / f"{seed}-{FIRST}"
        for name, changes in RUNS.items():
            folder = runs / f"{seed}-{name.replace(' ', '-')}"
            start = [f"seed={seed}"]
            if name == FIRST:
                start.append("checkpoint.keep=9")  # the first stage's too
            else:
                start += ["stages.sft=null", "stages.test=null", f"model.path={study.weights(taught, TAUGHT)}"]
            study.train("long_cot/tiny", folder, [*start, *changes])
            found[f"{seed}-{name}"] = numbers(folder)
    return found


if __name__ == "__main__":
    options = study.add_options(parser(__doc__), RESULTS, seeds=(0, 1)).parse_args()
    measured, seeds = study.measured(options, RESULTS, play)
    with Report(options) as made:
        columns = list(measured[f"0-{FIRST}"])
        made.head("", *columns)
        for name in RUNS:
            each = [measured[f"{seed}-{name}"] for seed in range(seeds)]
            made.row(name, *(spread([one[column] for one in each]) for column in columns))
