"""A run in which a worker hangs and a rank dies: each leaves a folder that names it, and the run is done at its end."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from launch.driver.incidents.facts import PARAGRAPH, read_facts
from launch.driver.incidents.folder import list_folders
from tests.e2e.runs import left_behind, rlsys, summary

SHORT = ["stages.sft.steps=20", "stages.rl.loop.groups_per_step=4", "stages.rl.steps=60", "eval.tasks=16"]
SHORT += ["checkpoint.every=4", "stages.sft.checkpoint.every=20", "wandb.mode=disabled", "learner.max_restarts=0"]
SHORT += ["incidents.stall_floor_s=3", "incidents.stall_factor=3", "rollout.call_timeout_s=45"]
SHORT += ["learner.update_timeout_s=90"]  # a phase without a median is stalled after a third of it
SECRET = "planted-7Hq2ZkP0aV"


@pytest.mark.slow
def test_a_worker_that_hangs_and_a_rank_that_dies_leave_a_folder_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", SECRET)
    run = tmp_path / "run"
    faults = ("--hang", "rollout:0@12s", "--kill", "learner:0@85s")
    result = rlsys("chaos", "quickstart", "--run-dir", str(run), *SHORT, *faults)
    log = (tmp_path / "run.log").read_text()
    assert summary(run)["status"] == "done", result.output[-2000:] + log[-2000:]

    folders = {folder: read_facts(folder) for folder in list_folders(run)}
    hung = next(folder for folder, facts in folders.items() if facts.kind == "stall")  # whichever phase it was
    parts = {part.part: part for part in folders[hung].parts}
    assert any(part.state == "stopped" and part.at for part in folders[hung].parts if part.part == "rollout:0")
    assert "rollout:0" in (hung / PARAGRAPH).read_text() and "is stopped" in (hung / PARAGRAPH).read_text()
    assert {"driver", "learner:0", "rollout:0"} <= parts.keys() and parts["driver"].at and parts["learner:0"].at
    assert "rl_loop (" in (hung / "stacks" / "driver-tasks.txt").read_text()
    assert {file.name.split("-")[0] for file in (hung / "logs").iterdir()} >= {"driver.txt", "rollout", "learner"}

    failed = next(folder for folder, facts in folders.items() if facts.kind == "failed")
    assert "learner:0" in folders[failed].gone
    last = [line for line in log.splitlines() if line.startswith("rlsys: failed:")]
    assert last and last[0].endswith(failed.name)
    for path in (path for folder in folders for path in folder.rglob("*") if path.is_file()):
        assert SECRET not in path.read_text(), path
    listed = rlsys("incidents", str(run), "--json").output.splitlines()
    assert [json.loads(line)["id"] for line in listed] == [folder.name for folder in folders]
    bundled = rlsys("incidents", str(run), failed.name, "--bundle", str(tmp_path / "f.tar.gz"))
    with tarfile.open(tmp_path / "f.tar.gz") as archive:
        assert bundled.code == 0 and f"{failed.name}/incident.md" in archive.getnames()
    assert left_behind() == []
