"""What a user's function may do to `rlsys score`: print, count its calls, change its row, try to end the process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import compose
from launch.tools.score.report import score_file
from launch.tools.score.scorer import Stopped, outcome
from rlsys.types import Failure, FailureKind
from tests.makers.made import jsonl, transcript

calls = [0]


def talks(completions: Any, **columns: Any) -> list[float]:
    print("looking at", completions)
    return [1.0]


def counts(completions: Any, **columns: Any) -> list[float]:
    calls[0] += 1
    return [float(calls[0])]


def takes(completions: Any, cases: Any, **columns: Any) -> list[float]:
    return [float(len(cases[0]) if cases[0].pop() else 0)]


def sees(completions: Any, cases: Any, **columns: Any) -> list[float]:
    return [float(len(cases[0]))]


def leaves(completions: Any, **columns: Any) -> list[float]:
    raise SystemExit(0)


async def leaves_later(completions: Any, **columns: Any) -> list[float]:
    raise SystemExit(0)


def score(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *functions: str,
    explained: int | None = None,
    target: str | None = None,
) -> tuple[list[str], str]:
    """Lines on stdout, and what stands on stderr."""
    weights = ", ".join(f"{__name__}.{name}: 1.0" for name in functions)
    task = {"question": "1?", "answers": ["1"], "prompt": "1?", "cases": ["a", "b", "c"]}
    source = jsonl(folder / "answers.jsonl", [{"task": task, "response": "1"}] * 2)
    recipe = compose("quickstart", ["reward.name=functions", f"reward.functions={{{weights}}}"]).recipe
    score_file(recipe, source, None, strict=False, explained=explained)
    output = capsys.readouterr()
    return output.out.splitlines(), output.err


def test_what_it_prints_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = score(tmp_path, capsys, "talks")
    assert [json.loads(line)["reward"] for line in out] == [1.0, 1.0]
    assert err.count("looking at") == 2


def test_what_is_explained_is_the_reward_that_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls[0] = 0
    out, _ = score(tmp_path, capsys, "counts", explained=1)
    assert calls == [1] and out[0] == "line 1: reward 1" and out[-1] == "counts 1 = 1"
    assert any("1 times 1" in line for line in out)


def test_each_function_has_a_row_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = score(tmp_path, capsys, "takes", "sees")
    assert [json.loads(line)["parts"] for line in out] == [{"takes": 2.0, "sees": 3.0}] * 2


@pytest.mark.parametrize("function", ["leaves", "leaves_later"])  # the second in a task, whose loop it would end
def test_leaving_is_a_failure_of_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], function: str) -> None:
    out, err = score(tmp_path, capsys, function)
    assert [json.loads(line)["status"] for line in out] == ["failure", "failure"]
    assert "0 of 2 lines scored; failures: data 2" in err and "SystemExit" in err


def test_a_signal_is_not_taken_for_the_users_code() -> None:
    def stopped(_transcript: Any) -> Any:
        raise Stopped(143)

    def ended(_transcript: Any) -> Any:
        raise SystemExit(3)

    failure = outcome(ended, transcript("1"))
    assert isinstance(failure, Failure) and failure.kind is FailureKind.DATA
    with pytest.raises(Stopped):
        outcome(stopped, transcript("1"))
