"""On-policy distillation and supervised training on one teacher: `python benchmarks/distill.py [--seeds 1 2 3 4]`.

For each seed the quickstart makes the teacher: taught by demonstrations that are wrong, then reinforced. The student is
what it was before it was reinforced, and learns from the teacher in two ways, with 3,840 solutions of training problems
each: on the teacher's solutions, supervised (`sft`); and on its own solutions with the teacher's log-probabilities
(`opd`). After each the accuracy of sampled answers on held-out problems is measured, and the reverse KL divergence from
the teacher on the student's own tokens. Runs that are done are not repeated. Writes every run's numbers into
`docs/distill.json` and draws `docs/distill.svg`; `--draw` takes what is there.

Seed 0 was a trial, of another student: one of a fifth of the size, which 40 steps of demonstrations had left without
the protocol. Supervised training once left it right in 0.005 of its answers, so nothing could be compared.
"""

from __future__ import annotations

from pathlib import Path

import study
from report import Report
from study import ROOT, spread

from launch.tools.analysis.draw import COLOURS

RESULTS = ROOT / "docs" / "distill.json"
RECIPE = "benchmarks/distill.yaml"
TAUGHT, REINFORCED = 200, 45  # steps of the teacher's two stages
ARMS = ("start", "sft", "opd")
MEASURES = {"accuracy": "Held-out accuracy", "divergence": "Reverse KL from the teacher (nats per token)"}
PREDICTIONS = (
    study.Prediction(
        "the accuracy of opd is at most 0.02 below that of supervised training on as many solutions",
        lambda arms: arms["opd"]["accuracy"] >= arms["sft"]["accuracy"] - 0.02,
    ),
    study.Prediction(
        "its reverse KL from the teacher is at most half of that after supervised training",
        lambda arms: arms["opd"]["divergence"] <= 0.5 * arms["sft"]["divergence"],
    ),
    study.Prediction(
        "the accuracy of opd is at least 0.3 above the student's, and at most 0.1 below the teacher's",
        lambda arms: arms["opd"]["accuracy"] >= max(arms["start"]["accuracy"] + 0.3, arms["teacher"]["accuracy"] - 0.1),
    ),
)


def play_seed(seed: int, runs: Path) -> study.Arms:
    """The teacher, the student's beginning, and each way of going on from there."""
    seeds, teaching = [f"seed={seed}", f"env.seed={seed}"], runs / f"{seed}-teacher"
    study.train("quickstart", teaching, [*seeds, "eval.greedy=false", "checkpoint.keep=9"])
    teacher, student = study.weights(teaching, TAUGHT + REINFORCED), study.weights(teaching, TAUGHT)
    study.train(RECIPE, runs / f"{seed}-tries", [*seeds, f"model.path={teacher}", *without("sft", "opd", "measure")])
    solutions = runs / f"{seed}-tries" / "generated" / "tries.jsonl"
    compared = [*seeds, f"learner.reference={teacher}", f"model.path={student}"]
    study.train(RECIPE, runs / f"{seed}-start", [*compared, *without("tries", "sft", "opd")])
    supervised = [*compared, *without("tries", "opd"), f"stages.sft.data={solutions}"]
    study.train(RECIPE, runs / f"{seed}-sft", supervised)
    study.train(RECIPE, runs / f"{seed}-opd", [*compared, *without("tries", "sft")])
    arms = {name: measured(runs / f"{seed}-{name}") for name in ARMS}
    ended = study.rows(teaching, "evaluations")[-1]
    return arms | {"teacher": {"accuracy": ended["sampled/accuracy"]}}


def without(*stages: str) -> list[str]:
    return [f"stages.{name}=null" for name in stages]


def measured(folder: Path) -> dict[str, float]:
    """Before the stage that trains nothing, and in its only step."""
    (accuracy, *_) = [row for row in study.rows(folder, "evaluations") if row["stage"] == "measure"]
    (step,) = [row for row in study.rows(folder, "metrics") if row["stage"] == "measure"]
    return {"accuracy": accuracy["sampled/accuracy"], "divergence": -step["advantage/mean"]}


def tell(report: Report, by_seed: study.ArmsBySeed) -> None:
    report.head("the student, after", "accuracy", "reverse KL from the teacher (nats per token)")
    for name in ARMS:
        report.row(name, *(spread([arms[name][key] for arms in by_seed.values()]) for key in MEASURES))
    report.row("the teacher itself", spread([arms["teacher"]["accuracy"] for arms in by_seed.values()]), "0")
    report.head("opd less", *MEASURES)
    for name in ARMS[:-1]:
        report.row(name, *(_less(by_seed, name, key) for key in MEASURES))


def _less(by_seed: study.ArmsBySeed, name: str, key: str) -> str:
    return study.paired(by_seed, lambda arms: arms["opd"][key] - arms[name][key])


def draw(by_seed: study.ArmsBySeed, path: Path) -> None:
    """Each way of learning: a dot for each seed."""
    note = f"dots: {len(by_seed)} seeds; dashed: the teachers' mean"
    with study.picture(path, "A policy taught by what reinforcement made of it", note) as grid:
        for axis, (key, title) in zip(grid, MEASURES.items(), strict=True):
            for place, (name, colour) in enumerate(zip(ARMS, COLOURS, strict=False)):
                values = [arms[name][key] for arms in by_seed.values()]
                axis.plot([place] * len(values), values, "o", color=colour)
            axis.set(title=title, xlim=(-0.5, len(ARMS) - 0.5))
            axis.set_ylim(bottom=0)
            axis.set_xticks(range(len(ARMS)), list(ARMS))
        teachers = [arms["teacher"]["accuracy"] for arms in by_seed.values()]
        grid[0].axhline(sum(teachers) / len(teachers), linestyle="--", color="grey")


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, draw=draw, predictions=PREDICTIONS, seeds=(1, 2, 3, 4))
