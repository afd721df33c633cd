"""`rlsys train graph_rl/tiny`, cut short, and DPO from the weights that it teaches: two arms of its study."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys, rows

pytestmark = pytest.mark.slow
SHORT = ["eval.tasks=8", "eval.sets.larger.tasks=4", "env.train_tasks=512"]


def train(recipe: str, run: Path, *changes: str) -> dict[str, dict[str, Any]]:
    """Its evaluations, by stage and when."""
    result = rlsys("train", recipe, "--run-dir", str(run), *SHORT, *changes)
    assert result.code == 0, result.output[-3000:]
    assert left_behind() == []
    lines = (run / "evaluations.jsonl").read_text().splitlines()
    return {f"{row['stage']} {row['when']}": row for row in map(json.loads, lines)}


def test_a_reader_is_spoilt_and_rewarded_by_two_algorithms(tmp_path: Path) -> None:
    first = tmp_path / "grpo"
    steps = ["stages.read.steps=100", "stages.spoilt.steps=4", "stages.rl.steps=2"]
    evaluations = train("graph_rl/tiny", first, *steps, "stages.rl.loop.groups_per_step=8")
    assert list(evaluations) == ["reader eval", "rl before", "rl after"]
    assert [row["stage"] for row in rows(first)] == ["read"] * 100 + ["spoilt"] * 4 + ["rl"] * 2
    taught = first / "checkpoints" / "step-000104" / "hf"
    left_out = [f"stages.{stage}=null" for stage in ("read", "reader", "spoilt")]
    start = [f"model.path={taught}", "stages.tries.generate.tasks=32", *left_out]
    evaluations |= train("graph_rl/ablations/tiny-dpo", tmp_path / "dpo", *start)
    assert [row["stage"] for row in rows(tmp_path / "dpo")][-1] == "dpo"
    for name, row in evaluations.items():
        for play in ("graphs/greedy", "larger/greedy") if "eval" in name else ("graphs/sampled", "larger/greedy"):
            assert 0.0 <= row[f"{play}/right_by_real_steps"] <= row[f"{play}/accuracy"] <= 1.0
