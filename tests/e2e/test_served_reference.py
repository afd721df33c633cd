"""A teacher in an engine of its own: it answers for the whole run, and is started again when it is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.runs import left_behind, rlsys, summary
from tests.makers.made import records

SMALL = ["eval.tasks=8", "eval.greedy=false", "wandb.mode=disabled"]


@pytest.mark.slow
def test_a_policy_is_its_own_teacher_and_the_teacher_may_die(tmp_path: Path) -> None:
    """Before anything is learned both engines hold the same weights: the divergence is that of rounding."""
    taught, run, table = tmp_path / "taught", tmp_path / "run", tmp_path / "chaos.json"
    result = rlsys("train", "quickstart", "--run-dir", str(taught), "stages.sft.steps=40", "stages.rl=null", *SMALL)
    assert result.code == 0, result.output[-3000:]
    model = taught / "checkpoints" / "step-000040" / "hf"
    stages = [f"stages.{name}=null" for name in ("tries", "sft", "measure")]
    short = ["stages.opd.steps=12", "stages.opd.loop.groups_per_step=16", "stages.opd.learner.lr=1.0e-5"]
    served = [f"model.path={model}", f"learner.reference={model}", "learner.serve_reference=true"]
    chaos = rlsys(
        "chaos", "benchmarks/distill.yaml", "--run-dir", str(run), "--json", str(table), "--kill", "reference@1s",
        *stages, *short, *served, *SMALL,
    )  # fmt: skip
    assert chaos.code == 0, chaos.output[-3000:] + (tmp_path / "run.log").read_text()[-3000:]
    rows = records(run / "metrics.jsonl")
    assert len(rows) == 12 and abs(rows[0]["advantage/mean"]) < 1e-4
    assert all(abs(row["advantage/mean"]) < 0.05 for row in rows)
    assert rows[0]["advantage/std"] < 1e-3
    (cost,) = json.loads(table.read_text())["costs"]
    assert cost["hit"] and cost["replaced_s"] is not None and cost["next_step_s"] is not None
    assert summary(run)["status"] == "done"
    assert left_behind() == []
