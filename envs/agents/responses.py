"""OpenAI's responses: what one asks, as chat completions would ask it, and their answer as a response.

Every request holds its whole history: no response is kept that another one could name.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from envs.agents.chat import (
    READ,
    ChatAnswer,
    ChatRequest,
    Refused,
    logprobs_json,
    message_json,
    read_count,
    read_request,
    usage_json,
)
from rlsys.types import TurnStop

TRANSLATED = frozenset(("input", "instructions", "tools", "max_output_tokens", "include"))
ALIKE = frozenset(("tool_choice", "stream"))  # in both APIs
HARMLESS = frozenset(("max_tool_calls", "prompt_cache_retention", "prompt_cache_options", "stream_options"))
# Values that ask for what is done anyway.
USUAL: Mapping[str, Sequence[Any]] = {"background": (False,), "truncation": ("disabled",)}
SUMMARIES = ("auto", "concise", "detailed")  # of a thought apart from the text, which there is none of
USUAL_WITHIN: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "text": {"format": ({"type": "text"},), "verbosity": ("medium",)},
    "reasoning": {"summary": SUMMARIES, "generate_summary": SUMMARIES},
}
LOGPROBS = "message.output_text.logprobs"  # what else may be included belongs to tools that are refused
# By type, the keys that are read or change nothing.
ITEMS: Mapping[str, Sequence[str]] = {
    "message": ("role", "content", "id", "status"),
    "function_call": ("call_id", "name", "arguments", "id", "status"),
    "function_call_output": ("call_id", "output", "id", "status"),
    "reasoning": ("id", "status"),
}
PARTS: Mapping[str, Sequence[str]] = {"input_text": ("text",), "output_text": ("text", "annotations", "logprobs")}
TOOLS: Mapping[str, Sequence[str]] = {"function": ("name", "description", "parameters", "strict")}


def read_response_request(body: Any, *, overrides: bool) -> ChatRequest:
    """As `read_request`. Raises Refused with what cannot be taken, by its name."""
    if not isinstance(body, dict):
        raise Refused(400, "the body is no JSON object")
    chat: dict[str, Any] = {}
    for key, value in body.items():
        if key in USUAL_WITHIN:
            _refuse_within(key, value)
        elif key in READ - ALIKE - TRANSLATED - HARMLESS and value is not None:
            raise Refused(400, f"{key!r} is a key of chat completions: responses have none of this name")
        elif key not in TRANSLATED and key not in HARMLESS and value not in USUAL.get(key, ()):
            chat[key] = value
    tools, include = body.get("tools") or [], body.get("include") or []
    if not isinstance(tools, list) or not isinstance(include, list):
        raise Refused(400, "'tools' and 'include' have to be lists")
    for at, tool in enumerate(tools):
        _check_type(tool, f"tools[{at}]", TOOLS)
    chat["tools"] = [{"type": "function", "function": tool} for tool in tools]
    chat["messages"] = _read_input_messages(body)
    chat["max_completion_tokens"] = read_count(body, "max_output_tokens")
    chat["logprobs"] = LOGPROBS in include
    return read_request(chat, overrides=overrides)


def _refuse_within(key: str, value: Any) -> None:
    if not isinstance(value, dict | None):
        raise Refused(400, f"{key!r} is no object")
    for name, inner in (value or {}).items():
        if inner is not None and inner not in USUAL_WITHIN[key].get(name, ()):
            raise Refused(
                400, f"'{key}.{name}' is not supported here: what is sampled is the policy's own distribution"
            )


def _check_type(value: Any, where: str, kinds: Mapping[str, Sequence[str]], usual: str | None = None) -> str:
    """The type of an item, a part or a tool."""
    if not isinstance(value, dict):
        raise Refused(400, f"{where} is no object")
    kind = value.get("type") or usual
    if not isinstance(kind, str) or kind not in kinds:
        raise Refused(400, f"{where}.type is {kind!r}, which is not supported here: expected {' or '.join(kinds)}")
    for key, inner in value.items():
        if key not in ("type", *kinds[kind]) and inner not in (None, False, [], {}, ""):
            raise Refused(400, f"'{where}.{key}' is not supported here")
    return kind


def _read_input_messages(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Calls belong to the message of the assistant's that they follow, as they were answered."""
    items = body.get("input")
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list):
        raise Refused(400, "'input' has to be a text or a list of items")
    messages: list[dict[str, Any]] = []
    if body.get("instructions"):
        messages.append({"role": "system", "content": body["instructions"]})
    for at, item in enumerate(items):
        where = f"input[{at}]"
        kind = _check_type(item, where, ITEMS, "message")
        if kind == "message":
            messages.append(
                {"role": item.get("role"), "content": _read_content(item.get("content"), f"{where}.content")}
            )
        elif kind == "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            call = {"id": item.get("call_id"), "name": item.get("name"), "arguments": item.get("arguments")}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            content = _read_content(item.get("output"), f"{where}.output")
            messages.append({"role": "tool", "content": content, "tool_call_id": item.get("call_id")})
    return messages


def _read_content(content: Any, where: str) -> Any:
    """Its parts as those of chat completions."""
    if not isinstance(content, list):
        return content
    for at, part in enumerate(content):
        _check_type(part, f"{where}[{at}]", PARTS)
    return [{"type": "text", "text": part.get("text")} for part in content]


def response_json(number: str, model: str, request: ChatRequest, answers: Sequence[ChatAnswer]) -> dict[str, Any]:
    (answer,) = answers
    cut, offer, usage = answer.sampled.stop is TurnStop.LENGTH, request.settings.offer, usage_json(answers)
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "output": _output_items(number, answer, "incomplete" if cut else "completed"),
        "tools": [
            {"type": "function", **json.loads(schema)["function"]} for schema in (offer.schemas if offer else ())
        ],
        "tool_choice": "auto" if offer else "none",
        "parallel_tool_calls": True,
        "store": False,
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }


def _output_items(number: str, answer: ChatAnswer, status: str) -> list[dict[str, Any]]:
    """A text, also an empty one where nothing else was said, and each call."""
    items: list[dict[str, Any]] = []
    if answer.content or not answer.calls:
        logprobs = (logprobs_json(answer) or {"content": []})["content"]
        part = {"type": "output_text", "text": answer.content, "annotations": [], "logprobs": logprobs}
        message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": status, "content": [part]}
        items.append(message)
    for at, call in enumerate(message_json(answer).get("tool_calls", ())):
        head = {"type": "function_call", "id": f"fc_{number}_{at}", "call_id": call["id"], "status": "completed"}
        items.append({**head, **call["function"]})
    return items


def response_events(
    number: str, model: str, request: ChatRequest, written: Sequence[ChatAnswer] | Refused
) -> Iterator[str]:
    """The same as a stream: each text whole, for it is sampled before the first word of it is sent."""
    if isinstance(written, Refused):  # flat as the API describes it, and within "error", where its clients look
        error = written.json()
        events: Iterable[dict[str, Any]] = [{**error["error"], **error, "type": "error"}]
    else:
        events = _stream_events(response_json(number, model, request, written))
    for at, event in enumerate(events):
        yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': at})}\n\n"


def _stream_events(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**response, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": begun}
    for index, item in enumerate(response["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Any] = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {**item, **empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "message":
            (part,), place = item["content"], {**place, "content_index": 0}
            text, logprobs = part["text"], {"logprobs": part["logprobs"]}
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": "", "logprobs": []}}
            yield {"type": "response.output_text.delta", **place, "delta": text, **logprobs}
            yield {"type": "response.output_text.done", **place, "text": text, **logprobs}
            yield {"type": "response.content_part.done", **place, "part": part}
        else:
            said = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, **said}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{response['status']}", "response": response}
