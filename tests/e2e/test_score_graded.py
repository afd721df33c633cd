"""`rlsys score` with real grader processes, one of which is given what cannot be finished."""

import json
from pathlib import Path
from typing import Any

import pytest

from launch.cli import run

HANGS = "9^{9^{9^9}}"


def boxed(answer: str, gold: str) -> dict[str, Any]:
    return {"task": {"answers": [gold]}, "response": f"\\boxed{{{answer}}}", "num_tokens": 0}


def test_what_is_graded_elsewhere_keeps_its_place_and_a_hang_is_a_wrong_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[Any] = []
    for k in range(2, 12):
        lines += [boxed(f"{k}\\sqrt{{2}}", f"\\sqrt{{{2 * k * k}}}"), boxed("1", "2"), "nope"]
    lines.insert(4, boxed(HANGS, "17"))
    lines.insert(5, boxed("x", HANGS))
    source = tmp_path / "in.jsonl"
    source.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    assert run(["score", "long_cot", "rollout.grader_deadline_s=4", "--input", str(source)]) == 0
    out = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert out.pop(4)["reward"] == -10.0
    hung = out.pop(4)
    assert (hung["status"], hung["kind"], hung["line"]) == ("failure", "data", 6)
    assert [result.get("reward") for result in out] == [2.0, -10.0, None] * 10
