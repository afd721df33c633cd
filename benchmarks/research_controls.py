"""ReSearch in miniature, and what of it is the outcome's: `python benchmarks/research_controls.py [--runs DIR]`.

For each seed `rlsys train research/tiny` as it is, with what the policy samples before any reward; from the weights
that its first stage leaves, the same stage of reinforcement with the 0.1 for the right form alone; and the whole again
with demonstrations of which none searches twice. Runs that are done are not repeated. Writes every seed's numbers into
`docs/research_controls.json`, and prints them with what became of the predictions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import research
import study
from report import Report
from research import CALLS, MATCH
from study import ROOT, Arms, ArmsBySeed, Prediction, spread

RESULTS = ROOT / "docs" / "research_controls.json"
TAUGHT, SAMPLES = 300, 8  # steps of the supervised stage; answers to each question before any reward
ONE, FORM, NO = "one in ten searches twice", "the same, form alone", "none searches twice"
ARMS: dict[str, list[str]] = {
    ONE: [],
    FORM: ["stages.rl.reward.form_alone=true"],
    NO: ["env.demo_error_rate=1.0"],
}
TWICE, RIGHT, ANY = "search twice", "are right", "questions with a right one of 8"


def numbers(folder: Path) -> Arms:
    """Greedy evaluations during the rl stage, by its step; of a run that teaches also what it samples before."""
    before = study.episodes(folder, "eval-before-*-research-sampled")
    return {"curve": research.curve(folder)} | ({"sampled": sampled(before)} if before else {})


def sampled(episodes: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What a policy samples: shares of its answers, and of the questions."""
    name_of: Callable[[dict[str, Any]], str] = lambda episode: str(episode["task"]["task_id"])  # noqa: E731
    by_task = [list(group) for _, group in groupby(sorted(episodes, key=name_of), name_of)]
    return {
        TWICE: statistics.mean(searches(episode) >= 2 for episode in episodes),
        RIGHT: statistics.mean(is_right(episode) for episode in episodes),
        ANY: statistics.mean(any(map(is_right, group)) for group in by_task),
    }


def searches(episode: dict[str, Any]) -> int:
    return sum(
        str(message["content"]).count("</search>") for message in episode["messages"] if message["role"] == "assistant"
    )


def is_right(episode: dict[str, Any]) -> bool:
    return float(episode["parts"]["f1"]) >= 1.0


def gain(arms: Arms, arm: str) -> float:
    """In greedy exact match, of the stage of reinforcement."""
    ends = [
        float(arms[arm]["curve"][step][MATCH])
        for step in (min(arms[arm]["curve"], key=int), max(arms[arm]["curve"], key=int))
    ]
    return ends[1] - ends[0]


# Written before any of these runs. The last is the paper's claim where nothing shows a second search.
PREDICTIONS = (
    Prediction("one in ten: greedy exact match rises by at least 0.4", lambda arms: gain(arms, ONE) >= 0.4),
    Prediction("one in ten, by the form alone: it rises by at most 0.05", lambda arms: gain(arms, FORM) <= 0.05),
    Prediction(
        "none: at most 0.01 of the sampled answers search twice before any reward",
        lambda arms: arms[NO]["sampled"][TWICE] <= 0.01,
    ),
    Prediction("none: greedy exact match rises by at least 0.4", lambda arms: gain(arms, NO) >= 0.4),
)


def folder_of(runs: Path, seed: int, name: str) -> Path:
    return runs / f"{seed}-{name.replace(', ', '-').replace(' ', '-')}"


def play_seed(seed: int, runs: Path) -> Arms:
    arms: Arms = {}
    for name, changes in ARMS.items():
        folder = folder_of(runs, seed, name)
        changes = [f"seed={seed}", f"env.seed={seed}", "report=none", "stages.test=null", *changes]
        if name == FORM:
            taught = study.weights(folder_of(runs, seed, ONE), TAUGHT)
            changes += ["stages.sft=null", "stages.before=null", f"model.path={taught}"]
        else:
            changes += ["checkpoint.keep=9", f"stages.before.eval={{sets: {{research: {{samples: {SAMPLES}}}}}}}"]
        study.train("research/tiny", folder, changes)
        arms[name] = numbers(folder)
    return arms


def tell(report: Report, by_seed: ArmsBySeed) -> None:
    """Means over the seeds, with the smallest and the largest."""
    report.head("sampled before any reward: answers that", TWICE, RIGHT, ANY)
    for name in (ONE, NO):
        rows = [arms[name]["sampled"] for arms in by_seed.values()]
        report.row(name, *(spread([row[number] for row in rows]) for number in (TWICE, RIGHT, ANY)))
    for number in (MATCH, CALLS):
        steps = list(next(iter(by_seed.values()))[ONE]["curve"])
        report.head(f"{number}, greedy", *(f"after {step} steps" for step in steps))
        for name in ARMS:
            curves = [arms[name]["curve"] for arms in by_seed.values()]
            report.row(name, *(spread([curve[step][number] for curve in curves]) for step in steps))
    report.head("difference over the seeds", "with its 95 % interval")
    for name in (FORM, NO):
        difference = study.paired(by_seed, partial(lead, name=name))
        report.row(f"gain in exact match, {ONE} - {name}", difference)


def lead(arms: Arms, name: str) -> float:
    return gain(arms, ONE) - gain(arms, name)


if __name__ == "__main__":
    study.main(__doc__, RESULTS, play_seed, tell, predictions=PREDICTIONS)
