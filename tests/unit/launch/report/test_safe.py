"""What a report may not do: replace other files, raise over damaged values, draw different things as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.cli import run as rlsys
from launch.reading.directory import read_directory
from launch.report.build import Report, build_report
from tests.run_directory import result, run_directory

ENDS = [{"step": 1, "stage": "rl", "when": "before"}, {"step": 2, "stage": "rl", "when": "after"}]


def reported(*paths: Path) -> Report:
    return build_report([read_directory(path) for path in paths], [None] * len(paths))


def test_a_report_replaces_only_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_directory(tmp_path / "a", [{"step": 1}], summary={"status": "done", "steps": 1})
    before = {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()}
    for name in ("summary.html", "x.json", "metrics.jsonl"):
        assert rlsys(["report", str(path), "-o", str(path / name)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert {each.name: each.read_bytes() for each in path.iterdir() if each.is_file()} == before
    for _ in range(2):
        assert rlsys(["report", str(path)]) == 0


def test_damaged_values_are_no_numbers(tmp_path: Path) -> None:
    evaluations: list[dict[str, Any]] = [{**each, "greedy/failures": "two"} for each in ENDS]
    rows = [{"step": n, "engine/rss_mb": 10.0 * n} for n in range(1, 50)]
    record = {"attempts": [{"nodes": [{"memory_gb": "lots"}, {"memory_gb": 10**400}]}]}
    path = run_directory(tmp_path / "a", rows, evaluations=evaluations, record=record)
    for when in ("before", "after"):
        result(path, f"rl-{when}", {f"t{n}": float(n % 2) for n in range(10)})
    assert reported(path)["runs"][0]["verdict"]["level"] == "flat"


def test_several_runs_are_compared_by_the_same_key(tmp_path: Path) -> None:
    """Although another phase is the longest of each."""
    for name, wait in (("a", 1.0), ("b", 5.0)):
        values = {"time/step": wait + 2, "time/wait_rollout": wait, "time/update": 2.0, "reward/part/correct": wait}
        if name == "a":
            values["reward/part/bonus"] = 1.0
        run_directory(tmp_path / name, [{"step": 1, **values}, {"step": 2, **values}], name=name)
    charts = reported(tmp_path / "a", tmp_path / "b")["charts"]
    assert [each["y"] for each in charts["seconds"]["series"]] == [[3.0, 3.0], [7.0, 7.0]]
    assert [each["y"] for each in charts["parts"]["series"]] == [[1.0, 1.0], [5.0, 5.0]]
    assert charts["parts"]["title"].endswith(": correct") and charts["seconds"]["title"].endswith("whole step")
    alone = reported(tmp_path / "b")["charts"]["seconds"]["series"]
    assert [each["y"][0] for each in alone] == [5.0, 2.0]
