"""A whole run whose ranks and engines use the same devices in alternation, and one that is stopped in it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.runs import left_behind, rlsys, summary

SMALL = ["cluster.placement=sleep", "stages.sft.steps=10", "stages.rl.steps=3", "stages.rl.loop.groups_per_step=4"]
SMALL += ["eval.tasks=4", "wandb.mode=disabled", "stages.rl.eval.every=1", "stages.rl.checkpoint.every=1"]


def test_a_run_alternates_on_its_devices_and_loses_nothing(tmp_path: Path) -> None:
    """With an evaluation beside the training and a checkpoint after every step, which want the devices too."""
    run = tmp_path / "run"
    result = rlsys("train", "quickstart", "--run-dir", str(run), *SMALL)
    assert result.code == 0, result.output[-3000:]
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    of_rl = [row for row in rows if row["stage"] == "rl"]
    assert len(of_rl) == 3 and all(row["placement/change_s"] > 0 for row in of_rl)
    assert all(row["mismatch/probe_mean"] <= row["mismatch/probe_limit"] for row in of_rl)
    assert summary(run)["status"] == "done" and summary(run)["prompts"]["in_flight"] == 0
    audit = rlsys("audit", str(run))
    assert audit.code == 0, audit.output
    assert left_behind() == []
