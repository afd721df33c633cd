"""Messages in the form that chat templates take, and what a template makes of calls of tools.

A template is a program of the model's: `Render` is one call of it, and may raise anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol

from envs.protocols.families.family import Family
from envs.protocols.native import FAMILIES, family_of
from rlsys.errors import BadInput
from rlsys.records import call_json
from rlsys.types import Message, ToolCall, ToolOffer

MARK = "\u241fassistant\u241f"
ASKED = Message(role="user", content=".")
PROBE = ToolCall(name="probe_tool", arguments={"probe_key": "probe value"}, call_id="probe0000")
PROBE_SCHEMA = {
    "type": "function",
    "function": {
        "name": PROBE.name,
        "description": "A tool.",
        "parameters": {
            "type": "object",
            "properties": {"probe_key": {"type": "string", "description": "A text."}},
            "required": ["probe_key"],
        },
    },
}
PROBE_OFFER = ToolOffer(schemas=(json.dumps(PROBE_SCHEMA),))


class Render(Protocol):
    """A conversation as text; with `open_turn` the opening of the model's next turn stands at its end."""

    def __call__(self, messages: Sequence[Message], *, open_turn: bool, offer: ToolOffer | None = None) -> str: ...


def to_template_messages(messages: Sequence[Message], *, texts: bool) -> list[dict[str, Any]]:
    """As templates take messages. texts: whether they take the arguments of a call as JSON text, not as an object."""
    chat: list[dict[str, Any]] = []
    for message in fold_inline(messages):
        entry: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.calls:
            entry["tool_calls"] = [call_json(call, texts=texts) for call in message.calls]
        if message.tool:
            entry["name"] = message.tool
        if message.call_id:
            entry["tool_call_id"] = message.call_id
        chat.append(entry)
    return chat


def fold_inline(messages: Sequence[Message]) -> list[Message]:
    """What stands inline belongs to the model's turn around it: one message of the chat template's."""
    chat: list[Message] = []
    inside = False
    for message in messages:
        if chat and chat[-1].role == "assistant" and (message.inline or (inside and message.role == "assistant")):
            chat[-1] = replace(chat[-1], content=chat[-1].content + message.content)
        else:
            chat.append(message)
        inside = message.inline
    return chat


def join_results(replies: Sequence[Message]) -> tuple[Message, ...]:
    """What is the user's in a row as one message: many templates demand that user and assistant take turns."""
    joined: list[Message] = []
    for reply in replies:
        plain = reply.role == "user" and not reply.inline
        if plain and joined and joined[-1].role == "user" and not joined[-1].inline:
            joined[-1] = replace(joined[-1], content=f"{joined[-1].content}\n{reply.content}")
        else:
            joined.append(reply)
    return tuple(joined)


def all_texts(message: Message) -> str:
    """All that a template is given of it to show."""
    return "\n".join((message.content, message.tool, message.call_id, *(str(call) for call in message.calls)))


def map_texts(message: Message, change: Callable[[str], str]) -> Message:
    """The message with each of its texts changed, those inside of calls too."""

    def inside(value: Any) -> Any:
        if isinstance(value, str):
            return change(value)
        if isinstance(value, Mapping):
            return {change(key): inside(child) for key, child in value.items()}
        return [inside(child) for child in value] if isinstance(value, list) else value

    calls = tuple(
        replace(call, name=change(call.name), arguments=inside(call.arguments), call_id=change(call.call_id))
        for call in message.calls
    )
    return replace(
        message,
        content=change(message.content),
        calls=calls,
        tool=change(message.tool),
        call_id=change(message.call_id),
    )


def find_family(render: Render) -> Family | None:
    """The family of the calls that a template writes; None where it writes none, or in a way that no family reads."""
    with suppress(Exception):  # a template without tools may refuse them
        return family_of(write_calls(render, Message(role="assistant", content="", calls=(PROBE,)), PROBE_OFFER), PROBE)
    return None


def write_calls(render: Render, message: Message, offer: ToolOffer) -> str:
    """What a model says that makes these calls, as its template writes it in a conversation.

    Raises ValueError where what stands around it does not say so, and what the template raises.
    """
    results = [Message(role="tool", content=".", tool=call.name, call_id=call.call_id) for call in message.calls]
    full_text = render([ASKED, message, *results], open_turn=True, offer=offer)
    plain = Message(role="assistant", content=MARK)
    before, _, after = render([ASKED, plain, *results], open_turn=True, offer=offer).partition(MARK)
    # The turn that is opened may begin with an empty thought, which history lacks; a text may begin with a space.
    for prefix in (before, render([ASKED], open_turn=True, offer=offer)):
        if full_text.startswith(prefix) and after and full_text.endswith(after):
            return full_text[len(prefix) : len(full_text) - len(after)]
    raise ValueError("the chat template shows calls in another turn than the one that it opens")


def require_tools(render: Render, offer: ToolOffer, family: Family | None) -> None:
    """Raises BadInput, with what to do, where the policy would not see its tools or could not be read."""
    known = ", ".join(FAMILIES)
    expected = f"a model whose template writes calls as one of {known}, or env.name=tools with env.protocol=hermes"
    if family is None:
        raise BadInput("the chat template writes no calls of tools that can be read", expected=expected)
    if offer.schemas and render([ASKED], open_turn=True) == render([ASKED], open_turn=True, offer=offer):
        raise BadInput("the chat template shows no tools", expected=expected)
