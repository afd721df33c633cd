"""Rows of a run directory: what a crash tore is dropped, what is damaged is named by its line."""

import json
import os
from pathlib import Path

import pytest
import yaml

from launch.config.compose import compose, to_yaml
from launch.driver.run.choose_run import choose_run_dir
from launch.driver.run.rundir import RunDir, sample_groups
from rlsys.errors import BadInput
from rlsys.journal import Journal
from tests.refused import refused


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"garbage", "not JSON"),
        (b"\0" * 300, "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1,2]", "a list"),
        (b'{"nostep":1}', "no row of metrics: step is null"),
    ],
)
def test_a_damaged_row_of_metrics_is_named_by_its_line(tmp_path: Path, line: bytes, found: str) -> None:
    run = RunDir(tmp_path)
    rows = b'{"step": 1}\n' + line + b'\n{"step": 2}\n{"step": 3}\n'
    (tmp_path / "metrics.jsonl").write_bytes(rows)
    with pytest.raises(BadInput, match=rf"metrics.jsonl line 2: {found}"):
        run.rewind_metrics(2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == rows
    run.rewind_metrics(0)  # what stands behind a row that is dropped is dropped with it
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_a_file_that_the_disk_does_not_give_is_no_bad_input(tmp_path: Path) -> None:
    """A run that fails in its middle says so, with an incident and exit code 1."""
    (tmp_path / "evaluations.jsonl").mkdir()
    with pytest.raises(OSError, match="directory"):
        RunDir(tmp_path).evaluations()


def test_a_torn_last_row_is_dropped(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for torn in (b'{"step": 2, "rew', b"\0" * 300):
        (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + torn)
        run.rewind_metrics(2)
        assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n'


def test_rows_that_are_missing_are_known(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert run.rewind_metrics(0) == [] and run.rewind_metrics(2) == [1, 2]
    for step in (1, 2, 5, 6):
        run.log({"step": step})
    (tmp_path / "evaluations.jsonl").write_text('{"step": 3}\n')  # an evaluation is no step
    assert run.rewind_metrics(5) == [3, 4]


@pytest.mark.timeout(300)  # who opens it waits until somebody writes
def test_a_pipe_in_the_place_of_a_file_is_bad_input(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for name, read in (
        ("metrics.jsonl", lambda: run.rewind_metrics(1)),
        ("journal.jsonl", lambda: Journal(run.journal)),
    ):
        os.mkfifo(tmp_path / name)
        with pytest.raises(BadInput, match=f"{name}: expected a file, found a pipe"):
            read()


def test_a_file_in_the_place_of_a_folder_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with refused(says="checkpoints: cannot be written"):
        RunDir(tmp_path)
    (tmp_path / "checkpoints").unlink()
    RunDir(tmp_path).close()  # and it is not locked


def test_a_damaged_run_beside_it_does_not_hinder_a_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    begun = tmp_path / "runs" / "q"
    begun.mkdir(parents=True)
    (begun / "config.yaml").write_bytes(b"\xff\xfe")
    (begun / "summary.json").write_bytes(b"\xff\xfe")
    assert choose_run_dir("q", "name: q\n", None, must_resume=False) == tmp_path / "runs" / "q-2"
    (begun / "config.yaml").write_text("name: q\n")
    assert choose_run_dir("q", "name: q\n", None, must_resume=False) == begun
    (begun / "summary.json").write_text(json.dumps({"status": "done"}))
    assert choose_run_dir("q", "name: q\n", None, must_resume=False) == tmp_path / "runs" / "q-2"


def test_a_run_of_an_earlier_version_that_had_fewer_keys_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begun, now = tmp_path / "runs" / "quickstart", compose("quickstart", [])
    begun.mkdir(parents=True)
    old = yaml.safe_load(to_yaml(now))
    del old["engine"]["vllm"], old["rollout"]["in_flight"], old["cluster"]["env"]
    old["about"] |= {"title": "of an earlier version", "answer_tokens": 7}  # trains nothing
    (begun / "config.yaml").write_text(yaml.safe_dump(old))

    def reread(saved: Path) -> str:
        return to_yaml(compose(str(saved), [], saved=True))

    def chosen(*overrides: str) -> Path:
        text = to_yaml(compose("quickstart", overrides))
        return choose_run_dir("quickstart", text, None, must_resume=False, reread=reread)

    assert chosen() == begun
    assert chosen("seed=2") == tmp_path / "runs" / "quickstart-2"
    (begun / "config.yaml").write_text("stages: [")
    assert chosen() == tmp_path / "runs" / "quickstart-2"


@pytest.mark.parametrize(
    ("groups", "size", "episodes", "expected"),
    [
        (4, 8, None, [0, 1, 2, 3]),
        (4, 8, 32, [0, 1, 2, 3]),
        (4, 8, 31, [0, 1, 2]),
        (10, 8, 40, [0, 2, 4, 6, 8]),
        (3, 8, 5, [0]),  # no half of a group
        (3, 8, 0, []),
    ],
)
def test_whole_groups_are_kept_spread_over_all(
    groups: int, size: int, episodes: int | None, expected: list[int]
) -> None:
    assert sample_groups(range(groups), size, episodes) == expected


def test_a_start_that_is_refused_leaves_no_directory_unless_an_earlier_one_used_it(tmp_path: Path) -> None:
    for used in (False, True):
        directory = RunDir(tmp_path / "run")
        if used:
            directory.write("config.yaml", "name: run\n")
        with pytest.raises(BadInput), directory.removed_if_refused():
            raise BadInput("a wrong key")
        directory.close()
        assert (tmp_path / "run").exists() == used
    assert (tmp_path / "run" / "config.yaml").read_text() == "name: run\n"
