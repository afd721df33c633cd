"""`rlsys judge` with a scripted judge: without engines, on any machine, continued where it was stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.papers.swirl.reward import FILTERS, passes_filter
from launch.cli import run
from rlsys.records import read_trajectory
from tests.fakes.judge_endpoint import scripted
from tests.makers.made import jsonl, records
from tests.unit.launch.driver.stages.test_judge import PLAYED, says

SIZES = {"none": 3, "process": 2, "outcome": 1, "both": 1}


def judging(tmp_path: Path, url: str, *more: str) -> list[str]:
    at = [f"stages.judged.reward.judge.{key}" for key in (f"endpoint={url}", "model=m", "key_env=null")]
    files = ["--input", str(tmp_path / "tries.jsonl"), "--output", str(tmp_path / "judged.jsonl")]
    return ["judge", "swirl", *files, *at, "stages.judged.loop.max_failed_share=1", *more]


def sizes(path: Path) -> dict[str, int]:
    judged = [read_trajectory(record, path.name) for record in records(path)]
    return {
        name: sum(passes_filter(name, judgements=one.judgements, right=bool(one.correct)) for one in judged)
        for name in FILTERS
    }


def test_what_was_generated_is_judged_once_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonl(tmp_path / "tries.jsonl", PLAYED)
    with scripted(says) as endpoint:
        assert run(judging(tmp_path, endpoint.url)) == 0
        assert sizes(tmp_path / "judged.jsonl") == SIZES
        asked = len(endpoint.asked)
        assert (asked, len(endpoint.greeted_with)) == (6, 1)
        verdicts = tmp_path / "judged.verdicts.jsonl"
        verdicts.write_bytes(b"".join(verdicts.read_bytes().splitlines(keepends=True)[:-1]))  # as after a kill
        assert run(judging(tmp_path, endpoint.url)) == 0
        assert sizes(tmp_path / "judged.jsonl") == SIZES and 0 < len(endpoint.asked) - asked <= 3
    assert run(judging(tmp_path, "http://127.0.0.1:1/v1")) == 0  # nothing is left to ask, and nobody is
    assert "3 trajectories, 0 without a verdict" in capsys.readouterr().out
    moved = tmp_path / "moved.jsonl"
    (tmp_path / "tries.jsonl").rename(moved)
    elsewhere = [*judging(tmp_path, "http://127.0.0.1:1/v1"), "--input", str(moved)]
    assert run(elsewhere) == 0  # verdicts are of what the file holds, wherever it lies
    moved.write_text("".join(reversed(moved.read_text().splitlines(keepends=True))))
    assert run(elsewhere) == 2  # and of nothing else, were it as long
    assert "judged.verdicts.jsonl" in capsys.readouterr().err


def test_what_it_cannot_do_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonl(tmp_path / "tries.jsonl", PLAYED)
    other = tmp_path / "judged.jsonl"
    other.write_text("mine\n")
    url = "http://127.0.0.1:1/v1"
    cases = [
        (judging(tmp_path, url), "no judged.verdicts.jsonl to continue from"),
        ([*judging(tmp_path, url), "--output", str(tmp_path / "tries.jsonl")], "no tries.verdicts.jsonl"),
        (
            judging(tmp_path, url, "stages.judged.reward.judge.endpoint=null"),
            "a run would serve this judge, on its GPUs",
        ),
        (["judge", "quickstart", "--input", "x", "--output", "y"], "expected a stage of kind judge"),
    ]
    for words, problem in cases:
        assert run(words) == 2
        err = capsys.readouterr().err
        assert problem in err and err.count("\n") == 1
    assert other.read_text() == "mine\n"


def test_a_judge_that_says_nothing_of_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jsonl(tmp_path / "tries.jsonl", PLAYED)
    with scripted(lambda prompt: "Hm." if "c?" in prompt else says(prompt)) as endpoint:
        assert run(judging(tmp_path, endpoint.url)) == 0
    assert "16.7% of the judge's answers have no verdict that can be read" in " ".join(capsys.readouterr().out.split())
