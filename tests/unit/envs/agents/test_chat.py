"""Requests of chat completions: each key has an effect or is refused, and what comes back is known again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.agents.chat import (
    ChatAnswer,
    Refused,
    chunks_json,
    completion_json,
    history_key,
    make_chat_answer,
    message_json,
    read_request,
    split_history,
)
from envs.protocols.families.tagged import HERMES
from envs.protocols.native import FAMILIES, read_calls
from rlsys.types import Message, Sampled, ToolCall, ToolOffer, TurnSettings, TurnStop

USER = {"role": "user", "content": "q"}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
CALLS = (
    ToolCall(name="add", arguments={"a": 1, "b": [2]}, call_id="000000001"),
    ToolCall(name="add", arguments={}, call_id="2"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 99) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from(
    ["messages", "tools", "tool_choice", "stop", "max_tokens", "n", "stream", "stream_options", "logprobs", "seed"]
    + ["temperature", "top_p", "top_k", "model", "user", "logit_bias", "response_format", "presence_penalty", "x"]
)


def sampled(stop: TurnStop = TurnStop.EOS, tokens: int = 3) -> Sampled:
    return Sampled(num_context=7, num_tokens=tokens, stop=stop)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, JSON), st.booleans(), st.booleans())
def test_whatever_is_sent_is_a_request_or_refused(body: dict[str, Any], overrides: bool, valid: bool) -> None:
    if valid:
        body = {**body, "messages": [USER]}
    try:
        request = read_request(body, overrides=overrides)
    except Refused as refused:
        assert refused.status == 400 and json.dumps(refused.json())
        return
    assert request.messages and request.settings.reports and 1 <= request.choices <= 16
    assert body.get("logit_bias") in (None, [], {}, "") and body.get("x") in (None, [], {}, "")


@pytest.mark.parametrize(
    "body, says",
    [
        ({"logit_bias": {"1": 5}}, "logit_bias"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"parallel_tool_calls": False}, "parallel_tool_calls"),
        ({"tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": True}, "temperature"),
        ({"seed": 1.5}, "seed"),
        ({"stop": [""]}, "stop"),
        ({"n": 17}, "'n'"),
        ({"stream": "yes"}, "stream"),
        ({"logprobs": 5}, "logprobs"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]}, "no text"),
        ({"messages": [{"role": "user", "content": "q", "reasoning_content": "x"}]}, "reasoning_content"),
        ({"messages": [{"role": "tool", "content": "5", "tool_call_id": "1"}]}, "nobody has made"),
        ({"messages": [{"role": "critic", "content": "q"}]}, "role"),
    ],
)
def test_what_is_refused_is_named(body: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        read_request({"messages": [USER], **body}, overrides=True)


def test_what_says_nothing_is_taken() -> None:
    plain = {"frequency_penalty": 0, "logit_bias": {}, "response_format": {"type": "text"}, "tools": [], "n": None}
    request = read_request({"messages": [USER], **plain, "seed": 5, "min_p": 0.1}, overrides=True)
    assert (request.choices, request.settings.offer, request.sampling) == (1, None, {"seed": 5, "min_p": 0.1})
    assert request.overridden == ("min_p", "seed")
    required = read_request({"messages": [USER], "tools": [TOOL], "tool_choice": "required"}, overrides=True)
    assert required.overridden == ("tool_choice",) and required.settings.offer is not None
    with pytest.raises(Refused, match="tool_choice"):
        read_request({"messages": [USER], "tools": [TOOL], "tool_choice": "required"}, overrides=False)
    with pytest.raises(Refused, match="min_p"):
        read_request({"messages": [USER], "min_p": 0.1}, overrides=False)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_an_answer_comes_back_as_the_history_that_it_was(family: Any) -> None:
    text = family.write("" if family.name in ("pythonic", "llama3") else "Let me add.", CALLS[:1])
    calls = [ToolCall(name=call.name, arguments=call.arguments, call_id="7") for call in read_calls(family, text)]
    answer = make_chat_answer(text, calls, TurnSettings(), sampled())
    assert answer.finish_reason == "tool_calls" and family.opening not in answer.content
    sent = {**message_json(answer), "refusal": None, "annotations": [], "audio": None, "function_call": None}
    result = {"role": "tool", "tool_call_id": "7", "content": "3"}
    request = read_request({"messages": [USER, sent, result], "tools": [TOOL]}, overrides=True)
    history, replies = split_history(request.messages)
    assert history_key(history, None) == history_key((Message(role="user", content="q"), answer.message), None)
    assert replies == (Message(role="tool", content="3", tool="add", call_id="7"),)


def test_histories_differ_by_what_they_say() -> None:
    message = ChatAnswer(content="5", calls=CALLS[:1], sampled=sampled()).message
    variant = Message(role="assistant", content=" 5\n", calls=CALLS[:1])
    others = [
        Message(role="assistant", content="6", calls=CALLS[:1]),
        Message(role="assistant", content="5"),
        Message(role="user", content="5", calls=CALLS[:1]),
        Message(role="assistant", content="5", calls=CALLS[1:]),
    ]
    assert history_key([variant], None) == history_key([message], None) != history_key([message], ToolOffer(schemas=()))
    assert len({history_key([other], None) for other in (message, *others)}) == 5
    assert split_history([Message(role="user", content="q")]) == ((), (Message(role="user", content="q"),))


def test_a_text_lacks_what_ended_it_and_a_broken_call_stays_a_text() -> None:
    settings = TurnSettings(stop=("</a>", "a>"))
    assert make_chat_answer("x</a>", (), settings, sampled(TurnStop.STOP)).content == "x"
    assert make_chat_answer("x</a>", (), settings, sampled(TurnStop.EOS)).content == "x</a>"
    broken = HERMES.write("", ())[:0] + "<tool_call>{oops</tool_call>"
    answer = make_chat_answer(broken, read_calls(HERMES, broken), settings, sampled())
    assert (answer.content, answer.calls, answer.finish_reason) == (broken, (), "stop")
    assert make_chat_answer("x", (), settings, sampled(TurnStop.LENGTH)).finish_reason == "length"


def test_usage_and_stream_say_what_was_sampled() -> None:
    answers = [
        make_chat_answer("one", (), TurnSettings(), sampled()),
        make_chat_answer("two", CALLS, TurnSettings(), sampled()),
    ]
    whole = completion_json("id", "m", answers)
    assert whole["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "tool_calls"]
    chunks = list(chunks_json("id", "m", answers, usage=True))
    assert [chunk["choices"][0]["index"] for chunk in chunks[:-1]] == [0, 0, 1, 1]
    assert [call["index"] for call in chunks[2]["choices"][0]["delta"]["tool_calls"]] == [0, 1]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]
