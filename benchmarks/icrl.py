"""ICRL in miniature: `python benchmarks/icrl.py [--seeds 5 6 7 8 9] [--runs DIR]`, with fading examples and without.

For each seed `rlsys train icrl/tiny` teaches a policy to search and to read, and then not to, unless its prompt has
examples; then it goes through stages with three examples, two, one and none. From the weights that the teaching
leaves, two more runs have as many steps: without the stage of one example, as the paper's have it, and without any
example. Runs that are done are not repeated. Writes the numbers into `docs/icrl.json`, prints them with the spread over
seeds and what became of the predictions, and draws `docs/icrl.svg`; `--draw` takes what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import study
from report import Report
from study import ROOT, Prediction, spread

from launch.tools.analysis.draw import COLOURS, DARK, GREY

RESULTS = ROOT / "docs" / "icrl.json"
TAUGHT, STEPS = 650, 60  # of the teaching, and of reinforcement learning in each run
FADING, SKIPPING, NONE = "examples", "skipping", "none"
RUNS = {FADING: "3, 2, 1 and no examples", SKIPPING: "3, 2 and no examples", NONE: "no examples"}
SHOWN = {  # steps at which a run's prompts change, and how many examples they then have
    FADING: ((1, "3 examples"), (13, "2"), (19, "1"), (25, "none")),
    SKIPPING: ((1, "3 examples"), (13, "2"), (25, "none")),
    NONE: ((1, "none"),),
}
GREEDY, SAMPLED = "exact match, greedy", "exact match, sampled"
HALF = "step at which half of the episodes without examples search"
GATE = "exact match of those that search, after three examples"

# Written before seeds 5 to 9 ran. Of seeds 0 to 3 an earlier study is known (docs/icrl_3_2_0.json), of 40 steps: with
# 3, 2 and no examples 2 of 4 seeds learned the search, without any none did. From the weights of the two that did not,
# 3, 2, 1 and no examples reached 0.36 and 0.76, sampled, in 40 steps, and were rising.
PREDICTIONS = (
    Prediction(
        "with 3, 2, 1 and no examples greedy exact match without examples is at least 0.8 at the end",
        lambda arms: arms[FADING]["end"][GREEDY] >= 0.8,
    ),
    Prediction(
        "without any examples it is below 0.3, greedy and sampled",
        lambda arms: max(arms[NONE]["end"].values()) < 0.3,
    ),
    Prediction(
        "with 3, 2, 1 and no examples half of the episodes without examples search at least 10 steps earlier, all "
        "steps counted",
        lambda arms: (arms[FADING][HALF] or STEPS) + 10 <= (arms[NONE][HALF] or STEPS + 1),
    ),
    Prediction(
        "greedy exact match with 3, 2 and no examples is not higher by more than 0.05",
        lambda arms: arms[SKIPPING]["end"][GREEDY] <= arms[FADING]["end"][GREEDY] + 0.05,
    ),
)


def changes(name: str, seed: int, runs: Path) -> list[str]:
    """Of one run; those but the first begin with what its teaching left."""
    seeds = [f"seed={seed}", f"env.seed={seed}", "report=none"]
    if name == FADING:
        return [*seeds, "checkpoint.keep=9"]
    taught = study.weights(runs / f"{seed}-{FADING}", TAUGHT)
    left_out, longer = {
        SKIPPING: (["shots_1"], "stages.shots_2.steps=12"),
        NONE: (["shots_3", "shots_2", "shots_1"], f"stages.shots_0.steps={STEPS}"),
    }[name]
    skipped_stages = [f"stages.{stage}=null" for stage in ("read", "follow", *left_out)]
    return [*seeds, *skipped_stages, longer, f"model.path={taught}"]


def numbers(folder: Path) -> dict[str, Any]:
    """Before reinforcement learning and at its end, without examples, and who searched at each step."""
    evaluations, metrics = study.rows(folder, "evaluations"), study.rows(folder, "metrics")
    (tested,) = (row for row in evaluations if row["stage"] == "test")
    steps = [row for row in metrics if row["stage"].startswith("shots")]
    calls = [round(row.get("episode/calls", 0.0), 4) for row in steps]
    alone = ((step, row["stage"], count) for step, (row, count) in enumerate(zip(steps, calls, strict=True), 1))
    return {
        "before": {SAMPLED: evaluations[0]["zero_shot/sampled/exact_match"]},
        "end": {kind: tested[f"zero_shot/{kind.split()[-1]}/exact_match"] for kind in (GREEDY, SAMPLED)},
        HALF: next((step for step, stage, count in alone if stage == "shots_0" and count >= 0.5), None),
        "searches": calls,
    }


def gate(folder: Path) -> dict[str, float]:
    """Whether the policy that examples are shown to can read: of its answers after three, before any reward."""
    played = study.episodes(folder, "eval-shots_3-before-examples_3-sampled")
    searched = [episode for episode in played if len(episode["messages"]) > 1]
    right = [episode for episode in searched if episode["parts"]["accuracy"] > 0]
    return {"searched": len(searched) / len(played), GATE: len(right) / max(1, len(searched))}


def play_seed(seed: int, runs: Path) -> study.Arms:
    arms = {}
    for name in RUNS:
        folder = runs / f"{seed}-{name}"
        study.train("icrl/tiny", folder, changes(name, seed, runs))
        arms[name] = numbers(folder)
    return arms | {"taught": gate(runs / f"{seed}-{FADING}")}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest, and the mean of the differences with its interval."""
    taught = [arms["taught"] for arms in by_seed.values()]
    report.head("taught, three examples in the prompt", "searched", GATE)
    report.row("before any reward", *(spread([run[key] for run in taught]) for key in ("searched", GATE)))
    report.head(f"no example in the prompt, {STEPS} steps", GREEDY, SAMPLED, HALF)
    before = [arms[FADING]["before"][SAMPLED] for arms in by_seed.values()]
    report.row("supervised alone", None, spread(before), None)
    for name, label in RUNS.items():
        runs = [arms[name] for arms in by_seed.values()]
        halves = ", ".join(str(run[HALF] or "never") for run in runs)
        report.row(label, *(spread([run["end"][kind] for run in runs]) for kind in (GREEDY, SAMPLED)), halves)
    for baseline in (SKIPPING, NONE):
        differences = [_less(by_seed, baseline, kind) for kind in (GREEDY, SAMPLED)]
        report.row(f"{RUNS[FADING]}, less {RUNS[baseline]}", *differences, None)


def _less(by_seed: study.ArmsBySeed, baseline: str, kind: str) -> str:
    return study.paired(by_seed, lambda arms: arms[FADING]["end"][kind] - arms[baseline]["end"][kind])


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    title = "Searches, with examples that fade and without any"
    note = f"thin lines: {len(by_seed)} seeds; thick line: their mean; sampled episodes of each training step"
    with study.picture(path, title, note, columns=len(RUNS), sharey=True) as grid:
        for axis, (name, label), colour in zip(grid, RUNS.items(), COLOURS, strict=False):
            curves = [arms[name]["searches"] for arms in by_seed.values()]
            study.plot_seeds(axis, range(1, 1 + min(map(len, curves))), curves, colour)
            for step, text in SHOWN[name]:
                axis.axvline(step, color=GREY, linewidth=0.7, linestyle=":")
                axis.text(step + 0.5, 1.08, text, color=DARK, fontsize=8)
            axis.set(title=label.capitalize(), xlabel="step", ylabel="searches per episode", ylim=(0, 1.2))


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS, seeds=(5, 6, 7, 8, 9))
