"""What SWiRL's tiny recipe shows: offline states end a wrong habit, also those whose imitation keeps it."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import rlsys, rows, summary
from tests.makers.made import records

pytestmark = pytest.mark.slow
SEED = ["seed=100", "env.seed=100"]  # none of the study's: its settings were chosen on this one


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sets")


def trained(folder: Path, *overrides: str) -> dict[str, dict[str, Any]]:
    """The evaluations around the stage `swirl` of a run, which is made where it is missing."""
    if not (folder / "summary.json").is_file():
        result = rlsys("train", "swirl/tiny", "--run-dir", str(folder), *SEED, *overrides)
        assert result.code == 0, result.output[-3000:]
    lines = records(folder / "evaluations.jsonl")
    return {line["when"]: line for line in lines if line["stage"] == "swirl"}


def on_set(runs: Path, name: str, learner: str, keep: str) -> dict[str, dict[str, Any]]:
    """Train with this learner on this set of judged steps, from the first run's checkpoint and judged.jsonl."""
    first = runs / "filtered"
    left_out = [f"stages.{stage}=null" for stage in ("sft", "tries", "judged")]
    start = [f"model.path={first}/checkpoints/step-000300/hf", f"stages.swirl.data={first}/generated/judged.jsonl"]
    return trained(runs / name, *left_out, *start, f"stages.swirl.kind={learner}", f"verdicts.keep={keep}")


def test_offline_states_alone_turn_a_wrong_habit_around(runs: Path) -> None:
    folder = runs / "filtered"
    evaluations = trained(folder)
    before, after = evaluations["before"], evaluations["after"]
    assert before["greedy/outcome"] <= 0.1 and after["greedy/outcome"] >= 0.8
    assert after["sampled/part/process"] > before["sampled/part/process"] + 0.2
    steps = [row for row in rows(folder) if row["stage"] == "swirl"]
    assert {(row["episode/turns"], row.get("episode/calls", 0.0)) for row in steps} == {(1.0, 0.0)}  # and no tool
    assert not summary(folder)["health"]


def test_without_a_filter_imitation_keeps_the_habit_and_swirl_does_not(runs: Path) -> None:
    test_offline_states_alone_turn_a_wrong_habit_around(runs)
    swirl = on_set(runs, "unfiltered", "stepwise", "none")["after"]["greedy/outcome"]
    imitation = on_set(runs, "imitation", "sft", "none")["after"]["greedy/outcome"]
    assert swirl > imitation + 0.5
