"""`rlsys train` on a damaged run directory: one line with the file, exit code 2, and nothing was started."""

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from launch.cli import run
from launch.config.compose import compose, to_yaml
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.run.record import begin_record
from launch.driver.run.rundir import RunDir
from rlsys.errors import BadInput
from rlsys.journal import Journal

STEPS = (100, 101)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of `quickstart`, stopped after step 101. Continuing it comes as far as its model, and no further."""

    def reached(*_: object) -> str:
        raise BadInput("this far")

    monkeypatch.setattr("launch.commands.train.check", lambda config, say: None)
    monkeypatch.setattr("launch.driver.run.cleanup.orderly_exit", contextlib.nullcontext)
    monkeypatch.setattr("launch.driver.run.parts.starting_model", reached)
    path = tmp_path / "run"
    directory = RunDir(path)
    directory.write("config.yaml", to_yaml(compose("quickstart", [])))
    journal = Journal(directory.journal, keep=0)
    for step in STEPS:
        directory.log({"step": step})
        journal.publish(1, step=step)
        folder = directory.begin_checkpoint(step)
        (folder / "hf").mkdir()
        (folder / "hf" / "model.safetensors").write_bytes(b"weights" * step)
        (folder / "learner").mkdir()
        (folder / "learner" / "layout.json").write_text('{"world_size": 1, "zero_stage": 2, "critic": false}')
        state = DriverState(step=step, stage_step=step, mark=journal.mark)
        directory.commit_checkpoint(folder, state, keep=2, seal=journal.seal)
    journal.close()
    directory.close()
    return path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def into_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def into_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def into_a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("checkpoints/step-000101/driver.json", cut, "--resume-from step-000100"),
    ("checkpoints/step-000101/hf/model.safetensors", cut, "40 bytes, 707 were saved; .*--resume-from step-000100"),
    ("checkpoints/step-000101/driver.json", into_a_pipe, "it is no file; .*--resume-from step-000100"),
    ("checkpoints/step-000101/driver.json", into_a_loop, "Too many levels.*--resume-from step-000100"),
    ("checkpoints/step-000101/hf/model.safetensors", into_a_loop, "missing; .*--resume-from step-000100"),
    ("config.yaml", Path.unlink, "missing"),
    ("config.yaml", into_a_pipe, "missing"),
    ("journal.jsonl", into_a_pipe, "found a pipe"),
    ("journal.jsonl", into_a_loop, "Too many levels"),
    ("config.yaml", into_a_folder, "missing"),
    ("config.yaml", lambda path: path.write_bytes(b"\xff\xfe"), "not readable as YAML"),
    ("journal.jsonl", Path.unlink, "it has 0 rows, and the checkpoint was saved after 4"),
    ("journal.jsonl", cut, "it has 0 rows, and the checkpoint was saved after 4"),
    ("journal.jsonl", lambda path: path.write_text('{"a": 1}\n' + path.read_text()), "line 1: no row of a journal"),
    ("journal.jsonl", into_a_folder, "Is a directory"),
    ("metrics.jsonl", lambda path: path.write_text("[1,2]\n"), "line 1: a list, expected a JSON object"),
    ("metrics.jsonl", into_a_folder, "Is a directory"),
]


@pytest.mark.timeout(300)  # a pipe is waited for
@pytest.mark.parametrize(("name", "damage", "found"), DAMAGES)
def test_damage_is_one_line_with_the_file(
    begun: Path, capsys: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], object], found: str
) -> None:
    damage(begun / name)
    assert run(["train", "quickstart", "--run-dir", str(begun)]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith(f"rlsys: error: {begun / name}")
    assert re.search(found, line)


def test_an_undamaged_run_goes_on(begun: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "quickstart", "--run-dir", str(begun)]) == 2
    output = capsys.readouterr()
    assert output.err == "rlsys: error: this far\n"
    assert "continuing from step-000101: stage sft, step 101" in output.out
    assert "metrics.jsonl: the rows of 99 of 101 steps are missing, the first of step 1: " in output.out
    assert (begun / "metrics.jsonl").read_text().count("\n") == 2


def test_an_older_checkpoint_is_continued_and_the_damaged_one_kept(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut(begun / "checkpoints" / "step-000101" / "driver.json")
    command = ["train", "quickstart", "--run-dir", str(begun), "--resume-from"]
    for more in ([], ["--dry-run"]):
        assert run([*command, "step-000050", *more]) == 2
        assert "(it has step-000100, step-000101)" in capsys.readouterr().err
    assert run([*command, "step-000100", "--dry-run"]) == 0
    capsys.readouterr()
    assert run([*command, "step-000100"]) == 2
    output = capsys.readouterr()
    assert output.err == "rlsys: error: this far\n"
    assert "continuing from step-000100: stage sft, step 100" in output.out
    assert "set aside, to be removed by hand:" in output.out
    assert (begun / "checkpoints" / "aside-step-000101" / "hf" / "model.safetensors").is_file()
    assert (begun / "metrics.jsonl").read_text() == '{"step": 100}\n'
    assert run(["train", "quickstart", "--run-dir", str(begun)]) == 2  # and it is the newest one now
    assert "continuing from step-000100" in capsys.readouterr().out


def test_a_dry_run_says_which_directory_is_taken_and_from_where_it_continues(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def said(*words: str, code: int = 0) -> list[str]:
        assert run(["train", "quickstart", "--dry-run", *words]) == code
        lines = [line.partition("run directory ")[2].strip() for line in capsys.readouterr().out.splitlines()]
        return [line for line in lines if line]

    assert said() == ["runs/quickstart: new"]
    at = ["--run-dir", "run", "stages.sft.steps=150"]
    goes_on = "run: continues from step-000101, stage sft, step 101, 49 of its 150 to take"
    assert said(*at) == said(*at, "--resume") == [goes_on]
    goes_on, changed = said(*at, "--resume-from", "step-000100", "learner.lr=0.5")
    assert "step-000100, stage sft, step 100, 50 of" in goes_on and "learner.lr" in changed and "-> 0.5" in changed
    assert said("--run-dir", "run", "seed=7", code=2) == ["run: refused"]
    # A finished run of this name is passed over, as a start does.
    shutil.copytree(begun, tmp_path / "runs" / "quickstart")
    (tmp_path / "runs" / "quickstart" / "summary.json").write_text('{"status": "done"}')
    assert said() == ["runs/quickstart-2: new"]


def test_a_dry_run_of_a_finished_run_tells_the_steps_that_it_would_add(
    begun: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = compose("quickstart", []).stages
    directory = RunDir(begun)
    state = DriverState(step=102, stage_index=len(stages), mark=Journal(directory.journal, keep=4).mark)
    directory.commit_checkpoint(directory.begin_checkpoint(102), state, keep=1)
    directory.close()
    command = ["train", "quickstart", "--run-dir", str(begun), "--dry-run"]
    assert run(command) == 0
    assert "finished after 102 steps" in capsys.readouterr().out
    last = stages[-1]
    assert run([*command, "--resume", f"stages.{last.name}.steps=+20"]) == 0
    out = capsys.readouterr().out
    assert f"continues from step-000102, stage {last.name}, step {last.steps}, 20 of its {last.steps + 20} to" in out


def test_a_run_without_checkpoints_has_none_to_go_back_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "quickstart", "--run-dir", str(tmp_path / "never-made"), "--resume-from", "step-000100"]
    assert run(command) == 2
    assert "there is no run directory" in capsys.readouterr().err
    assert not (tmp_path / "never-made").exists()


def test_a_data_file_that_was_exchanged_is_refused_and_one_that_moved_is_fine(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, held_out, demonstrations = tmp_path / "tasks.jsonl", tmp_path / "held.jsonl", tmp_path / "shown.jsonl"
    for own, file in enumerate((tasks, held_out, demonstrations)):
        file.write_text("".join(f'{{"question": "{n} + {own}", "answer": "{n + own}"}}\n' for n in range(4)))
    data = ["env.data=tasks.jsonl", "eval.sets.other.env.eval_data=held.jsonl", "stages.sft.data={shown.jsonl: null}"]
    command = ["train", "quickstart", "--run-dir", str(begun), "env.name=questions", "env.style=answer_tag", *data]
    config = compose(command[1], command[4:])
    (begun / "config.yaml").write_text(to_yaml(config))
    begin_record(begun, config, to_yaml(config), 0, [])
    until(lambda: all(entry["sha256"] for entry in read_data(begun).values()))
    # Slow ones: none is made from here on.
    monkeypatch.setattr("launch.driver.run.record.RunRecord.digest_data", lambda *_: None)
    assert run(command) == 2 and capsys.readouterr().err == "rlsys: error: this far\n"
    for file in (tasks, held_out, demonstrations):
        text = file.read_text()
        file.write_text(text.replace("3 + ", "9 + "))  # of the same size
        assert run(command) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and file.name in error and "model.path=" in error
        file.write_text(text)
    (tmp_path / "elsewhere").mkdir()
    tasks.rename(tmp_path / "elsewhere" / "tasks.jsonl")
    demonstrations.rename(tmp_path / "elsewhere" / "shown.jsonl")
    moved = [word.replace("tasks.j", "elsewhere/tasks.j").replace("shown.j", "elsewhere/shown.j") for word in command]
    assert run(moved) == 2 and capsys.readouterr().err == "rlsys: error: this far\n"
    (tmp_path / "elsewhere" / "tasks.jsonl").write_text(text)
    assert run(moved) == 2 and "elsewhere/tasks.jsonl is not the file" in capsys.readouterr().err


def test_data_that_were_mended_before_anything_was_trained_are_the_runs_own(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first process died before its first checkpoint; the second began at step 0, on the mended file."""
    monkeypatch.chdir(tmp_path)
    tasks = tmp_path / "tasks.jsonl"
    keys = ["env.name=questions", "env.style=answer_tag", "env.data=tasks.jsonl"]
    for answer in (0, 1):
        tasks.write_text("".join(f'{{"question": "{n} + {answer}", "answer": "{n + 1}"}}\n' for n in range(4)))
        config = compose("quickstart", keys)
        (begun / "config.yaml").write_text(to_yaml(config))
        begin_record(begun, config, to_yaml(config), 0, [])
        until(lambda: all(entry["sha256"] for entry in read_data(begun).values()))
    command = ["train", "quickstart", "--run-dir", str(begun), *keys]
    assert run(command) == 2 and capsys.readouterr().err == "rlsys: error: this far\n"
    tasks.write_text(tasks.read_text().replace("3 + 1", "3 + 0"))
    assert run(command) == 2 and "tasks.jsonl is not the file" in capsys.readouterr().err


def read_data(run_dir: Path) -> dict[str, dict[str, object]]:
    files: dict[str, dict[str, object]] = json.loads((run_dir / "run.json").read_text())["attempts"][-1]["data"]
    return files


def until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)
