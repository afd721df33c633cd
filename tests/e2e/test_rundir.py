"""The run directory: whole files, one process at a time, and rows that only surviving steps have."""

import json
import subprocess
import sys
from pathlib import Path

from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.run.rundir import RunDir


def test_two_processes_cannot_share_a_run_directory(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    path = str(tmp_path / "run")
    code = f"from launch.driver.run.rundir import RunDir; from pathlib import Path; RunDir(Path({path!r}))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "another process is running in it" in process.stderr
    run.close()
    RunDir(tmp_path / "run").close()


def test_checkpoints_appear_whole_and_the_oldest_go(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for step in (5, 10, 15):
        folder = run.begin_checkpoint(step)
        (folder / "weights").write_text("w")
        assert folder not in run.checkpoints()
        run.commit_checkpoint(folder, DriverState(step=step, open_sequences=[step]), keep=2)
    assert [path.name for path in run.checkpoints()] == ["step-000010", "step-000015"]
    assert run.load_state(run.checkpoints()[-1]) == DriverState(step=15, open_sequences=[15])
    unfinished = run.begin_checkpoint(20)  # a crash here leaves nothing that counts
    (unfinished / "half").write_text("")
    assert [path.name for path in RunDir.checkpoints(run)][-1] == "step-000015"
    assert not any(run.begin_checkpoint(20).iterdir())


def test_rewinding_drops_rows_of_lost_steps_and_torn_lines(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for step in range(1, 5):
        run.log({"step": step})
    run.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5, "rew')
    reopened = RunDir(tmp_path)
    reopened.rewind_metrics(2)
    reopened.log({"step": 3})
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3]
