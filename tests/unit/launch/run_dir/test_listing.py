"""Runs as lines: what stands, what has fallen, what is somebody else's, without importing or following anything."""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.cli import run
from launch.commands.runs import table
from launch.run_dir.listing import find_result, list_run, list_runs, size_of

CONFIG = {"name": "quickstart", "seed": 3, "stages": [{"name": "sft", "steps": 100}, {"name": "rl", "steps": 45}]}
ROW = {"step": 40, "stage": "sft", "stage_step": 40}


def evaluation(step: int, value: float, prompts: str = "a", when: str = "during") -> dict[str, Any]:
    place = {"step": step, "stage": "rl", "when": when, "prompts": {"greedy": prompts}}
    return {**place, "greedy/accuracy": value, "greedy/mean_reward": 2 * value, "greedy/episodes": 20}


def directory(folder: Path, **files: Any) -> Path:
    """A run directory with these files: lists are lines."""
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".lock").touch()
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    for name, content in files.items():
        if isinstance(content, list):
            (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in content))
        else:
            (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_finished_a_killed_and_a_running_one(tmp_path: Path) -> None:
    directory(
        tmp_path / "done",
        metrics=[ROW, ROW | {"step": 145}],
        summary={"status": "done", "steps": 145},
        evaluations=[evaluation(100, 0.5, when="before"), evaluation(145, 0.75, when="after")],
    )
    killed = directory(tmp_path / "study" / "seed-1", metrics=[ROW])
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 41, "sta')
    going = directory(tmp_path / "going", metrics=[ROW])
    for age, name in ((300, "done"), (200, "study/seed-1"), (100, "going")):
        then = time.time() - age
        for file in (tmp_path / name).glob("*.json*"):
            os.utime(file, (then, then))
    with (going / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        runs = list_runs(tmp_path)
    assert [(entry.path.name, entry.state, entry.step, entry.steps, entry.seed) for entry in runs] == [
        ("done", "done", 145, 145, 3),
        ("seed-1", "killed", 40, 145, 3),
        ("going", "running", 40, 145, 3),
    ]
    result = runs[0].result
    assert result is not None and (result.name, result.value, result.first) == ("greedy/accuracy", 0.75, 0.5)
    assert runs[1].result is None and runs[0].size > 0


def test_a_change_is_of_the_same_prompts() -> None:
    other = find_result([evaluation(0, 0.25, "b"), evaluation(50, 0.5), evaluation(99, 0.75)])
    assert other is not None and (other.value, other.first) == (0.75, 0.5)
    alone = find_result([evaluation(0, 0.25, "b"), evaluation(50, 0.5)])
    assert alone is not None and (alone.value, alone.first) == (0.5, None)
    assert find_result([]) is None and find_result([{"step": 1, "greedy/episodes": 3}]) is None


def test_damaged_and_hostile_directories_are_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = directory(tmp_path / "broken")
    (broken / "config.yaml").write_text("stages: [")
    tagged = directory(tmp_path / "tagged")
    (tagged / "config.yaml").write_text("stages: !!python/object/apply:os.system ['touch pwned']\n")
    pipe = directory(tmp_path / "\x1b[2Jpipe")
    os.mkfifo(pipe / "metrics.jsonl")
    (pipe / "evaluations.jsonl").write_text("[1]\n{\n" + "9" * 100 + "\n")
    (pipe / "summary.json").write_text("[]")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert run(["runs", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("unreadable") == 2 and "\x1b" not in printed and "\\x1b[2Jpipe" in printed
    assert not Path("pwned").exists() and len(list_runs(tmp_path)) == 3


def test_it_prints_json_and_refuses_what_is_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", str(tmp_path)]) == 0
    assert "no runs below" in capsys.readouterr().out
    directory(tmp_path / "a", metrics=[ROW], evaluations=[evaluation(40, 0.5)])
    assert run(["runs", str(tmp_path / "a"), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    entry = json.loads(line)
    assert (entry["state"], entry["step"], entry["result"]["value"]) == ("killed", 40, 0.5)
    assert entry["path"] == str(tmp_path / "a")
    assert run(["runs", str(tmp_path / "none")]) == 2


def test_columns_without_room_are_left_out_and_names_are_whole() -> None:
    cells = {title: title * 3 for title in ("run", "state", "recipe", "step", "result", "age", "size")}
    wide, narrow = table([cells], 200), table([cells], 40)
    assert "recipe" in wide[0] and "recipe" not in narrow[0] and "runrunrun" in narrow[1]
    assert max(map(len, narrow)) <= 40
    assert "runrunrun" in table([cells], 1)[1]


def test_a_file_with_two_names_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(8192))
    once = size_of(tmp_path)
    os.link(tmp_path / "a", tmp_path / "b")
    assert once >= 8192 and size_of(tmp_path) == once


def test_epochs_of_what_is_not_made_yet_have_no_planned_number(tmp_path: Path) -> None:
    path = directory(tmp_path / "a")
    (path / "config.yaml").write_text(yaml.safe_dump({"stages": [{"name": "sft", "steps": 0, "epochs": 2.0}]}))
    assert list_run(path).steps is None
