"""SWiRL's sets against one another, and against imitation: `python benchmarks/swirl_sets.py [--seeds 2] [--runs DIR]`.

For each seed `rlsys train swirl/tiny` generates, judges and trains on the process set. From the weights and the file
that it leaves, the same stage trains on the other sets, and once more supervised (`stages.swirl.kind=sft`): nothing is
played or judged again. Runs that are done are not repeated. Writes every run's numbers into `docs/swirl_sets.json`,
prints them with the spread over seeds, and draws `docs/swirl_sets.svg`; `--collect` takes the runs that are done,
`--draw` what was written.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import study
from report import Report, parser
from study import ROOT, spread

from launch.analysis.draw import COLOURS, DARK

LEARNERS = ((-0.2, "swirl", "SWiRL", COLOURS[0]), (0.2, "sft", "imitation", COLOURS[1]))  # as they are drawn
RESULTS, PICTURE = ROOT / "docs" / "swirl_sets.json", ROOT / "docs" / "swirl_sets.svg"
FIRST = "swirl-process"  # the run that generates and judges
RUNS = (FIRST, "swirl-none", "swirl-outcome", "sft-none", "sft-process", "sft-outcome")
BEGUN = 200  # steps of the stage whose weights generated
NUMBERS = {
    "process labels": "sampled/part/process",
    "answers, sampled": "sampled/outcome",
    "answers, greedy": "greedy/outcome",
}


def changes(name: str, seed: int, runs: Path) -> list[str]:
    """Of one run; those after the first begin with what the first one left."""
    if name == FIRST:
        return [f"seed={seed}"]
    first = runs / f"{seed}-{FIRST}"
    learner, keep = name.split("-")
    return [
        f"seed={seed}",
        *(f"stages.{stage}=null" for stage in ("sft", "tries", "judged")),
        f"model.path={study.weights(first, BEGUN)}",
        f"verdicts.keep={keep}",
        f"stages.swirl.data={first / 'generated' / 'judged.jsonl'}",
        *["stages.swirl.kind=sft"] * (learner == "sft"),
    ]


def numbers(folder: Path) -> dict[str, Any] | None:
    """Before and after the stage, and what it trained on; None of a run that is not done."""
    summary = study.summary(folder)
    if summary is None:
        return None
    rows = study.rows(folder, "evaluations")
    found = {row["when"]: {name: row[key] for name, key in NUMBERS.items()} for row in rows if row["stage"] == "swirl"}
    tested = {row["when"]: row for row in rows if row["stage"] == "test"}["eval"]
    found["without the tool"] = {"answers, greedy": tested["without_tool/greedy/outcome"]}
    return found | ({"sets": summary["generated"]["judged"]} if "generated" in summary else {})


def play(seeds: int, runs: Path) -> dict[str, Any]:
    for seed in range(seeds):
        for name in RUNS:
            study.train("swirl/tiny", runs / f"{seed}-{name}", changes(name, seed, runs))
    return collect(seeds, runs)


def collect(seeds: int, runs: Path) -> dict[str, Any]:
    """Of the runs that are done."""
    names = [f"{seed}-{name}" for seed in range(seeds) for name in RUNS]
    return {name: run for name in names if (run := numbers(runs / name)) is not None}


def of_seeds(found: dict[str, dict[str, Any]], name: str, when: str) -> list[dict[str, float]]:
    """A run's evaluations, of every seed whose run is done."""
    return [run[when] for key, run in found.items() if key.partition("-")[2] == name]


def tell(report: Report, found: dict[str, dict[str, Any]]) -> None:
    """Means over the seeds, with the smallest and the largest."""
    report.head("after training on", "seeds", *NUMBERS)
    rows = {"nothing": of_seeds(found, FIRST, "before")} | {name: of_seeds(found, name, "after") for name in RUNS}
    for name, each in rows.items():
        if not each:
            continue
        report.row(name, len(each), *(spread([one[number] for one in each]) for number in NUMBERS))


def draw(found: dict[str, dict[str, Any]]) -> None:
    title, note = "SWiRL and imitation of the same steps, by filter", "bars: means of the seeds; dots: each of them"
    with study.picture(PICTURE, title, note, sharey=True) as grid:
        for axis, number in zip(grid, ("process labels", "answers, sampled"), strict=True):
            before = [run[number] for run in of_seeds(found, FIRST, "before")]
            axis.axhline(statistics.mean(before), color=DARK, linestyle="--", linewidth=1, label="before")
            for offset, learner, label, colour in LEARNERS:
                names = ("none", "process", "outcome")
                values = [[run[number] for run in of_seeds(found, f"{learner}-{name}", "after")] for name in names]
                places = [at + offset for at in range(len(names))]
                means = [statistics.mean(each or [math.nan]) for each in values]  # no bar where no run is done
                axis.bar(places, means, 0.36, color=colour, label=label, alpha=0.6)
                for place, each in zip(places, values, strict=True):
                    axis.plot([place] * len(each), each, "o", color=DARK, markersize=3)
            axis.set_xticks(range(3), ["no filter", "process", "outcome"])
            what = "good steps" if number == "process labels" else "right answers, sampled"
            axis.set(title=what.capitalize(), ylabel="share", ylim=(0, 1.02))


if __name__ == "__main__":
    given = study.add_options(parser(__doc__), RESULTS, seeds=(0, 1))
    given.add_argument("--collect", action="store_true", help="train nothing, take the runs of --runs that are done")
    options = given.parse_args()
    measured, _ = study.measured(options, RESULTS, collect if options.collect else play)
    draw(measured)
    with Report(options) as made:
        tell(made, measured)
