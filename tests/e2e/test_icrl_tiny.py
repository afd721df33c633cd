"""`rlsys train icrl/tiny`, cut short: fewer examples in each stage and none in the last, and a set without the tool."""

from pathlib import Path

import pytest

from tests.e2e.runs import left_behind, rlsys, trajectories
from tests.makers.made import records

STAGES = {"shots_3": 3, "shots_2": 2, "shots_1": 1, "shots_0": 0}
SHORT = [
    "stages.read.steps=40",
    "stages.follow.steps=20",
    *(f"stages.{name}.{key}" for name in STAGES for key in ("steps=2", "eval.tasks=4")),
]
SHORT += ["loop.groups_per_step=4", "eval.tasks=4", "stages.test.eval.sets.bare.env.tools=false"]


@pytest.mark.slow
def test_the_examples_go_stage_by_stage(tmp_path: Path) -> None:
    run = tmp_path / "run"
    result = rlsys("train", "icrl/tiny", "--run-dir", str(run), *SHORT)
    assert result.code == 0, result.output[-3000:]
    rows = records(run / "metrics.jsonl")
    steps = {name: [row["step"] for row in rows if row.get("stage") == name] for name in STAGES}
    for name, count in STAGES.items():
        played = [t for step in steps[name] for t in trajectories(run, f"step-{step:06d}*")]
        example_counts = {t["prompt"][0]["content"].count("Example Solution:") for t in played}
        assert played and example_counts == {count}
    evaluations = records(run / "evaluations.jsonl")
    (test,) = [row for row in evaluations if row["stage"] == "test"]
    assert test["bare/sampled/turns"] == 1.0 and "bare/sampled/calls" not in test  # nothing counted: no call was made
    assert not any("<search>" in t["prompt"][0]["content"] for t in trajectories(run, "eval-test-*-bare-*"))
    assert left_behind() == []
