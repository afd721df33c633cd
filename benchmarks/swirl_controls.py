"""SWiRL in miniature against fair opponents: `python benchmarks/swirl_controls.py [--seeds 0 1 2 3 4] [--runs DIR]`.

Questions of three hops, and a judge of steps that errs in 15 of 100 verdicts. For each seed `rlsys train
swirl/ablations/tiny-hops` teaches a policy to answer too soon, lets it play, judges, and trains on the trajectories
whose steps are all GOOD. From the weights and the file that it leaves: other sets, imitation of the same set, and
imitation of every GOOD step alone, whatever its trajectory is worth. Runs that are done are not repeated. Writes every
run's numbers into `docs/swirl_controls.json`, and prints them with what became of the predictions.
"""

from __future__ import annotations

import json
from pathlib import Path

import study
import swirl
from report import Report
from study import ROOT, Arms, ArmsBySeed, Prediction
from swirl import FIRST, IMITATION, NONE, TAUGHT, after, before, less

from envs.papers.swirl.sub_trajectories import decompose
from envs.text.words import step_verdict
from rlsys.jsonl import json_object
from rlsys.records import read_trajectory

RESULTS = ROOT / "docs" / "swirl_controls.json"
RECIPE = "swirl/ablations/tiny-hops"
STEPS = "sft-good-steps"  # imitates steps, and not trajectories
ALL = "swirl-all"  # every state of every trajectory, as many as the good steps are from
NUMBERS = ("greedy", "sampled")  # right answers; the judge's own labels are turned round as its verdicts are
OUTCOME = ["verdicts.keep=outcome"]
ARMS: dict[str, list[str]] = {
    FIRST: [],
    "swirl-none": NONE,
    ALL: [*NONE, "verdicts.equal=false"],
    "swirl-outcome": OUTCOME,
    "swirl-both": ["verdicts.keep=both"],
    "sft-process": IMITATION,
    "sft-outcome": OUTCOME + IMITATION,
    STEPS: [*NONE, "verdicts.equal=false", *IMITATION, "stages.swirl.loop.groups_per_step=256"],  # SWiRL's actions
}
COMPARED = (
    (FIRST, "sft-process"),
    ("swirl-outcome", "sft-outcome"),
    (ALL, STEPS),
    (FIRST, "swirl-none"),
    (FIRST, "swirl-outcome"),
    (FIRST, "swirl-both"),
)

# Written before any run of this world. The last four are the paper's.
PREDICTIONS = (
    Prediction(
        "the taught policy's greedy answer is right in at most 20 % of the questions",
        lambda arms: before(FIRST)(arms) <= 0.2,
        share=1.0,
    ),
    Prediction(
        "figure 8: on the set whose steps are GOOD, SWiRL's sampled answers are right at least 0.03 more often than "
        "those of imitation",
        lambda arms: less(after(FIRST, "sampled"), after("sft-process", "sampled"))(arms) >= 0.03,
    ),
    Prediction(
        "figure 8: on all states, they are right at least 0.03 more often than those of imitation of all GOOD steps",
        lambda arms: less(after(ALL, "sampled"), after(STEPS, "sampled"))(arms) >= 0.03,
    ),
    Prediction(
        "figure 4: they are right at least as often after the set whose steps are GOOD as after all trajectories",
        lambda arms: less(after(FIRST, "sampled"), after("swirl-none", "sampled"))(arms) >= 0,
    ),
    Prediction(
        "figure 4: and as after the set whose answers are right",
        lambda arms: less(after(FIRST, "sampled"), after("swirl-outcome", "sampled"))(arms) >= 0,
    ),
)


def write_good_steps(judged: Path, output: Path) -> None:
    """Each step that was judged GOOD as an answer of its own, to the state that it was taken in."""
    with judged.open("rb") as lines, output.open("w") as file:
        for number, line in enumerate(lines, start=1):
            where = f"{judged} line {number}"
            trajectory = read_trajectory(json_object(line, where), where)
            for step, judgement in zip(decompose(trajectory), trajectory.judgements, strict=True):
                if step_verdict(judgement) == "GOOD":
                    prompt, action = (
                        [{"role": message.role, "content": message.content} for message in part]
                        for part in (step.state, (step.action,))
                    )
                    file.write(json.dumps({"task_id": step.name, "prompt": prompt, "messages": action}) + "\n")


def play_seed(seed: int, runs: Path) -> dict[str, Arms]:
    """The first teaches, plays and judges, once for all."""
    first, arms = runs / f"{seed}-{FIRST}", {}
    judged, good = first / "generated" / "judged.jsonl", runs / f"{seed}-good-steps.jsonl"
    for name, changes in ARMS.items():
        start = [f"stages.{stage}=null" for stage in ("sft", "tries", "judged")]
        start += [
            f"model.path={study.weights(first, TAUGHT)}",
            f"stages.swirl.data={good if name == STEPS else judged}",
        ]
        if name == STEPS and judged.is_file():
            write_good_steps(judged, good)
        seeds = [f"seed={seed}", f"env.seed={seed}", "report=none"]
        study.train(RECIPE, runs / f"{seed}-{name}", [*seeds, *([] if name == FIRST else start), *changes])
        arms[name] = swirl.numbers(runs / f"{seed}-{name}")
    return arms


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest; then what differs from what."""
    report.head("after", *NUMBERS)
    rows = {"the taught policy": [arms[FIRST]["before"] for arms in by_seed.values()]}
    rows |= {name: [arms[name]["after"] for arms in by_seed.values()] for name in ARMS}
    swirl.tell_rows(report, by_seed, rows, COMPARED, NUMBERS)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, predictions=PREDICTIONS)
