"""What Long CoT's tiny recipe shows: accuracy rises by PPO, and answers stay inside the window."""

import json
import statistics
from pathlib import Path

import pytest

from tests.e2e.runs import rlsys, rows, summary

pytestmark = pytest.mark.slow
SEED = ["seed=100", "env.seed=100"]  # none of the study's: its settings were chosen on this one


def test_accuracy_rises_and_answers_end_inside_the_window(tmp_path: Path) -> None:
    done = rlsys("train", "long_cot/tiny", "--run-dir", str(tmp_path / "run"), *SEED, "stages.test=null")
    assert done.code == 0, done.output[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    found = {each["when"]: each["sampled/accuracy"] for each in lines if each["stage"] == "rl"}
    assert found["after"] > found["before"] + 0.2
    steps = [row for row in rows(tmp_path / "run") if row["stage"] == "rl"]
    first, last = (statistics.mean(row["episode/token_limit"] for row in part) for part in (steps[:8], steps[-8:]))
    assert last < min(first, 0.05)
    assert not summary(tmp_path / "run")["health"]
