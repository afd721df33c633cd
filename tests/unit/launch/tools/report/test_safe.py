"""What a report may not do: replace other files, raise over damaged values, draw different things as one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run as rlsys
from launch.run_dir.directory import read_directory
from launch.tools.report.advice import ORDER
from launch.tools.report.build import Report, build_report
from launch.tools.report.charts import POINTS
from launch.tools.report.cost import hours_held
from launch.tools.report.redact import redact
from launch.tools.report.verdict import judge_learning
from tests.makers.run_directory import result, run_directory

ENDS = [{"step": 1, "stage": "rl", "when": "before"}, {"step": 2, "stage": "rl", "when": "after"}]


def reported(*paths: Path) -> Report:
    return build_report([read_directory(path) for path in paths], [None] * len(paths))


def test_a_report_replaces_only_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run_directory(tmp_path / "a", [{"step": 1}], summary={"status": "done", "steps": 1})
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    for name in ("summary.html", "x.json", "metrics.jsonl"):
        assert rlsys(["report", str(path), "-o", str(path / name)]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    for _ in range(2):
        assert rlsys(["report", str(path)]) == 0


@pytest.mark.parametrize("name", ["report.html", "report.json", "mine.html", "mine.json"])
@pytest.mark.parametrize("several", [False, True])
def test_a_file_of_somebody_else_stays(
    name: str, several: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default too, and neither of the two files is written; what `--json` prints takes no place."""
    runs = [str(run_directory(tmp_path / label, [{"step": 1}], seed=at)) for at, label in enumerate("ab")]
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here" if several else runs[0])
    command = ["report", *(runs if several else ["."]), *(["-o", "mine.html"] if name.startswith("mine") else [])]
    Path(name).write_text('{"title": "no report"}')
    before = sorted(Path().iterdir())
    assert rlsys(command) == 2 and len(capsys.readouterr().err.splitlines()) == 1
    assert Path(name).read_text() == '{"title": "no report"}' and sorted(Path().iterdir()) == before
    assert rlsys([*command, "--json"]) == 0
    Path(name).unlink()
    for _ in range(2):
        assert rlsys(command) == 0


def test_damaged_values_are_no_numbers(tmp_path: Path) -> None:
    evaluations: list[dict[str, Any]] = [{**row, "greedy/failures": "two"} for row in ENDS]
    rows = [{"step": n, "engine/rss_mb": 10.0 * n} for n in range(1, 50)]
    record = {"attempts": [{"nodes": [{"memory_gb": "lots"}, {"memory_gb": 10**400}]}]}
    path = run_directory(tmp_path / "a", rows, evaluations=evaluations, record=record)
    for when in ("before", "after"):
        result(path, f"rl-{when}", {f"t{n}": float(n % 2) for n in range(10)})
    assert reported(path)["runs"][0]["verdict"]["level"] == "flat"


@pytest.mark.parametrize("limit", [float("inf"), float("-inf"), float("nan"), 10**400, "many", 0.5])
def test_a_limit_that_is_no_finite_number_is_not_drawn(limit: object, tmp_path: Path) -> None:
    rows = [{"step": n, "learner/grad_norm": 1.0, "lag/max": 1.0} for n in (1, 2)]
    run = run_directory(tmp_path / "a", rows, learner={"clip_grad": limit}, loop={"max_policy_lag": limit})
    assert rlsys(["report", str(run)]) == 0
    charts = json.loads((run / "report.json").read_text())["charts"]
    for name, key in (("grad_norm", "learner.clip_grad"), ("lag", "loop.max_policy_lag")):
        assert charts[name]["limit"] == ({"y": 0.5, "label": key} if limit == 0.5 else None)


def test_several_runs_are_compared_by_the_same_key(tmp_path: Path) -> None:
    """Although another phase is the longest of each."""
    for name, wait in (("a", 1.0), ("b", 5.0)):
        values = {"time/step": wait + 2, "time/wait_rollout": wait, "time/update": 2.0, "reward/part/correct": wait}
        if name == "a":
            values["reward/part/bonus"] = 1.0
        run_directory(tmp_path / name, [{"step": 1, **values}, {"step": 2, **values}], name=name)
    charts = reported(tmp_path / "a", tmp_path / "b")["charts"]
    assert [curve["y"] for curve in charts["seconds"]["series"]] == [[3.0, 3.0], [7.0, 7.0]]
    assert [curve["y"] for curve in charts["parts"]["series"]] == [[1.0, 1.0], [5.0, 5.0]]
    assert charts["parts"]["title"].endswith(": correct") and charts["seconds"]["title"].endswith("whole step")
    alone = reported(tmp_path / "b")["charts"]["seconds"]["series"]
    assert [curve["y"][0] for curve in alone] == [5.0, 2.0]


def test_seeds_of_unequal_length_are_merged_on_one_grid(tmp_path: Path) -> None:
    """Drawn by points of three steps and of two they would be two lines in one."""
    for seed, count in enumerate((2 * POINTS + 2, POINTS + 5)):
        rows = [{"step": n, "reward/std": float(seed)} for n in range(1, count + 1)]
        run_directory(tmp_path / "ab"[seed], rows, seed=seed)
    (line,) = reported(tmp_path / "a", tmp_path / "b")["charts"]["spread"]["series"]
    overlap = (POINTS + 5 + 2) // 3
    assert line["x"] == list(range(1, 2 * POINTS + 3, 3))
    assert line["y"] == [0.5] * overlap + [0.0] * (len(line["x"]) - overlap)


def test_a_run_here_has_the_name_of_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run_directory(tmp_path / "named", [{"step": 1, "reward/mean": 1 / 3}]))
    report = reported(Path())
    assert report["title"] == report["runs"][0]["name"] == "named"
    assert report["numbers"]["reward/mean"]["last"] == 1 / 3


def test_a_gpu_is_held_until_the_last_event_of_an_attempt(tmp_path: Path) -> None:
    events = [{"kind": "end", "time": 1000.0 + 3600}, {"kind": "end", "time": 10**400}]
    rows = [{"step": 1, "time": 1000.0 + 60}]
    run = run_directory(tmp_path / "a", rows, events=events, record={"attempts": [{"time": 1000.0}]})
    assert hours_held(read_directory(run)) == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "file:///home/secret/x",
        "box:/home/secret/x",
        "s3://secret/x",
        r"C:\Users\secret",
        "runs/secret",
        "a/b/secret",
        "https://secret.org",
        "~secret/x",
        "fe80::5ec:e7",
        "2001:db8:0:0:0:0:5ec:e7",
    ],
)
def test_a_redacted_report_has_no_place_and_no_address(tmp_path: Path, text: str) -> None:
    finding = {"stage": "rl", "what": "cut", "says": f"look at {text}, tool/x/calls, 3/4, in 0:01:09", "of": 0}
    run = run_directory(tmp_path / "a", [{"step": 1}], summary={"status": "done", "steps": 1, "health": [finding]})
    (advice,) = redact(reported(run))["advice"]
    assert "secret" not in advice["text"] and "e7" not in advice["text"]
    assert "tool/x/calls, 3/4, in 0:01:09" in advice["text"]


def test_a_redacted_report_has_nothing_that_an_event_says(tmp_path: Path) -> None:
    events = [
        {"kind": kind, "step": 1, "who": "secret", "text": "secret", "more": "secret"} for kind in ("health", "lost")
    ]
    run = run_directory(
        tmp_path / "a", [{"step": 1, "reward/mean": 1.0}, {"step": 2, "reward/mean": 1.0}], events=events
    )
    report = redact(reported(run))
    assert report["advice"] and "secret" not in json.dumps(report)


def test_a_redacted_report_has_no_command_that_continues_a_run(tmp_path: Path) -> None:
    record = {"attempts": [{"command": ["rlsys", "train", "quickstart", "reward.correct=271"]}]}
    failed = {"status": "failed", "steps": 2, "reason": "KeyError: 271"}
    paths = [
        run_directory(tmp_path / name, [{"step": 1}, {"step": 2}], summary=summary, record=record, name=name)
        for name, summary in (("a: b", failed), ("c", None))
    ]
    for some in (paths, paths[:1], paths[1:]):
        assert "271" in json.dumps(reported(*some))
        report = redact(reported(*some))
        ended = [entry for entry in report["advice"] if entry["rule"] == "ended_early"]
        assert len(ended) == len(some) and "271" not in json.dumps(report)
        for entry in ended:  # all else stays
            assert "after step 2." in entry["text"] and not entry["text"].endswith("..")
            assert "run" not in entry or entry["text"].startswith(f"{report['runs'][entry['run']]['name']}: The run ")


def test_a_redacted_report_has_no_task_that_stands_for_two(tmp_path: Path) -> None:
    paths = [
        run_directory(tmp_path / name, [{"step": 1}, {"step": 2}], evaluations=ENDS, learner={"lr": lr})
        for name, lr in (("a", 1.0), ("b", 2.0))
    ]
    task = "who (they ask) is secret? (b"
    for at, path in enumerate(paths):
        for when in ("before", "after"):
            result(path, f"rl-{when}", {task: 1.0, "t": 0.0}, contents={task: f"{at} {when}", "t": "the same"})
    for some, where in ((paths, "tests"), (paths[:1], "paired")):
        assert "secret" in json.dumps(reported(*some)["tables"][where])
        report = redact(reported(*some))
        assert "secret" not in json.dumps(report) and "they ask" not in json.dumps(report)
        assert "1 tasks" in json.dumps(report["tables"][where])
        for run in report["runs"]:
            assert "1 tasks" in run["verdict"]["text"] and "(accuracy, greedy: 0.50" in run["verdict"]["text"]


def test_settings_of_a_redacted_comparison_are_numbered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("a", "secret"), ("b", "other")):
        run_directory(tmp_path / name, [{"step": 1, "reward/mean": 1.0}], env={"data": value}, seed=1)
    assert rlsys(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    out = capsys.readouterr().out
    advice = json.loads(out)["advice"]
    assert "secret" in out and [item["key"] for item in advice if item["rule"] == "seeds"] == ["seed=0"]
    levels = [ORDER.index(item["level"]) for item in advice]
    assert len(set(levels)) > 1 and levels == sorted(levels)
    assert rlsys(["report", str(tmp_path / "a"), str(tmp_path / "b"), "--json", "--redact"]) == 0
    out = capsys.readouterr().out
    assert "secret" not in out and "setting 2" in out


def test_an_interval_without_zero_is_no_proof_by_itself(tmp_path: Path) -> None:
    ends = [{**row, "greedy/episodes": 10} for row in ENDS]
    path = run_directory(tmp_path / "a", [{"step": 1}, {"step": 2}], evaluations=ends)
    for when, right in (("before", 0), ("after", 5)):
        result(path, f"rl-{when}", {f"t{n}": float(n < right) for n in range(10)})
    run = read_directory(path)
    verdict = judge_learning(run)  # five of ten tasks: McNemar's p is 2 / 2^5 = 0.0625
    assert verdict.paired is not None and verdict.paired.p == pytest.approx(0.0625)
    assert verdict.paired.low > 0 and verdict.level == "flat"
