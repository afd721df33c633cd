"""OpenAI's chat completions: what an agent asks, and what it is answered.

A key that would change what is sampled has an effect, is the run's own (SAMPLING: the agent is told by a header), or is
refused by its name.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.protocols.native import FAMILIES, read_calls
from envs.tasks.conversation import read_text_part
from envs.tools.schema import make_schema
from rlsys.errors import BadInput
from rlsys.records import ROLES, call_json, read_messages
from rlsys.types import Message, Sampled, ToolCall, ToolOffer, TurnSettings, TurnStop

READ = frozenset(
    ("messages", "tools", "tool_choice", "stop", "max_tokens", "max_completion_tokens", "n", "stream")
    + ("stream_options", "logprobs")
)
# A run samples with its own; a model that is served with those that it is asked for.
SAMPLING: Mapping[str, tuple[float, float]] = {  # the least and the most
    "temperature": (0.0, 2.0),
    "top_p": (1e-9, 1.0),
    "seed": (-math.inf, math.inf),
}
REQUIRED = "required"
FURTHER = frozenset(("top_k", "min_p"))  # that only a run overrides
HARMLESS = frozenset(
    ("model", "user", "metadata", "store", "service_tier", "prompt_cache_key", "safety_identifier", "top_logprobs")
)
# Values that ask for what is done anyway.
USUAL: Mapping[str, Sequence[Any]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "parallel_tool_calls": (True,),
    "response_format": ({"type": "text"},),
}
MOST_CHOICES = 16
MOST_STOPS = 16


class Refused(Exception):
    """An answer in the place of a completion."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

    def json(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": None, "code": None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    messages: tuple[Message, ...]
    settings: TurnSettings
    choices: int = 1
    stream: bool = False
    usage: bool = False  # at the end of a stream
    sampling: Mapping[str, float] = field(default_factory=dict)  # what is asked for of SAMPLING
    overridden: tuple[str, ...] = ()  # what has no effect, since a run samples in its own way


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """One choice: what the policy wrote, as an agent reads it."""

    content: str  # without calls, and without the string that ended it
    calls: tuple[ToolCall, ...]
    sampled: Sampled

    @property
    def message(self) -> Message:
        """As it comes back in the next request."""
        return Message(role="assistant", content=self.content, calls=self.calls)

    @property
    def finish_reason(self) -> str:
        return "length" if self.sampled.stop is TurnStop.LENGTH else "tool_calls" if self.calls else "stop"


def read_request(body: Any, *, overrides: bool) -> ChatRequest:
    """overrides: SAMPLING has no effect. Raises Refused with what cannot be taken, by its name."""
    if not isinstance(body, dict):
        raise Refused(400, "the body is no JSON object")
    for key, value in body.items():
        known = key in READ or key in SAMPLING or key in HARMLESS or (overrides and key in FURTHER)
        if known or value is None or value in ([], {}, "") or value in USUAL.get(key, ()):
            continue
        raise Refused(400, f"{key!r} is not supported here: what is sampled is the policy's own distribution")
    try:
        messages = read_messages(_flatten_contents(body.get("messages")), "messages", ROLES)
    except BadInput as error:
        raise Refused(400, str(error)) from error
    if not messages or messages[-1].role == "assistant":
        raise Refused(400, "messages have to end with one that is not the assistant's")
    settings = TurnSettings(
        stop=_read_stop_strings(body.get("stop")),
        offer=_read_tool_offer(body, forced=overrides),
        max_tokens=read_count(body, "max_completion_tokens", "max_tokens"),
        reports=True,
        logprobs=body.get("logprobs") is True,
    )
    for key in ("stream", "logprobs"):
        if body.get(key) not in (None, True, False):
            raise Refused(400, f"{key!r} is {body[key]!r}: expected true or false")
    if body.get("top_logprobs"):
        raise Refused(400, "'top_logprobs' is not supported here: of each token the sampled one is known")
    choices = read_count(body, "n") or 1
    if choices > MOST_CHOICES:
        raise Refused(400, f"'n' is {choices}: expected at most {MOST_CHOICES}")
    options, sampling = body.get("stream_options"), _read_sampling(body)
    forced = ["tool_choice"] if body.get("tool_choice") == REQUIRED else []
    return ChatRequest(
        messages=_name_tool_messages(messages),
        settings=settings,
        choices=choices,
        stream=body.get("stream") is True,
        usage=isinstance(options, dict) and options.get("include_usage") is True,
        sampling=sampling,
        overridden=tuple(sorted([*sampling, *forced])) if overrides else (),
    )


def _read_sampling(body: Mapping[str, Any]) -> dict[str, float]:
    values = {key: body[key] for key in (*SAMPLING, *FURTHER) if body.get(key) is not None}
    for key, value in values.items():
        least, most = SAMPLING.get(key, (-math.inf, math.inf))
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most or (key == "seed" and not isinstance(value, int)):
            raise Refused(400, f"{key!r} is {value!r}: expected a number from {least:g} to {most:g}")
    return values


def _flatten_contents(messages: Any) -> list[Any]:
    """Contents in parts as one text, and the developer's messages as the system's."""
    if not isinstance(messages, list):
        raise BadInput('"messages" is no list')
    plain = []
    for message in messages:
        if not isinstance(message, dict):
            raise BadInput("a message is no object")
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(read_text_part(part, "messages", "content") for part in content)
        role = "system" if message.get("role") == "developer" else message.get("role")
        plain.append({**message, "role": role, "content": "" if content is None else content})
    return plain


def _name_tool_messages(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A tool's message with the name of the tool whose call it answers. Raises Refused where it answers none."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        names.update((call.call_id, call.name) for call in message.calls)
        if message.role == "tool":
            if message.call_id not in names:
                raise Refused(400, f"a tool's message answers the call {message.call_id!r}, which nobody has made")
            message = Message(
                role="tool", content=message.content, tool=names[message.call_id], call_id=message.call_id
            )
        named.append(message)
    return tuple(named)


def _read_stop_strings(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if (
        not isinstance(stops, list)
        or len(stops) > MOST_STOPS
        or not all(isinstance(stop, str) and stop for stop in stops)
    ):
        raise Refused(400, f"'stop' has to be a text, or at most {MOST_STOPS} of them")
    return tuple(stops)


def read_count(body: Mapping[str, Any], *keys: str) -> int | None:
    for key in keys:
        value = body.get(key)
        if value is None:
            continue
        if type(value) is not int or value < 1:
            raise Refused(400, f"{key!r} is {value!r}: expected a whole number, 1 or more")
        return value
    return None


def _read_tool_offer(body: Mapping[str, Any], *, forced: bool) -> ToolOffer | None:
    """forced: a call that is required is left to the policy."""
    tools, choice = body.get("tools"), body.get("tool_choice")
    if choice not in (None, "auto", "none", *([REQUIRED] if forced else [])):
        raise Refused(400, "'tool_choice' may be auto or none here: a call that is forced is not the policy's own")
    if not tools or choice == "none":
        return None
    if not isinstance(tools, list):
        raise Refused(400, "'tools' is no list")
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        parameters = function.get("parameters") if isinstance(function, dict) else 0
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise Refused(400, "'tools' has to hold functions with a name")
        if not isinstance(parameters, dict | None):
            raise Refused(400, "'parameters' of a tool has to be a JSON schema")
    return ToolOffer(schemas=tuple(json.dumps(_tool_schema(tool["function"]), ensure_ascii=False) for tool in tools))


def _tool_schema(function: Mapping[str, Any]) -> Mapping[str, Any]:
    """As chat templates take it; what says how strictly an API reads a call is left out."""
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return make_schema(function["name"], str(function.get("description") or ""), parameters)


def split_history(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """Up to the assistant's last message, and what follows it."""
    at = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1) + 1
    return tuple(messages[:at]), tuple(messages[at:])


def history_key(messages: Sequence[Message], offer: ToolOffer | None) -> bytes:
    """What two histories have in common that say the same, with the same tools: white space around a text, and the
    order of a call's arguments, are an agent's own."""
    said: list[Any] = [offer and offer.schemas]
    said += [
        [message.role, message.content.strip(), message.call_id]
        + [[call.name, call.call_id, dict(call.arguments)] for call in message.calls]
        for message in messages
    ]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode(errors="replace")).digest()


def make_chat_answer(text: str, calls: Sequence[ToolCall], settings: TurnSettings, sampled: Sampled) -> ChatAnswer:
    """calls: those that were read in `text`. A call that is none stays a text, as engines leave it."""
    if sampled.stop is TurnStop.STOP:
        text = text.removesuffix(max((stop for stop in settings.stop if text.endswith(stop)), key=len, default=""))
    calls = tuple(call for call in calls if not call.problem)
    return ChatAnswer(content=_text_before_calls(text, calls) if calls else text, calls=calls, sampled=sampled)


def _text_before_calls(text: str, calls: Sequence[ToolCall]) -> str:
    """What a message says before its first call: all of it where its calls stand apart."""
    names = [call.name for call in calls]
    for family in FAMILIES.values():
        if [call.name for call in read_calls(family, text) if not call.problem] == names:
            start = max(text.find(family.opening, text.find(close) + 1) for _, close in family.thoughts)
            return text[: max(start, 0)].strip()
    return text


def message_json(answer: ChatAnswer) -> dict[str, Any]:
    calls = [call_json(call) for call in answer.calls]
    return {"role": "assistant", "content": answer.content or None, **({"tool_calls": calls} if calls else {})}


def usage_json(answers: Sequence[ChatAnswer]) -> dict[str, int]:
    prompt, completion = answers[0].sampled.num_context, sum(answer.sampled.num_tokens for answer in answers)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def logprobs_json(answer: ChatAnswer) -> dict[str, Any] | None:
    if not answer.sampled.tokens:
        return None
    content = [
        {"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []}
        for text, logprob in answer.sampled.tokens
    ]
    return {"content": content, "refusal": None}


def completion_json(number: str, model: str, answers: Sequence[ChatAnswer]) -> dict[str, Any]:
    choices = [
        {
            "index": index,
            "message": message_json(answer),
            "logprobs": logprobs_json(answer),
            "finish_reason": answer.finish_reason,
        }
        for index, answer in enumerate(answers)
    ]
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(time.time()), "model": model}
    return {**head, "choices": choices, "usage": usage_json(answers)}


def chunks_json(number: str, model: str, answers: Sequence[ChatAnswer], *, usage: bool) -> Iterator[dict[str, Any]]:
    """The same as a stream: each message whole, for it is sampled before the first word of it is sent."""
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": int(time.time()), "model": model}
    for index, answer in enumerate(answers):
        delta = message_json(answer)
        for at, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = at
        choice = {"index": index, "delta": delta, "logprobs": logprobs_json(answer), "finish_reason": None}
        yield {**head, "choices": [choice]}
        end = {"index": index, "delta": {}, "logprobs": None, "finish_reason": answer.finish_reason}
        yield {**head, "choices": [end]}
    if usage:
        yield {**head, "choices": [], "usage": usage_json(answers)}


def chat_events(
    number: str, model: str, request: ChatRequest, written: Sequence[ChatAnswer] | Refused
) -> Iterator[str]:
    chunks: Iterable[dict[str, Any]] = (
        [written.json()] if isinstance(written, Refused) else chunks_json(number, model, written, usage=request.usage)
    )
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"
