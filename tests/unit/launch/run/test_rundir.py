"""Rows of a run directory: what a crash tore is dropped, what is damaged is named by its line."""

import json
from pathlib import Path

import pytest

from launch.run.rundir import RunDir, choose_run_dir
from rlsys.errors import BadInput


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"garbage", "not JSON"),
        (b"\0" * 300, "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1,2]", "a list, expected a JSON object"),
        (b'{"nostep":1}', "no row of metrics: step is null, expected a number"),
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


def test_a_torn_last_row_is_dropped(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for torn in (b'{"step": 2, "rew', b"\0" * 300):
        (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n' + torn)
        run.rewind_metrics(2)
        assert (tmp_path / "metrics.jsonl").read_bytes() == b'{"step": 1}\n'


def test_a_file_in_the_place_of_a_folder_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("")
    with pytest.raises(BadInput, match=r"checkpoints: cannot be written \(File exists\)"):
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
