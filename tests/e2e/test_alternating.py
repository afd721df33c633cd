"""A whole run whose ranks and engines use the same devices in alternation, and one that is stopped in it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.e2e.runs import left_behind, rlsys, summary

SMALL = ["cluster.placement=sleep", "stages.sft.steps=10", "stages.rl.steps=3", "stages.rl.loop.groups_per_step=4"]
SMALL += ["eval.tasks=4", "wandb.mode=disabled", "stages.rl.eval.every=1", "stages.rl.checkpoint.every=1"]


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_stop_saves_the_last_step_and_the_run_continues_behind_it(tmp_path: Path) -> None:
    run, rows = tmp_path / "run", tmp_path / "run" / "metrics.jsonl"
    command = [
        "train",
        "quickstart",
        "--run-dir",
        str(run),
        *SMALL,
        "stages.rl.checkpoint.every=100",
        "stages.rl.eval.every=0",
    ]
    command += ["stages.rl.steps=6"]

    def two_steps_are_taken() -> bool:
        return rows.is_file() and len(rows.read_text().splitlines()) >= 12

    stopped = rlsys(*command, send=signal.SIGTERM, when=two_steps_are_taken)
    assert stopped.code == 143, stopped.output[-3000:]
    steps = summary(run)["steps"]
    assert (run / "checkpoints" / f"step-{steps:06d}").is_dir() and steps >= 12, stopped.output[-3000:]
    done = rlsys(*command)
    assert done.code == 0 and f"continuing from step-{steps:06d}" in done.output, done.output[-3000:]
    assert rlsys("audit", str(run)).code == 0 and left_behind() == []
