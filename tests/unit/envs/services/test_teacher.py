"""A teacher: what it is asked, what its answer becomes, and that the same is not paid for twice."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.papers.long_cot.actions import construct
from envs.services.endpoint import Choice, Question, read_choice
from envs.services.guard import GuardConfig, ToolFailed
from envs.services.judge.templates import Prompts
from envs.services.teacher import Teacher, as_chat_messages, check_teacher
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from rlsys.config.generate import TeacherConfig
from rlsys.errors import BadInput
from rlsys.types import FailureKind, Message, ToolCall
from tests.fakes.judge_endpoint import scripted

ASKED = Question(messages=(Message(role="user", content="2 + 3?"),), max_tokens=64, temperature=0.7, seed=5, top_p=0.9)


def answers(teacher: TeacherConfig, place: Path, *questions: Question) -> list[Choice]:
    async def go() -> list[Choice]:
        client = Teacher(teacher, concurrency=4, log=place)
        try:
            return [await client.answer(question, {"seed": question.seed}) for question in questions]
        finally:
            await client.close()

    return asyncio.run(go())


def test_a_question_is_asked_once_and_a_broken_off_answer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.services.teacher.GuardConfig", partial(GuardConfig, backoff_s=0.0))
    message = {"content": "5", "reasoning_content": "two and three\n"}
    cut, whole = ({"choices": [{"message": message, "finish_reason": how}]} for how in ("abort", "length"))
    said_next: list[Any] = [(200, {"x": "y"}, json.dumps(cut)), 500, (200, {"x": "y"}, json.dumps(whole))]
    with scripted(lambda _: said_next.pop(0)) as endpoint:
        config = TeacherConfig(endpoint=endpoint.url, model="big", outage_s=20)
        (choice, again) = answers(config, tmp_path / "a.jsonl", ASKED, ASKED)
        place = tmp_path / "a.jsonl"
        place.write_bytes(place.read_bytes() + b'{"key": "torn')
        assert answers(config, place, ASKED) == [choice]
    (line,) = map(json.loads, place.read_text().splitlines())
    assert (line["model"], line["seed"], line["text"]) == ("big", 5, "5")
    assert choice == again == Choice(text="5", thought="two and three\n", truncated=True)
    assert endpoint.asked[-1] == {
        "model": "big",
        "messages": [{"role": "user", "content": "2 + 3?"}],
        "max_tokens": 64,
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 5,
    }


def test_two_teachers_of_one_name_share_no_answers(tmp_path: Path) -> None:
    with scripted(lambda _: "5") as first, scripted(lambda _: "six") as second:
        for endpoint in (first, second, first):
            config = TeacherConfig(endpoint=endpoint.url, model="big")
            assert [choice.text for choice in answers(config, tmp_path / "a.jsonl", ASKED)] == [endpoint.say("")]
        assert (len(first.asked), len(second.asked)) == (1, 1)


def test_a_refused_key_fails_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", "sk-very-secret-key")
    with scripted(lambda _: 401) as endpoint:
        config = TeacherConfig(endpoint=endpoint.url, model="big", key_env="TEACHER_KEY")
        with pytest.raises(ToolFailed, match="answered 401: is the key in TEACHER_KEY valid") as failed:
            answers(config, tmp_path / "a.jsonl", ASKED)
    assert failed.value.failure.kind is FailureKind.DATA and len(endpoint.asked) == 1
    assert "sk-very" not in str(failed.value)


@pytest.mark.parametrize("answer", [{}, [], None, {"choices": [{}]}, {"choices": [{"message": {"content": 5}}]}])
def test_what_is_no_completion_is_an_error(answer: Any) -> None:
    with pytest.raises(ValueError, match="choices"):
        read_choice(answer)
    assert read_choice({"choices": [{"message": {"content": None}}]}) == Choice(text="")
    half = {"content": "a\ud800", "reasoning": "\udc00 \U0001f600"}  # no tokenizer takes it
    assert read_choice({"choices": [{"message": half}]}) == Choice(text="a?", thought="? \U0001f600")


def test_what_the_environment_says_is_the_users() -> None:
    messages = (
        Message(role="system", content="s"),
        Message(role="assistant", content="a"),
        Message(role="tool", content="t", inline=True),
    )
    assert [(message.role, message.content) for message in as_chat_messages(messages)] == [
        ("system", "s"),
        ("assistant", "a"),
        ("user", "t"),
    ]


def test_a_call_that_cannot_be_read_stands_in_the_text_alone() -> None:
    calls = (ToolCall(name="f", call_id="1"), ToolCall(name="", call_id="2", problem="it has no name"))
    results = [Message(role="tool", content=f"r{number}", call_id=number) for number in "12"]
    message, first, second = as_chat_messages([Message(role="assistant", content='({"a"', calls=calls), *results])
    assert message.calls == calls[:1] and (first.role, second.role, second.call_id) == ("tool", "user", "")


class Scripted:
    """A teacher that answers by action, and says who was asked what."""

    def __init__(self, *said: str) -> None:
        self.said = list(said)
        self.asked: list[tuple[str, bool, int]] = []

    async def answer(self, question: Question, about: Any, *, reflecting: bool = False) -> Choice:
        self.asked.append((about["state"], reflecting, question.seed))
        assert "What is 2 + 3?" in question.messages[0].content or about["step"] > 0
        return Choice(text=self.said.pop(0))


CLARIFY = "<clarification>Two numbers are added.</clarification><goal>Find 2 + 3.</goal>"
DECOMPOSE = "<sentence>Perhaps count on.</sentence><sentence>Alternatively, look it up.</sentence>"
SOLVED = (
    "<verification>5 - 3 = 2.</verification><current_goal_achieved>true</current_goal_achieved>"
    "<parent_goal_achieved>true</parent_goal_achieved>"
)


def test_a_chain_of_thought_is_constructed_and_the_second_model_reflects() -> None:
    teacher = Scripted(CLARIFY, "no proposal", DECOMPOSE, "2 + 3 = 5", SOLVED, "The answer is \\boxed{5}.")
    printed = Prompts(str(CONFIGS / "long_cot" / "prompts"))
    text = asyncio.run(construct(teacher, printed, "What is 2 + 3?", ASKED, 40))  # type: ignore[arg-type]
    assert text.split("\n\n") == [
        "Two numbers are added.",
        "Perhaps count on. Alternatively, look it up.",
        "2 + 3 = 5",
        "5 - 3 = 2.",
        "The answer is \\boxed{5}.",
    ]
    states = ["clarify", "decompose", "decompose", "solution_step", "reflection", "answer"]
    assert [(state, reflecting) for state, reflecting, _ in teacher.asked] == [(s, s == "reflection") for s in states]
    assert len({seed for *_, seed in teacher.asked}) == 6  # what had not the form is asked again, sampled anew
    with pytest.raises(ToolFailed, match="action_clarify asks for, 3 times"):
        asyncio.run(construct(Scripted(*"abc"), Prompts(), "What is 2 + 3?", ASKED, 40))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keys", "part"),
    [
        (["endpoint=http://h/v1"], "generate.teacher.model=None: expected a name with generate.teacher.endpoint"),
        (["model=big"], "generate.teacher.model='big': expected a name with generate.teacher.endpoint, else null"),
        (["endpoint=http://far/v1", "model=big", "key_env=TEACHER_KEY"], "generate.teacher.plain_http=true"),
        (["constructs=true"], "generate.teacher.constructs=True: expected false without generate.teacher.endpoint"),
        (
            ["endpoint=https://h/v1", "model=big", "reflector.endpoint=https://h/v1", "reflector.model=b"],
            "generate.teacher.reflector.endpoint='https://h/v1': expected null without generate.teacher.constructs",
        ),
        (["endpoint=https://h/v1", "model=big", "prompts=p"], "generate.teacher.prompts='p': expected null without"),
        (["endpoint=https://h/v1", "model=big", "key_env=sk-1"], "generate.teacher.key_env: expected the name of an"),
    ],
)
def test_a_teacher_that_cannot_be_asked_is_refused(keys: list[str], part: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_teacher(compose("worlds/sums", [f"generate.teacher.{key}" for key in keys]).recipe.generate.teacher)
    assert part in str(refused.value) and "\n" not in str(refused.value)
