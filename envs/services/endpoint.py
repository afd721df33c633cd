"""A chat model: what it is asked and says, and one at an OpenAI-compatible address, which judges and teachers ask.

One attempt: deadlines and retries are the guard's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from envs.services.json_client import JsonClient
from rlsys.records import call_json
from rlsys.types import Message, ToolCall

BROKEN_OFF = ("abort", "error")
STOPPED = ("stop_reason", "matched_stop")  # of a choice: the stop string that ended it, as vLLM and SGLang say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and how the answer is sampled."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    seed: int = 0  # 0 sends none: not every server knows it, and a greedy answer needs none
    top_p: float = 1.0
    stop: tuple[str, ...] = ()  # the answer ends after the first of these
    tools: tuple[str, ...] = ()  # JSON of each that it may call


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What the model said."""

    text: str  # without its calls
    calls: tuple[ToolCall, ...] = ()  # without ids: servers disagree on what one looks like
    thought: str = ""  # where the server sends it apart from the answer
    truncated: bool = False  # at `max_tokens`
    stopped: str | None = None  # the stop string that ended it, "" for none; None where the server does not say


class Chat(Protocol):
    """A model that answers one question."""

    model: str  # enters the key of a cache, as `where` does: servers call different models by one name
    where: str  # its address; "" in this process
    own: bool  # it runs in this process: where it does not answer, a restart may help

    @property
    def failed(self) -> bool:
        """Whether it is known that only a restart of this process helps."""
        ...

    async def complete(self, question: Question) -> Choice:
        """Raises ToolRefused for a prompt that it cannot take, ToolBusy, or any error of the way there."""
        ...

    async def close(self) -> None: ...


class Endpoint:
    """For one event loop; the session opens with the first question."""

    own = failed = False

    def __init__(
        self,
        url: str,
        model: str,
        key: str | None,
        *,
        omit: Sequence[str] = (),
        limit_key: str = "max_tokens",
        **options: Any,
    ) -> None:
        """omit: fields that the server does not know. limit_key: its name of `max_tokens`. options: of `JsonClient`."""
        self.model, self.where = model, url.rstrip("/")
        self._omit, self._limit_key = frozenset(omit), limit_key
        self._client = JsonClient(url, key, **options)

    async def complete(self, question: Question) -> Choice:
        """Raises what `JsonClient.post` does, and ConnectionError for an answer that the server broke off."""
        fields: dict[str, Any] = {
            "model": self.model,
            "messages": [_message_json(message) for message in question.messages],
            self._limit_key: question.max_tokens,
            "temperature": question.temperature,
        }
        fields |= {"top_p": question.top_p} if question.top_p != 1 else {}
        fields |= {"seed": question.seed} if question.seed else {}
        fields |= {"stop": list(question.stop)} if question.stop else {}
        fields |= {"tools": [json.loads(schema) for schema in question.tools]} if question.tools else {}
        body = {key: value for key, value in fields.items() if key not in self._omit}
        return read_choice(await self._client.post("/chat/completions", body))

    async def close(self) -> None:
        await self._client.close()


def _message_json(message: Message) -> dict[str, Any]:
    if message.calls:
        calls = [call_json(call) for call in message.calls]
        return {"role": message.role, "content": message.content or None, "tool_calls": calls}
    answered = {"tool_call_id": message.call_id} if message.call_id else {}
    return {"role": message.role, "content": message.content, **answered}


def read_choice(answer: Any) -> Choice:
    """The first choice; without text where the model gave none. Half a surrogate pair, which is no text, becomes `?`.

    A call whose arguments are no object has a `problem`, and stands in the text too, as engines leave it there.

    Raises ConnectionError for an answer that the server broke off, ValueError for anything else.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and first.get("finish_reason") in BROKEN_OFF:
        raise ConnectionError("the endpoint broke off its answer")  # half a judgement is none
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content", "") if isinstance(message, dict) else 0
    if not isinstance(first, dict) or not isinstance(message, dict) or not isinstance(content, str | None):
        raise ValueError('the answer is not {"choices": [{"message": {"content": ".."}}]}')
    thoughts = (message.get(key) for key in ("reasoning_content", "reasoning"))
    thought = next((candidate for candidate in thoughts if isinstance(candidate, str) and candidate), "")
    listed = message.get("tool_calls")
    calls = [_read_call(call) for call in (listed if isinstance(listed, list) else ())]
    broken = [written for call, written in calls if call.problem]
    text, thought = map(_without_surrogates, ("\n".join(filter(None, (content, *broken))), thought))
    stop = next((first[key] for key in STOPPED if key in first), ...)
    stopped = None if stop is ... else stop if isinstance(stop, str) else ""  # vLLM's may be the number of a token
    truncated = first.get("finish_reason") == "length"
    return Choice(
        text=text, calls=tuple(call for call, _ in calls), thought=thought, truncated=truncated, stopped=stopped
    )


def _read_call(call: Any) -> tuple[ToolCall, str]:
    """And as a text, for what cannot be carried out."""
    function = call.get("function") if isinstance(call, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str):
        raise ValueError('the answer has "tool_calls" that are no functions with a name')
    name, arguments = _without_surrogates(name), function.get("arguments") or {}
    written = _without_surrogates(arguments) if isinstance(arguments, str) else json.dumps(arguments)
    try:
        arguments = json.loads(written)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()  # not of NaN, nor of half a surrogate pair
    except (ValueError, RecursionError):
        arguments = None
    if name and isinstance(arguments, dict):
        return ToolCall(name=name, arguments=arguments), ""
    return ToolCall(name=name, problem="it has no name, or its arguments are no JSON object"), f"{name}({written})"


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def text_with_stop(choice: Choice, stop: Sequence[str]) -> str:
    """Its text with the stop string that ended it, which servers leave out.

    Where the server does not say which one it was, as OpenAI's does not, it is the closing tag of the element that the
    text opened last and did not close.
    """
    text = choice.text
    if choice.truncated or choice.calls or choice.stopped == "" or any(tag in text for tag in stop):
        return text
    if choice.stopped is not None:
        return text + choice.stopped if choice.stopped in stop else text
    opened = {tag: text.rfind(tag.replace("</", "<", 1)) for tag in stop if tag.startswith("</")}
    last = max(opened, key=lambda tag: opened[tag], default="")
    return text + last if last and opened[last] >= 0 else text
