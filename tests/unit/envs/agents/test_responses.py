"""Requests of the responses API: read as chat completions are, answered in the SDK's own types, and known again."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from envs.agents.chat import ChatAnswer, Refused, history_key, read_request, split_history
from envs.agents.responses import read_response_request, response_events, response_json
from rlsys.types import Message, Sampled, ToolCall, TurnStop
from tests.unit.envs.agents.test_chat import CALLS, JSON, TOOL, USER

FLAT = {"type": "function", **TOOL["function"], "strict": True}  # type: ignore[dict-item]
KEYS = st.sampled_from(
    ["input", "instructions", "tools", "tool_choice", "max_output_tokens", "stream", "include", "text", "reasoning"]
    + ["temperature", "model", "store", "truncation", "background", "conversation", "stop", "messages", "n", "x"]
)
TYPES = st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "input_text", "x"])
ITEMS = st.fixed_dictionaries(
    {"type": TYPES},
    optional={name: JSON for name in ("role", "content", "call_id", "name", "arguments", "output", "tool_calls")},
)


def answered(content: str, calls: tuple[ToolCall, ...] = (), stop: TurnStop = TurnStop.EOS) -> ChatAnswer:
    tokens = (("5", -0.5),)
    return ChatAnswer(
        content=content, calls=calls, sampled=Sampled(num_context=7, num_tokens=3, stop=stop, tokens=tokens)
    )


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, JSON), st.lists(ITEMS, max_size=4), st.booleans())
def test_whatever_is_sent_is_a_request_or_refused(body: dict[str, Any], items: list[Any], valid: bool) -> None:
    body = {**body, "input": [*items, USER]} if valid else body
    try:
        request = read_response_request(body, overrides=True)
    except Refused as refused:
        assert refused.status == 400 and json.dumps(refused.json())
        return
    assert request.messages and request.choices == 1
    assert not any(body.get(key) for key in ("x", "conversation", "background", "stop", "n"))


@pytest.mark.parametrize(
    "body, says",
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"stop": ["x"]}, "stop"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"temperature": 3}, "temperature"),
        ({"tool_choice": {"type": "function", "name": "add"}, "tools": [FLAT]}, "tool_choice"),
        ({"tools": [FLAT, {"type": "web_search"}]}, r"tools\[1\].*web_search"),
        ({"tools": [TOOL]}, r"tools\[0\].function"),
        ({"tools": [{**FLAT, "defer_loading": True}]}, "defer_loading"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "item_reference"),
        ({"input": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]}, "summary"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "encrypted_content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "input_image"),
        ({"input": [{"type": "function_call_output", "call_id": "1", "output": "5"}]}, "nobody has made"),
        ({"input": [USER, {"role": "assistant", "content": "x"}]}, "assistant"),
        ({"input": 5}, "input"),
    ],
)
def test_what_is_refused_is_named(body: dict[str, Any], says: str) -> None:
    with pytest.raises(Refused, match=says):
        read_response_request({"input": "q", **body}, overrides=True)


def test_a_request_says_what_the_same_chat_completion_does() -> None:
    shared = {"temperature": 0.5, "tool_choice": "auto", "stream": True, "metadata": {"a": "b"}, "model": "m"}
    without_effect = {
        "store": True, "background": False, "truncation": "disabled", "text": {"format": {"type": "text"}},
        "reasoning": {"effort": None, "summary": "auto"}, "prompt_cache_retention": "24h", "conversation": None,
        "previous_response_id": None, "stream_options": {"include_obfuscation": False},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    }  # fmt: skip
    items = [
        {"type": "message", "role": "developer", "content": "short", "id": "msg_0", "status": None},
        {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None},
        {"type": "function_call", "call_id": "1", "name": "add", "arguments": '{"a": 1}', "id": "fc_1"},
        {"type": "function_call", "call_id": "2", "name": "add", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "5"}]},
        {"type": "function_call_output", "call_id": "1", "output": "6"},
    ]
    body = {"input": items, "instructions": "Add.", "tools": [FLAT], "max_output_tokens": 9}
    calls = [
        {"id": "1", "function": {"name": "add", "arguments": {"a": 1}}},
        {"id": "2", "function": {"name": "add", "arguments": {}}},
    ]
    messages = [
        {"role": "system", "content": "Add."},
        {"role": "developer", "content": "short"},
        USER,
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "2", "content": "5"},
        {"role": "tool", "tool_call_id": "1", "content": "6"},
    ]
    chat = {"messages": messages, "tools": [TOOL], "max_tokens": 9, "logprobs": True}
    for overrides in (True, False):
        request = read_response_request({**shared, **without_effect, **body}, overrides=overrides)
        assert request == read_request({**shared, **chat}, overrides=overrides)


@pytest.mark.parametrize("content, calls", [("5", ()), ("", ()), ("Let me add.", CALLS), ("", CALLS)])
def test_an_answer_comes_back_as_the_history_that_it_was(content: str, calls: tuple[ToolCall, ...]) -> None:
    answer = answered(content, calls)
    question = read_response_request({"input": "q", "instructions": "i", "tools": [FLAT]}, overrides=True)
    output = response_json("1", "m", question, [answer])["output"]
    results: list[Any] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "3"} for call in answer.calls
    ]
    again = {"input": [USER, *output, *(results or [USER])], "instructions": "i", "tools": [FLAT]}
    request = read_response_request(again, overrides=True)
    history, replies = split_history(request.messages)
    assert len(replies) == len(results or [USER])
    messages = (Message(role="system", content="i"), Message(role="user", content="q"), answer.message)
    assert history_key(history, request.settings.offer) == history_key(messages, question.settings.offer)


@pytest.mark.parametrize("stop, status", [(TurnStop.EOS, "completed"), (TurnStop.LENGTH, "incomplete")])
@pytest.mark.parametrize("calls", [(), CALLS])
def test_a_stream_ends_with_the_response_that_it_is(stop: TurnStop, status: str, calls: tuple[ToolCall, ...]) -> None:
    request = read_response_request({"input": "q", "tools": [FLAT]}, overrides=True)
    whole = response_json("1", "m", request, [answered("one", calls, stop)])
    response = Response.model_validate(whole)
    assert (response.status, response.output_text) == (status, "one") and response.usage is not None
    assert response.usage.total_tokens == 10 and len(response.output) == 1 + len(calls)
    texts = list(response_events("1", "m", request, [answered("one", calls, stop)]))
    datas = [json.loads(text.partition("\ndata: ")[2]) for text in texts]
    events = [TypeAdapter[Any](ResponseStreamEvent).validate_python(data) for data in datas]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [text.split("\n")[0] for text in texts] == [f"event: {event.type}" for event in events]
    assert events[-1].type == f"response.{status}" and datas[-1]["response"]["output"] == whole["output"]
    done = [data["item"] for data in datas if data["type"] == "response.output_item.done"]
    assert done == whole["output"]
    deltas = "".join(event.delta for event in events if event.type.endswith(".delta"))
    assert deltas == "one" + "".join(json.dumps(call.arguments) for call in calls)
