"""Run directories as they are found: finished, killed in a line, damaged, old, and with names that lead elsewhere."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import numpy as np
import pytest

from launch.run_dir.directory import read_directory
from launch.run_dir.lines import DamageLog
from launch.run_dir.state import find_state, is_locked
from launch.run_dir.table import MOST_KEYS, read_rows
from tests.makers.run_directory import result, run_directory
from tests.refused import refused


def test_rows_become_columns_with_nan_where_a_row_has_no_such_number(tmp_path: Path) -> None:
    path = run_directory(
        tmp_path / "a",
        [{"step": 1, "stage": "sft", "loss/nll": 2.0}, {"step": 2, "reward/mean": 0.5}, {"step": 3, "reward/mean": 1}],
    )
    rows = read_directory(path).rows
    assert (rows.step.tolist(), rows.stage) == ([1, 2, 3], ("sft", "rl", "rl"))
    assert np.array_equal(rows.columns["loss/nll"], [2.0, np.nan, np.nan], equal_nan=True)
    assert rows.known("reward/mean").tolist() == [0.5, 1.0] and not len(rows.known("absent"))
    assert rows.of_stage("rl").step.tolist() == [2, 3] and rows.tail(1).column("reward/mean").tolist() == [1.0]


def test_damage_is_named_once_a_file_and_the_rest_is_read(tmp_path: Path) -> None:
    path = run_directory(tmp_path / "a", [{"step": 1, "reward/mean": 1.0}], summary={"status": "done", "steps": 2})
    with (path / "metrics.jsonl").open("a") as file:
        file.write('nothing\n[1]\n{"step": 2, "stage": "rl", "stage_step": 2, "reward/mean": NaN}\n{"step": 3, "sta')
    (path / "run.json").write_text("{")
    run = read_directory(path)
    assert run.rows.step.tolist() == [1, 2] and not len(run.rows.tail(1).known("reward/mean"))
    metrics, record = run.damage
    assert "metrics.jsonl line 2" in metrics and "1 more" in metrics and "run.json" in record
    assert run.starts == []


def test_an_old_directory_has_no_record_no_events_and_no_time(tmp_path: Path) -> None:
    run = read_directory(run_directory(tmp_path / "a", [{"step": 1}], summary={"status": "done", "steps": 1}))
    assert (run.record, run.events, run.evaluations, run.damage, run.state) == ({}, (), (), (), "done")


def test_what_is_no_run_directory_is_refused(tmp_path: Path) -> None:
    with refused(where="absent", says="no such directory"):
        read_directory(tmp_path / "absent")


def test_columns_are_bounded(tmp_path: Path) -> None:
    damage = DamageLog()
    row = {"step": 1, "stage": "rl", "stage_step": 1} | {f"reward/part/{n}": 1.0 for n in range(MOST_KEYS + 3)}
    assert len(read_rows([row], damage).columns) == MOST_KEYS
    assert "2 more" in damage.lines()[0]


def test_evaluations_come_by_step_with_their_results_by_task(tmp_path: Path) -> None:
    lines = [
        {"step": 4, "stage": "rl", "when": "after", "greedy/accuracy": 1.0},
        {"step": 2, "stage": "rl", "when": "before", "greedy/accuracy": 0.5},
        {"step": 4, "stage": "../../x", "when": "after"},
        {"stage": "rl"},
    ]
    path = run_directory(tmp_path / "a", evaluations=lines)
    result(path, "rl-before", {"a": 0.0, "b": 1.0})
    (path / "evaluations" / "rl-after.json").write_text("{}")
    run = read_directory(path)
    assert [(evaluation.step, evaluation.when, list(evaluation.plays)) for evaluation in run.evaluations] == [
        (2, "before", ["greedy"]),
        (4, "after", []),
        (4, "after", []),
    ]
    assert run.evaluations[0].plays["greedy"].tasks == {"a": 0.0, "b": 1.0}
    assert len(run.damage) == 2


def test_the_lock_says_that_a_run_goes_on(tmp_path: Path) -> None:
    path = run_directory(tmp_path / "a")
    assert not is_locked(path)
    with (path / ".lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert is_locked(path) and read_directory(path).state == "running"
    assert not is_locked(path)


@pytest.mark.parametrize(
    ("summary", "kinds", "last_step", "state"),
    [
        ({"status": "done", "steps": 9}, ["begin", "end"], 9, "done"),
        ({"status": "failed", "steps": 9}, [], 9, "failed"),
        ({}, ["begin"], 9, "killed"),
        ({"status": "stopped", "steps": 9}, ["begin", "end", "checkpoint", "begin"], 9, "killed"),  # continued, killed
        ({"status": "stopped", "steps": 9}, [], 12, "killed"),  # the same, of a version without events
        ({"status": "stopped", "steps": 9}, ["begin", "stop", "checkpoint"], 9, "stopped"),
        ({"status": ["done"]}, [], 9, "killed"),
    ],
)
def test_how_a_run_ended(summary: dict[str, object], kinds: list[str], last_step: int, state: str) -> None:
    events = [{"kind": kind} for kind in kinds]
    assert find_state(locked=False, summary=summary, events=events, last_step=last_step) == state
    assert find_state(locked=True, summary=summary, events=events, last_step=last_step) == "running"


def test_events_keep_their_order(tmp_path: Path) -> None:
    events = [{"kind": "begin", "step": 0}, {"no": "kind"}, {"kind": "restart", "step": 3, "who": "rollout:0"}]
    path = run_directory(tmp_path / "a", events=events)
    with (path / "events.jsonl").open("a") as file:
        file.write(json.dumps({"kind": "end"})[:-3])
    assert [event["kind"] for event in read_directory(path).events] == ["begin", "restart"]
