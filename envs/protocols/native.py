"""The tool calls in a message of a model's (elsewhere `tool_parser`, `tool_call_parser`): the table of the formats.

Which family a policy's calls are in is decided by what its chat template writes for a made-up call (`family_of`); the
renderer asks for that (`actors/chat_template.py`). Text that a model wrote is hostile: a reader takes any text, raises
nothing and is linear in its length. What begins as a call and is none becomes a ToolCall with a `problem`, which the
environment answers in the place of a result. What stands in a thought is no call.

| family | a call | models |
|---|---|---|
| hermes | `<tool_call>{"name": .., "arguments": {..}}</tool_call>` | Qwen2.5, Qwen3, Hermes |
| qwen3_coder | `<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>` | Qwen3-Coder |
| mistral | `[TOOL_CALLS][{"name": .., "arguments": {..}}]`, `[TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{..}` | Mistral |
| pythonic | a message that is `[NAME(KEY=VALUE, ..), NAME(..)]`, values as Python writes them | Llama 3.2, 4 |
| llama3 | `{"name": .., "parameters": {..}}` that ends a message, several with `;` between them | Llama 3.1 to 3.3 |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from envs.protocols.families.family import MAX_CALLS, Family
from envs.protocols.families.llama import BEGINS_PYTHONIC, LLAMA3, PYTHONIC, without_tags
from envs.protocols.families.mistral import MISTRAL
from envs.protocols.families.tagged import HERMES, QWEN3_CODER
from envs.protocols.families.written_json import BROKEN, read_json, skip_space
from rlsys.types import ToolCall

MAX_DEPTH = 4  # of a schema, to find the types that it takes


def read_calls(family: Family, text: str, schemas: Sequence[Mapping[str, Any]] = ()) -> tuple[ToolCall, ...]:
    """The calls of a message, in order; none where it is an answer. schemas: those of the tools that are offered."""
    body = _after_thought(family, text)
    calls = family.read(body)
    tools = {schema["function"]["name"]: schema["function"].get("parameters", {}) for schema in schemas}
    if calls and tools and (family.name == "llama3" or calls[0].problem) and _is_list_of_other_calls(body, tools):
        return ()
    if family.typed:
        return calls
    return tuple(_convert_arguments(call, tools.get(call.name, {})) for call in calls)


def _is_list_of_other_calls(text: str, tools: Mapping[str, Any]) -> bool:
    """Whether it begins as a list of Python calls does, with a name that is no tool's: `[Point(x=1)]` is an answer."""
    text = without_tags(text)
    return BEGINS_PYTHONIC.match(text) is not None and text[1 : text.index("(")].strip() not in tools


def _after_thought(family: Family, text: str) -> str:
    for opened, closes in family.thoughts:
        text = _without_thought(family, text, opened, closes)
    return text


def _without_thought(family: Family, text: str, opened: str, closes: str) -> str:
    """Behind the first tag that closes a thought, but for one inside of a call: that is a text of an argument. Of a
    message that begins with a call, what is before a thought, or before a tag that closes none and ends the message."""
    at, attempts, first = 0, 0, skip_space(text, 0)
    called = False
    while (closed := text.find(closes, at)) >= 0:
        start = text.find(family.opening, at, closed)
        if start < 0 or attempts == MAX_CALLS:  # a bound, for each try may look at the whole text
            thought = text.find(opened, at, closed)
            if called and thought >= 0:
                return text[:thought] + _without_thought(family, text[closed + len(closes) :], opened, closes)
            tail = text[closed + len(closes) :]
            return text[:closed] if called and not tail.strip() else tail
        at, attempts = max(end := family.end(text, start), start + 1), attempts + 1
        called = called or (start == first and end > start)
    return "" if text.lstrip().startswith(opened) else text


def _convert_arguments(call: ToolCall, schema: Mapping[str, Any]) -> ToolCall:
    """A text that is JSON becomes its value, of whatever type, unless the schema takes a text there; others stay."""
    properties = schema.get("properties")
    arguments: dict[str, Any] = {}
    for key, text in call.arguments.items():
        field_schema = properties.get(key) if isinstance(properties, Mapping) else None
        arguments[key] = _convert_text(text, field_schema if isinstance(field_schema, Mapping) else {})
    return replace(call, arguments=arguments)


def _convert_text(text: str, schema: Mapping[str, Any]) -> Any:
    """A text wherever the schema takes one: "01234" is no number there. `null` is none where it takes that too."""
    value, among = read_json(text), schema.get("enum")
    if value is BROKEN and text.strip() in ("True", "False", "None"):  # as Python writes what a schema asks for
        value = {"True": True, "False": False, "None": None}[text.strip()]
    if value is BROKEN or (isinstance(among, list) and text in among):
        return text
    if isinstance(among, list) and value in among:
        return value
    kinds = _schema_types(schema, MAX_DEPTH)
    return text if "string" in kinds and not (value is None and "null" in kinds) else value


def _schema_types(schema: Any, depth: int) -> set[str]:
    """Names of the types that a schema takes, as far as it says so."""
    if not isinstance(schema, Mapping) or not depth:
        return set()
    types, among = schema.get("type"), schema.get("enum")
    kinds = {name for name in (types if isinstance(types, list) else [types]) if isinstance(name, str)}
    if isinstance(among, list) and any(isinstance(value, str) for value in among):
        kinds.add("string")
    for key in ("anyOf", "oneOf"):
        several = schema.get(key)
        for subschema in several if isinstance(several, list) else ():
            kinds |= _schema_types(subschema, depth - 1)
    return kinds


FAMILIES: Mapping[str, Family] = {family.name: family for family in (HERMES, QWEN3_CODER, MISTRAL, PYTHONIC, LLAMA3)}


def family_of(written: str, call: ToolCall) -> Family | None:
    """The family in which `written`, what a chat template makes of a message with `call`, is that call."""
    for family in FAMILIES.values():
        calls = read_calls(family, written)
        if [(parsed.name, parsed.arguments, parsed.problem) for parsed in calls] == [(call.name, call.arguments, "")]:
            return family
    bare = ", ".join(f"{key}={value}" for key, value in call.arguments.items())
    return PYTHONIC if written.strip() == f"[{call.name}({bare})]" else None  # as a template for Llama 3.2 writes texts
