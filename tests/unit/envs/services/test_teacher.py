"""A teacher: what it is asked, what its answer becomes, and that the same is not paid for twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from actors.teacher import TeacherPlays
from envs.services.endpoint import Choice, Question, read_choice
from envs.services.guard import Guard, ToolFailed
from envs.services.teacher import Teacher, as_chat, check_teacher, said
from launch.config.compose import compose
from rlsys.errors import BadInput
from rlsys.generate_config import TeacherConfig
from rlsys.types import FailureKind, Message, TurnStop
from tests.judge_endpoint import scripted

ASKED = Question(messages=(Message(role="user", content="2 + 3?"),), max_tokens=64, temperature=0.7, seed=5, top_p=0.9)


def answers(teacher: TeacherConfig, place: Path, *questions: Question) -> list[Choice]:
    async def go() -> list[Choice]:
        asked = Teacher(teacher, concurrency=4, answers=place)
        try:
            return [await asked.answer(question) for question in questions]
        finally:
            await asked.close()

    return asyncio.run(go())


def test_a_question_is_asked_once_and_a_broken_off_answer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "_backoff_s", lambda *_: 0.0)
    message = {"content": "5", "reasoning_content": "two and three\n"}
    cut, whole = ({"choices": [{"message": message, "finish_reason": how}]} for how in ("abort", "length"))
    said_next: list[Any] = [(200, {"x": "y"}, json.dumps(cut)), 500, (200, {"x": "y"}, json.dumps(whole))]
    with scripted(lambda _: said_next.pop(0)) as endpoint:
        config = TeacherConfig(endpoint=endpoint.url, model="big", outage_s=20)
        (choice, again) = answers(config, tmp_path / "a.sqlite", ASKED, ASKED)
        assert answers(config, tmp_path / "a.sqlite", ASKED) == [choice]
    assert choice == again == Choice(text="5", thought="two and three\n", truncated=True)
    assert said(choice) == "<think>\ntwo and three\n</think>\n\n5"
    assert endpoint.asked[-1] == {
        "model": "big",
        "messages": [{"role": "user", "content": "2 + 3?"}],
        "max_tokens": 64,
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 5,
    }


def test_a_refused_key_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", "sk-very-secret-key")
    with scripted(lambda _: 401) as endpoint:
        config = TeacherConfig(endpoint=endpoint.url, model="big", key_env="TEACHER_KEY")
        with pytest.raises(ToolFailed, match="answered 401: is the key in TEACHER_KEY valid") as failed:
            answers(config, tmp_path / "a.sqlite", ASKED)
    assert failed.value.failure.kind is FailureKind.DATA and len(endpoint.asked) == 1
    assert "sk-very" not in str(failed.value)


@pytest.mark.parametrize("answer", [{}, [], None, {"choices": [{}]}, {"choices": [{"message": {"content": 5}}]}])
def test_what_is_no_completion_is_an_error(answer: Any) -> None:
    with pytest.raises(ValueError, match="choices"):
        read_choice(answer)
    assert read_choice({"choices": [{"message": {"content": None}}]}) == Choice(text="")


def test_what_the_environment_says_is_the_users() -> None:
    told = (
        Message(role="system", content="s"),
        Message(role="assistant", content="a"),
        Message(role="tool", content="t", inline=True),
    )
    assert [(each.role, each.content) for each in as_chat(told)] == [("system", "s"), ("assistant", "a"), ("user", "t")]


class Letters:
    """A token for each letter, and one for the end."""

    class tokenizer:
        eos_token_id = 0

    def text_ids(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


def test_an_answer_ends_where_an_engine_would_have_ended_it() -> None:
    plays = TeacherPlays(None, None, Letters(), 0)  # type: ignore[arg-type]
    found = [
        plays.completion("a</s>b", ("</s>", "b"), truncated=True),
        plays.completion("ab", (), truncated=True),
        plays.completion("ab", ("</s>",), truncated=False),
    ]
    assert [(each.text, each.stop) for each in found] == [
        ("a</s>", TurnStop.STOP),
        ("ab", TurnStop.LENGTH),
        ("ab", TurnStop.EOS),
    ]
    assert [each.token_ids.tolist()[-1] for each in found] == [ord(">"), ord("b"), 0]  # its end counts as a token


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        (["endpoint=http://h/v1"], "generate.teacher.model=None: expected a name beside generate.teacher.endpoint"),
        (["model=big"], "generate.teacher.model='big': expected a name beside generate.teacher.endpoint, else null"),
        (["endpoint=http://far/v1", "model=big", "key_env=TEACHER_KEY"], "generate.teacher.plain_http=true"),
        (["endpoint=https://h/v1", "model=big", "key_env=sk-1"], "generate.teacher.key_env: expected the name of an"),
    ],
)
def test_a_teacher_that_cannot_be_asked_is_refused(keys: list[str], part: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_teacher(compose("worlds/sums", [f"generate.teacher.{key}" for key in keys]).recipe.generate.teacher)
    assert part in str(refused.value) and "\n" not in str(refused.value)
