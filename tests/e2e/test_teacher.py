"""`rlsys generate` with a teacher behind a real endpoint: killed in the middle, continued, and never asked twice."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.runs import left_behind, rlsys
from tests.judge_endpoint import scripted

KEY = "sk-very-secret-key"


def solved(prompt: str) -> str:
    terms = [int(term) for term in re.findall(r"\d+", prompt)]
    return f"{' + '.join(map(str, terms))} = {sum(terms)}\n\\boxed{{{sum(terms)}}}"


def asked_of(question: dict[str, Any]) -> str:
    return json.dumps([question["messages"], question["seed"]])


@pytest.mark.slow
def test_what_a_teacher_answered_is_kept_and_never_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", KEY)
    output = tmp_path / "long.jsonl"
    answers: list[str] = []

    def say(prompt: str) -> Any:
        if len(answers) == 12:
            return None  # and hang
        answers.append(prompt)
        wrong = len(answers) % 4 == 0
        return (200, {"x": "y"}, choice(solved(prompt.replace("1", "2") if wrong else prompt)))

    with scripted(say) as endpoint:
        command = ["generate", "worlds/sums", "--output", str(output), "--tasks", "8", "--samples", "4"]
        command += ["--keep", "correct", "generate.concurrency=8", f"generate.teacher.endpoint={endpoint.url}"]
        command += ["generate.teacher.model=big", "generate.teacher.key_env=TEACHER_KEY"]
        killed = rlsys(*command, send=signal.SIGKILL, when=lambda: stored(tmp_path / "long.answers.sqlite") == 12)
        assert (killed.code, output.exists()) == (-9, False), killed.output[-3000:]
        first = [asked_of(each) for each in endpoint.asked[:12]]
        answers.clear()
        endpoint.asked.clear()
        endpoint.say = lambda prompt: (200, {"x": "y"}, choice(solved(prompt)))
        done = rlsys(*command)
        assert done.code == 0, done.output[-3000:]
        second = [asked_of(each) for each in endpoint.asked]
    assert len(set(first)) == 12 and not set(first) & set(second)
    assert len(set(first) | set(second)) == 8 * 4 == len(first) + len(second)
    assert endpoint.keys == [f"Bearer {KEY}"] * len(endpoint.keys)
    kept = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(kept) == 8 and all(each["parts"]["outcome"] > 0 and each["num_tokens"] > 0 for each in kept)
    assert all("samples" not in each and "tokenizer" not in each for each in kept)
    assert "32 trajectories of 8 tasks" in done.output and "the teacher big plays" in done.output
    assert not list(tmp_path.glob("*.sqlite*"))
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in done.output + killed.output
    assert left_behind() == []


def stored(answers: Path) -> int:
    if not answers.exists():
        return 0
    with contextlib.closing(sqlite3.connect(f"file:{answers}?mode=ro", uri=True)) as file:
        return int(file.execute("SELECT count(*) FROM answers").fetchone()[0])


def choice(text: str) -> str:
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})
