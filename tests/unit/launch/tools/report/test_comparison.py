"""Several runs: how they differ, seeds of one setting as a band, tests on the tasks that both have played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run as rlsys
from launch.run_dir.directory import RunDirectory, read_directory
from launch.tools.report.build import Report, build_report
from launch.tools.report.compare import MOST_DRAWN
from launch.tools.report.over_seeds import average_changes
from tests.makers.made import jsonl
from tests.makers.run_directory import result, run_directory

STAGES = [{"name": "rl", "kind": "rl", "steps": 2}]
AFTER = [{"step": 2, "stage": "rl", "when": "after"}]


def made(
    path: Path, rewards: tuple[float, ...] = (0.0, 1.0), tasks: Mapping[str, float] | None = None, **config: Any
) -> RunDirectory:
    rows = [{"step": n, "reward/mean": reward, "lag/max": 1} for n, reward in enumerate(rewards, start=1)]
    run_directory(
        path, rows, summary={"status": "done", "steps": len(rows)}, evaluations=AFTER, stages=STAGES, **config
    )
    if tasks is not None:
        result(path, "rl-after", tasks)
    return read_directory(path)


def evaluated_twice(path: Path, seed: int, right: int) -> RunDirectory:
    """Of ten tasks none is solved before, and so many after."""
    made(path, seed=seed)
    jsonl(path / "evaluations.jsonl", [{"step": 0, "stage": "rl", "when": "before"}, *AFTER])
    for when, solved in (("before", 0), ("after", right)):
        result(path, f"rl-{when}", {f"t{n}": float(n < solved) for n in range(10)})
    return read_directory(path)


def compared(*runs: RunDirectory) -> Report:
    return build_report(runs, [None] * len(runs))


def rows_of(report: Report, name: str) -> list[list[Any]]:
    rows: list[list[Any]] = report["tables"][name]["rows"]
    return rows


def test_only_keys_that_differ_are_shown(tmp_path: Path) -> None:
    report = compared(
        made(tmp_path / "a", learner={"lr": 1.0, "clip_grad": 1.0}),
        made(tmp_path / "b", learner={"lr": 2.0, "clip_grad": 1.0}, seed=1),
    )
    assert rows_of(report, "differences") == [["learner.lr", "1.0", "2.0"], ["seed", "0", "1"]]
    assert report["sections"][0]["tables"][0] == "differences"
    assert [run["label"] for run in report["runs"]] == ["a (learner.lr=1.0)", "b (learner.lr=2.0)"]


@pytest.mark.parametrize(
    ("changes", "low", "high", "direction"),
    # 4.3027 and 12.706: the 97.5 % quantile of Student's t with 2 and 1 degrees of freedom
    [
        ((0.1, 0.2, 0.3), 0.2 - 0.24841, 0.2 + 0.24841, 0),
        ((0.5, 0.5), 0.5, 0.5, 0),  # without a spread signs alone speak: 2 of the 4 that two may have
        ((0.3 - 0.1, 0.4 - 0.2), 0.2, 0.2, 0),  # they differ by rounding
        ((0.5,) * 5, 0.5, 0.5, 0),
        ((-0.5,) * 6, -0.5, -0.5, -1),  # 2 of 64 are below 5 %
        ((-0.3, -0.31), -0.3685, -0.2415, -1),
    ],
)
def test_a_change_over_seeds_has_students_interval(
    changes: tuple[float, ...], low: float, high: float, direction: int
) -> None:
    change = average_changes(changes)
    assert change.mean == pytest.approx(sum(changes) / len(changes)) and change.direction == direction
    assert (change.low, change.high) == pytest.approx((low, high), abs=1e-4)


def test_the_spread_of_one_seed_is_unknown() -> None:
    with pytest.raises(ValueError, match="one seed"):
        average_changes([0.1])


def test_a_setting_has_a_verdict_over_its_seeds(tmp_path: Path) -> None:
    seeds = [evaluated_twice(tmp_path / name, seed, right=seed + 4) for seed, name in enumerate("abc")]
    (verdict,) = compared(*seeds)["settings"]
    assert verdict["level"] == "good" and "3 seeds" in verdict["text"]
    assert verdict["plays"]["greedy"]["mean"] == pytest.approx(0.5)  # of ten tasks 4, 5 and 6 more are right
    assert verdict["plays"]["greedy"]["low"] == pytest.approx(0.5 - 0.24841, abs=1e-4)
    assert compared(seeds[0], made(tmp_path / "other", name="other"))["settings"] == []


def test_seeds_of_one_setting_are_a_line_with_their_spread(tmp_path: Path) -> None:
    report = compared(
        made(tmp_path / "a", (0.0, 1.0)),
        made(tmp_path / "b", (1.0, 2.0, 5.0), seed=1),
        made(tmp_path / "c", name="other"),
    )
    band, line = report["charts"]["reward"]["series"]
    assert band["x"] == [1, 2, 3] and band["y"] == [0.5, 1.5, 5.0]
    assert band["low"] == [pytest.approx(0.5 - 0.5**0.5, abs=1e-5), pytest.approx(1.5 - 0.5**0.5, abs=1e-5), None]
    assert "2 seeds" in band["label"] and line["label"] == "other" and line["run"] == 2


def test_settings_are_tested_on_the_tasks_of_both_with_seeds_averaged_first(tmp_path: Path) -> None:
    """Ours has seeds of 1 and 0 on every task, theirs 0: a difference of 0.5 on the 20 tasks of both."""
    tasks = {f"t{n}": 0.0 for n in range(20)}
    report = compared(
        made(tmp_path / "a", tasks={**tasks, "only here": 1.0}),
        made(tmp_path / "b", tasks=dict.fromkeys(tasks, 1.0), name="other"),
        made(tmp_path / "c", tasks=tasks, name="other", seed=1),
    )
    ((pair, play, count, difference, *_),) = rows_of(report, "tests")
    assert (pair, play, count, difference) == ("other against q", "greedy", 20, "+0.500")
    assert rows_of(report, "settings")[1] == ["other", "greedy", 2, "0.50", "0.71"]
    assert [row[:4] for row in rows_of(report, "verdicts")] == [
        ["a", "q", "done", 2], ["b", "other", "done", 2], ["c", "other", "done", 2]
    ]  # fmt: skip


def test_single_seeds_are_said(tmp_path: Path) -> None:
    base, other, again = made(tmp_path / "a"), made(tmp_path / "b", name="other"), made(tmp_path / "c", seed=1)
    assert [item["rule"] for item in compared(base, other)["advice"]] == ["seeds"]
    assert [item["numbers"]["alone"] for item in compared(base, other, again)["advice"]] == [1.0]
    assert compared(base, again)["advice"] == []


def test_of_more_runs_than_can_be_told_apart_there_are_tables_only(tmp_path: Path) -> None:
    runs = [made(tmp_path / f"r{n}", seed=n) for n in range(MOST_DRAWN + 1)]
    assert compared(*runs[:-1])["charts"]
    report = compared(*runs)
    assert not report["charts"] and len(rows_of(report, "verdicts")) == MOST_DRAWN + 1
    assert len(rows_of(report, "trust")) == MOST_DRAWN + 1


def test_a_run_given_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(tmp_path / "a")
    assert rlsys(["report", str(tmp_path / "a"), str(tmp_path / "." / "a"), "--json"]) == 2
    assert "twice" in capsys.readouterr().err


# -- what others wrote -----------------------------------------------------------------------------------------------


def test_files_of_any_shape_make_a_report(tmp_path: Path) -> None:
    odd: list[Any] = [None, 3, "x", [], {}, [3], {"x": [None]}, float("nan"), 10**400, "\ud800\x1b[2J"]
    for at, value in enumerate(odd):
        attempt = dict.fromkeys(
            ("nodes", "data", "command", "overrides", "lock", "packages", "differs", "commit"), value
        )
        summary = dict.fromkeys(("health", "versions", "command", "reason", "steps"), value) | {"status": "failed"}
        events = [{"kind": "restart", "step": value, "time": value, "text": value, "who": value, "groups": value}]
        run = run_directory(
            tmp_path / str(at),
            [{"step": 1, "reward/mean": 1.0}, {"step": 2, "reward/mean": 2.0}],
            record={"parameters": value, "attempts": [attempt, {"nodes": [attempt], "time": value}, value]},
            summary=summary,
            events=events,
            evaluations=[{"step": 2, "stage": "rl", "when": "after", "greedy/accuracy": value, "prompts": value}],
            stages=[{"name": "rl", "kind": "rl", "steps": 2, "loop": {"max_policy_lag": 1}}],
            cluster={"device": "cpu"},
        )
        report = compared(read_directory(run))
        json.dumps(report, allow_nan=False)
        assert report["runs"][0]["status"] == "failed", value


@pytest.mark.parametrize("rows", [0, 1])
def test_reports_of_hardly_anything(tmp_path: Path, rows: int) -> None:
    run = run_directory(tmp_path / "a", [{"step": 1, "reward/mean": 1.0}][:rows])
    report = compared(read_directory(run))
    assert report["runs"][0]["status"] == "killed" and report["runs"][0]["verdict"]["level"] == "unknown"
    assert ("reward" in report["charts"]) == bool(rows)
