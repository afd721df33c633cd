"""What a page that follows a run is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.tools.report import live
from launch.tools.report.live import LiveRuns
from rlsys.jsonl import json_line
from tests.makers.report_example import write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", steps=2)


def runs_of(run: Path) -> tuple[LiveRuns, list[int]]:
    """And the steps at which a report was made."""
    steps: list[int] = []

    def report(runs: Any, episodes: Any) -> dict[str, Any]:
        steps.append(int(runs[0].rows.step[-1]))
        return {"title": str(len(episodes[0]))}

    return LiveRuns([run], report, None), steps


def add_row(run: Path, step: int) -> None:
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(json_line({"step": step, "stage": "rl", "stage_step": step, "reward/mean": 0.5}))


def test_files_are_read_again_when_they_have_changed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REST", 0)
    runs, steps = runs_of(run)
    first = runs.newest()
    assert runs.newest() is first and steps == [2]
    add_row(run, 3)
    second = runs.newest()
    assert second.revision != first.revision and steps == [2, 3]
    assert runs.reading(first.revision) is first and runs.reading("0" * 16) is None
    add_row(run, 4)
    runs.newest()
    assert runs.reading(first.revision) is None and runs.reading(second.revision) is second


def test_a_run_that_takes_long_to_read_is_not_read_all_the_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REST", 1e9)
    runs, steps = runs_of(run)
    first = runs.newest()
    add_row(run, 3)
    assert runs.newest() is first and steps == [2]


def test_parts_are_asked_for_by_name(run: Path) -> None:
    reading = runs_of(run)[0].newest()
    index = json.loads(reading.part("index") or "")
    lines = (reading.part("block-0") or "").split("\n")
    assert index["count"] == len(lines) == 2 * 3 * 4 + 6
    assert len(json.loads(reading.part("pieces") or "")[0]) == 259  # bytes, two merges, one special token
    for name in ("block-1", "block--1", "block-", "block-٣", "block-00000000000", "../config.yaml", "", "page"):
        assert reading.part(name) is None
    assert runs_of(run)[0].is_running() is False


def test_what_is_played_is_told_with_its_run_and_what_is_damaged_or_too_large_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    run.mkdir()
    other.mkdir()
    runs = LiveRuns([run, other], lambda *_: {}, None)
    monkeypatch.setattr(live, "is_locked", lambda _: True)
    (other / "playing.json").write_text('[{"worker": "rollout:0"}, 3]')
    for damaged in ("[" * 100_000, '[{"wor', '{"worker": 1}'):
        (run / "playing.json").write_text(damaged)
        assert runs.playing() == [{"worker": "rollout:0", "run": 1}]
    monkeypatch.setattr(live, "MOST_PLAYING", 9)
    assert runs.playing() == []
