"""A model at an address in the place of the workers: what it is asked, and where its answer ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.chat import PROBE, PROBE_OFFER
from actors.env_worker import CannotStart
from actors.served import ServedPlays
from envs.services.endpoint import Choice, Question, read_choice, text_with_stop
from envs.services.teacher import Teacher
from rlsys.config.served import ServedConfig
from rlsys.errors import RunFailed
from rlsys.rollout import TurnRequest
from rlsys.types import Completion, Message, ToolCall, TurnStop
from tests.fakes.judge_endpoint import scripted
from tests.makers import made
from tests.makers.made import plan, ticket

STOPS = ("</search>", "</answer>")


class Letters:
    """A token for each letter."""

    turn_end = 0

    def text_ids(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))

    def assistant_token_ids(self, message: Message, offer: Any) -> tuple[int, ...]:
        return self.text_ids(message.content + "c" * len(message.calls))

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))


class Model:
    patience_s = 100.0

    def __init__(self, *says: Choice) -> None:
        self.says, self.asked = list(says), list[Question]()

    async def answer(self, question: Question, about: Any) -> Choice:
        self.asked.append(question)
        return self.says.pop(0)


def request(temperature: float = 0.5, stop: tuple[str, ...] = STOPS) -> TurnRequest:
    messages = (
        Message(role="system", content="s"),
        Message(role="assistant", content="<search>a</search>"),
        Message(role="tool", content="found", inline=True),
    )
    return TurnRequest(max_tokens=60, temperature=temperature, top_p=0.9, seed=4, stop=stop, messages=messages)


def test_a_conversation_is_asked_as_chat_and_the_stop_string_stands_in_the_answer() -> None:
    model = Model(Choice(text="<search>b", stopped="</search>"), Choice(text="c", thought="hm"))
    served = ServedPlays(model, None, Letters(), 7)  # type: ignore[arg-type]
    called, greedy = (asyncio.run(served.generate(made.ints([1]), request(t))) for t in (0.5, 0.0))
    assert [(message.role, message.content) for message in model.asked[0].messages] == [
        ("system", "s"),
        ("assistant", "<search>a</search>"),
        ("user", "found"),
    ]
    question = model.asked[0]
    assert (question.max_tokens, question.temperature, question.top_p, question.seed, question.stop) == (
        60,
        0.5,
        0.9,
        4,
        STOPS,
    )
    assert model.asked[1].seed == 0  # a greedy answer needs none, and the same question is then the same
    assert (called.text, called.stop) == ("<search>b</search>", TurnStop.STOP)
    assert (greedy.text, greedy.stop) == ("<think>\nhm\n</think>\n\nc", TurnStop.EOS)


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        (Choice(text="<search>a"), "<search>a</search>"),  # OpenAI's: it says that there was a stop, not which
        (Choice(text="<search>a</search> b <answer>c", stopped="</answer>"), "<search>a</search> b <answer>c"),
        (Choice(text="<search>a", stopped=""), "<search>a"),  # the model ended it, and left the tag open
        (Choice(text="<search>a", stopped="</answer>"), "<search>a</answer>"),
        (Choice(text="<search>a", stopped="elsewhere"), "<search>a"),
        (Choice(text="<search>a", truncated=True), "<search>a"),
        (Choice(text="<search> or <answer>a"), "<search> or <answer>a</answer>"),
        (Choice(text="no tag"), "no tag"),
    ],
)
def test_what_a_server_left_out_is_put_back(choice: Choice, text: str) -> None:
    assert text_with_stop(choice, STOPS) == text


def test_which_stop_string_it_was_is_read_where_a_server_says_so() -> None:
    def of(**more: Any) -> str | None:
        return read_choice({"choices": [{"message": {"content": "a"}, **more}]}).stopped

    assert [of(), of(stop_reason=None), of(stop_reason=151643), of(matched_stop="</s>")] == [None, "", "", "</s>"]


def test_fields_that_a_server_does_not_know_are_not_sent(tmp_path: Path) -> None:
    message = (Message(role="user", content="?"),)
    question = Question(messages=message, max_tokens=9, temperature=0.7, seed=5, top_p=0.9, stop=("</a>",))

    async def ask(config: ServedConfig) -> None:
        model = Teacher(config, concurrency=1, log=tmp_path / "log")
        await model.answer(question, {})
        await model.close()

    with scripted(lambda _: "5") as endpoint:
        options = {"endpoint": endpoint.url, "model": "big"}
        asyncio.run(ask(ServedConfig(**options)))
        (tmp_path / "log").unlink()
        few = {"omit": ("temperature", "top_p", "seed", "stop"), "limit_key": "max_completion_tokens"}
        asyncio.run(ask(ServedConfig(**options, **few)))
    whole, least = ({key: body[key] for key in body if key != "messages"} for body in endpoint.asked)
    assert whole == {"model": "big", "max_tokens": 9, "temperature": 0.7, "top_p": 0.9, "seed": 5, "stop": ["</a>"]}
    assert least == {"model": "big", "max_completion_tokens": 9}


def test_a_server_that_knows_no_stop_strings_left_none_out() -> None:
    model = Model(Choice(text="<search>b"), Choice(text="<search>b</search> c"))
    served = ServedPlays(model, None, Letters(), 7, sends_stop=False)  # type: ignore[arg-type]
    completions = [asyncio.run(served.generate(made.ints([1]), request())) for _ in range(2)]
    assert [question.stop for question in model.asked] == [(), ()]
    assert [(completion.text, completion.stop) for completion in completions] == [
        ("<search>b", TurnStop.EOS),
        ("<search>b</search>", TurnStop.STOP),  # cut here all the same
    ]


TOOLS = PROBE_OFFER.schemas
CALLS = tuple(replace(PROBE, call_id=f"00000000{at}") for at in range(3))


def conversation(*results: Message) -> tuple[Message, ...]:
    return Message(role="user", content="q"), Message(role="assistant", content="", calls=CALLS), *results


def test_an_agent_s_conversation_its_tools_and_its_calls_are_sent_as_they_are(tmp_path: Path) -> None:
    results = [Message(role="tool", content=str(at), tool=PROBE.name, call_id=CALLS[at].call_id) for at in (2, 0)]
    stray = Message(role="tool", content="of no call", tool="x", call_id="999999999")
    called = {"content": None, "tool_calls": [{"id": "call_7", "function": {"name": "probe_tool", "arguments": "{}"}}]}
    answer = (200, {"x": "y"}, json.dumps({"choices": [{"message": called, "finish_reason": "tool_calls"}]}))

    async def ask(renderer: Any) -> tuple[Completion, Completion]:
        model = Teacher(ServedConfig(endpoint=endpoint.url, model="big"), concurrency=1, log=tmp_path / "log")
        served = ServedPlays(model, None, renderer, 7)  # type: ignore[arg-type]
        asks = replace(request(), messages=conversation(*results, stray), offer=PROBE_OFFER)
        completions = [await served.generate(made.ints([1]), asks) for _ in range(2)]
        await model.close()
        return completions[0], completions[1]

    with scripted(lambda _: answer) as endpoint:
        first, again = asyncio.run(ask(Letters()))
    (body,) = endpoint.asked  # the second is answered from the log
    assert body["tools"] == [json.loads(schema) for schema in TOOLS] and "tool_choice" not in body
    _, message, *replies = body["messages"]
    assert message["content"] is None  # a call that has no result is left out
    assert [call["id"] for call in message["tool_calls"]] == ["000000000", "000000002"]
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == PROBE.arguments
    assert replies == [
        {"role": "tool", "content": "2", "tool_call_id": "000000002"},
        {"role": "tool", "content": "0", "tool_call_id": "000000000"},
        {"role": "user", "content": "of no call"},
    ]
    for completion in (first, again):
        message = Message(role="assistant", content="", calls=(ToolCall(name="probe_tool"),))
        assert (completion.said, completion.stop) == (message, TurnStop.EOS)
        assert completion.spans == () and not completion.logprobs.any()


def test_what_is_no_call_is_one_with_a_problem_and_stands_in_the_text() -> None:
    def read(*functions: Any, content: str | None = "Let me.") -> Choice:
        calls = [{"function": function} for function in functions]
        return read_choice({"choices": [{"message": {"content": content, "tool_calls": calls}}]})

    arguments = ('{"a": "\\ud800"}', "{", None, {"a": 1}, {"a": float("nan")}, "[1]", "")
    choice = read(*({"name": "add", "arguments": text} for text in arguments))
    assert [call.arguments for call in choice.calls] == [{}, {}, {}, {"a": 1}, {}, {}, {}]
    assert [bool(call.problem) for call in choice.calls] == [True, True, False, False, True, True, False]
    assert choice.text == 'Let me.\nadd({"a": "\\ud800"})\nadd({)\nadd({"a": NaN})\nadd([1])'
    assert read({"name": "a\ud800"}).calls[0].name == "a?" and read(content=None).calls == ()
    for broken in (None, {}, {"name": 5}, "add"):
        with pytest.raises(ValueError, match="tool_calls"):
            read(broken)


class Worlds:
    def play(self, plan: Any, task: Any) -> Worlds:
        return self

    def __enter__(self) -> Worlds:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def max_turns(self) -> int:
        raise CannotStart("no corpus")


def test_an_environment_that_cannot_be_made_ends_it() -> None:
    served = ServedPlays(Model(), Worlds(), Letters(), 7)  # type: ignore[arg-type]
    with pytest.raises(RunFailed, match="no corpus"):
        asyncio.run(served.group(ticket(), plan(), lambda _: None))
