"""run.json: what a run was, for others to read: complete as early as possible, and without names of people."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch.checks.hardware import Machine
from launch.checks.shareable import redact_arguments
from launch.config.compose import compose, to_yaml
from launch.driver.run.record import begin_record, data_files, digest_files, place_parts

CONFIG = """
extends: quickstart
name: mine
env: {name: questions, data: tasks.jsonl, eval_data: /elsewhere/none.jsonl}
stages: [{name: rl, kind: rl, steps: 2}]
"""


def read(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    return record


def begin(folder: Path, step: int, overrides: list[str]) -> None:
    config = compose("quickstart", [])
    begin_record(folder, config, to_yaml(config), step, overrides)


def test_each_process_that_works_in_a_run_directory_adds_one_attempt(tmp_path: Path) -> None:
    begin(tmp_path, 0, ["seed=1"])
    first = read(tmp_path)
    assert (first["format"], first["recipe"], first["seed"]) == (1, "quickstart", 0)
    assert first["parameters"] > 500_000
    (attempt,) = first["attempts"]
    assert attempt["from_step"] == 0 and attempt["overrides"] == ["seed=1"] and attempt["command"][0] == "rlsys"
    assert abs(attempt["time"] - time.time()) < 600 and attempt["utc"].endswith("Z")
    (node,) = attempt["nodes"]
    assert (node["name"], node["driver"], node["parts"]) == ("node 1", True, ["driver"]) and node["cores"] >= 1
    begin(tmp_path, 40, [])
    second = read(tmp_path)
    assert [entry["from_step"] for entry in second["attempts"]] == [0, 40]
    assert second["attempts"][0] == attempt


def test_a_record_that_cannot_be_read_does_not_end_a_run_that_can_be_continued(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run.json").write_text('{"attempts": [')
    begin(tmp_path, 40, [])
    assert [attempt["from_step"] for attempt in read(tmp_path)["attempts"]] == [40]
    assert "earlier attempts" in caplog.text


def test_a_disk_that_is_full_later_costs_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = compose("quickstart", [])
    record = begin_record(tmp_path, config, to_yaml(config), 0, [])
    (tmp_path / ".run.json.tmp").mkdir()  # the place of the new file is taken: it cannot be written
    with pytest.raises(IsADirectoryError):
        (tmp_path / ".run.json.tmp").write_text("")
    record.update(nodes=[])
    assert "is not complete" in caplog.text and read(tmp_path)["attempts"][0]["nodes"]


def test_parts_by_node_the_drivers_first() -> None:
    machines = {"a": Machine(cores=8, memory=10**9), "b": Machine(cores=96, memory=10**9)}
    names = ["learner rank 0", "learner rank 1", "rollout:0"]
    nodes = place_parts(names, ["b", "b", "a"], machines, driver="a")
    assert nodes == [
        {"name": "node 1", "driver": True, **machines["a"].describe(), "parts": ["driver", "rollout:0"]},
        {"name": "node 2", "driver": False, **machines["b"].describe(), "parts": ["learner rank 0", "learner rank 1"]},
    ]
    (alone,) = place_parts(names, [], {})
    assert alone["parts"] == ["driver", *names] and alone["driver"]


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("seed=1", "seed=1"),
        ("loop.max_token_lag=3", "loop.max_token_lag=3"),
        ("env.retriever.token_env=SEARCH_TOKEN", "env.retriever.token_env=***"),
        ("reward.judge.key_env=JUDGE", "reward.judge.key_env=***"),
        ("env.api_key=abc", "env.api_key=***"),
        ("--service-token=abc", "--service-token=***"),
        ("env.url=sk-0123456789abcdef", "env.url=***"),
        ("env.url=https://me:secret@host/x", "env.url=https://***@host/x"),
        ("env.data=/home/jane/tasks.jsonl", "env.data=~/tasks.jsonl"),
        ("--run-dir=/Users/jane.doe/runs/a", "--run-dir=~/runs/a"),
        ("env.data=data/home/jane/x", "env.data=data/home/jane/x"),
        ("env.data=/mnt/home/jane/x", "env.data=~/x"),
        ("reward.judge={api_key: hunter2, model: m}", "reward.judge={api_key: ***, model: m}"),
    ],
)
def test_commands_are_shown_as_typed_but_for_secrets_and_home_folders(typed: str, shown: str) -> None:
    assert redact_arguments([typed]) == [shown]


def test_no_name_of_this_machine_or_of_its_user_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/jane")
    monkeypatch.setattr("sys.argv", ["x", "train", "quickstart", "--run-dir", "/srv/people/jane/runs/a"])
    begin(tmp_path, 0, [])
    text = (tmp_path / "run.json").read_text()
    assert os.uname().nodename not in text and "jane" not in text
    assert read(tmp_path)["attempts"][0]["command"] == ["rlsys", "train", "quickstart", "--run-dir", "~/runs/a"]


def test_files_that_a_configuration_reads_have_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text('{"question": "1 + 1", "answer": "2"}\n')
    folder = tmp_path / "more"
    folder.mkdir()
    (folder / "b.jsonl").write_text("b")
    (folder / "a.jsonl").write_text("a")
    text = "env: {data: tasks.jsonl, eval_data: more, cache_file: tasks.jsonl}\nmodel: {path: tasks.jsonl}\n"
    files = data_files(f"{text}stages: [{{data: {{tasks.jsonl: 3, org/name: null}}}}]\n")
    assert files == {"tasks.jsonl": [Path("tasks.jsonl")], "more": [Path("more/a.jsonl"), Path("more/b.jsonl")]}
    whole = hashlib.sha256((tmp_path / "tasks.jsonl").read_bytes()).hexdigest()
    assert digest_files(files["tasks.jsonl"]) == {"sha256": whole, "bytes": 37}
    assert digest_files(files["more"])["files"] == 2


@pytest.mark.parametrize("text", ["word " * 80, "a\nb" * 300, "x" * 5000, "\0", "/proc/1/root/data"])
def test_a_text_that_is_no_path_is_no_file(text: str) -> None:
    assert data_files(yaml.safe_dump({"env": {"system": text, "data": text}})) == {}


def test_a_large_file_is_sampled_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.driver.run.record.WHOLE_BYTES", 100)
    monkeypatch.setattr("launch.driver.run.record.PIECE", 10)
    path = tmp_path / "large"
    path.write_bytes(bytes(10_000))
    before = digest_files([path])
    assert before["sampled"] is True and before["bytes"] == 10_000
    path.write_bytes(bytes(9_999) + b"x")  # its end is read too
    assert digest_files([path]) != before


def test_digests_come_into_the_record_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.jsonl").write_text("x")
    config = compose("quickstart", [])
    begin_record(tmp_path, config, to_yaml(config) + "\nextra: {data: tasks.jsonl}\n", 0, [])
    end = time.monotonic() + 20
    while read(tmp_path)["attempts"][0]["data"]["tasks.jsonl"]["sha256"] is None and time.monotonic() < end:
        time.sleep(0.01)
    digests = read(tmp_path)["attempts"][0]["data"]
    assert digests == {"tasks.jsonl": {"sha256": hashlib.sha256(b"x").hexdigest(), "bytes": 1}}
