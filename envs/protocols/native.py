"""How models write calls of tools in their own formats: a table of families, each with a reader and a writer.

Which family a policy's calls are in is decided by what its chat template writes for a made-up call (`family_of`); the
renderer asks for that (`actors/renderer.py`). Text that a model wrote is hostile: a reader takes any text, raises
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

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from envs.text.words import THOUGHT_CLOSE, THOUGHT_OPEN, THOUGHTS
from rlsys.types import ToolCall

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_CLOSE = "<function=", "</function>"
PARAMETER, PARAMETER_CLOSE = "<parameter=", "</parameter>"
TOOL_CALLS, CALL_ID_MARK, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
PYTHON_TAG, PYTHON_START, PYTHON_END = "<|python_tag|>", "<|python_start|>", "<|python_end|>"
_, (THINK, THINK_CLOSE) = THOUGHTS
MAX_NAME = 64  # characters of a name, as the field's schemas have it
MAX_HEAD = MAX_NAME + len(CALL_ID_MARK) + 40 + len(ARGS)  # characters of a name with an id, before its arguments
MAX_CALLS = 64  # of one message that are read
MAX_DEPTH = 4  # of a schema, to find the types that it takes
CALL_ID = re.compile("[A-Za-z0-9]{9}")  # the only ids that every chat template takes
MAX_NESTED = 32  # lists and mappings inside each other, in the arguments of a Python call
NOT_JSON = "the call is not valid JSON"
NOT_PYTHON = "the call is not [NAME(KEY=VALUE)], with texts in quotes"
BEHIND = "text stands behind the call"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`read` finds the calls of a message behind its thoughts; `write` is a message with calls behind `content`.

    `end` is where the call that begins at a place, with `opening`, ends: the place itself where none is whole there.
    """

    name: str
    tags: tuple[str, ...]  # each becomes one token where a tokenizer is trained
    read: Callable[[str], tuple[ToolCall, ...]]
    write: Callable[[str, Sequence[ToolCall]], str]
    opening: str
    end: Callable[[str, int], int]
    thoughts: tuple[tuple[str, str], ...] = ((THOUGHT_OPEN, THOUGHT_CLOSE),)
    typed: bool = True  # arguments are JSON; False: texts, which the tool's schema gives types


def read_calls(family: Family, text: str, schemas: Sequence[Mapping[str, Any]] = ()) -> tuple[ToolCall, ...]:
    """The calls of a message, in order; none where it is an answer. schemas: those of the tools that are offered."""
    body = _after_thought(family, text)
    calls = family.read(body)
    known = {each["function"]["name"]: each["function"].get("parameters", {}) for each in schemas}
    if calls and known and (family.name == "llama3" or calls[0].problem) and _is_other_list(body, known):
        return ()
    if family.typed:
        return calls
    return tuple(_typed(call, known.get(call.name, {})) for call in calls)


def _is_other_list(text: str, known: Mapping[str, Any]) -> bool:
    """Whether it begins as a list of Python calls does, with a name that is no tool's: `[Point(x=1)]` is an answer."""
    text = _without_tags(text)
    return _BEGINS_PYTHONIC.match(text) is not None and text[1 : text.index("(")].strip() not in known


def _after_thought(family: Family, text: str) -> str:
    for opened, closes in family.thoughts:
        text = _without_thought(family, text, opened, closes)
    return text


def _without_thought(family: Family, text: str, opened: str, closes: str) -> str:
    """Behind the first tag that closes a thought, but for one inside of a call: that is a text of an argument. Of a
    message that begins with a call, what is before a thought, or before a tag that closes none and ends the message."""
    at, tried, first = 0, 0, _skip_space(text, 0)
    called = False
    while (closed := text.find(closes, at)) >= 0:
        begun = text.find(family.opening, at, closed)
        if begun < 0 or tried == MAX_CALLS:  # a bound, for each try may look at the whole text
            thought = text.find(opened, at, closed)
            if called and thought >= 0:
                return text[:thought] + _without_thought(family, text[closed + len(closes) :], opened, closes)
            rest = text[closed + len(closes) :]
            return text[:closed] if called and not rest.strip() else rest
        at, tried = max(end := family.end(text, begun), begun + 1), tried + 1
        called = called or (begun == first and end > begun)
    return "" if text.lstrip().startswith(opened) else text


def _typed(call: ToolCall, schema: Mapping[str, Any]) -> ToolCall:
    """Texts as the values that the schema asks for; a text that is no such value stays what it is."""
    properties = schema.get("properties")
    read: dict[str, Any] = {}
    for key, text in call.arguments.items():
        wanted = properties.get(key) if isinstance(properties, Mapping) else None
        read[key] = _value_of(text, wanted if isinstance(wanted, Mapping) else {})
    return replace(call, arguments=read)


def _value_of(text: str, wanted: Mapping[str, Any]) -> Any:
    """A text wherever the schema takes one: "01234" is no number there. `null` is none where it takes that too."""
    value, among = _json(text), wanted.get("enum")
    if value is _BROKEN and text.strip() in ("True", "False", "None"):  # as Python writes what a schema asks for
        value = {"True": True, "False": False, "None": None}[text.strip()]
    if value is _BROKEN or (isinstance(among, list) and text in among):
        return text
    if isinstance(among, list) and value in among:
        return value
    kinds = _kinds_of(wanted, MAX_DEPTH)
    return text if "string" in kinds and not (value is None and "null" in kinds) else value


def _kinds_of(wanted: Any, depth: int) -> set[str]:
    """Names of the types that a schema takes, as far as it says so."""
    if not isinstance(wanted, Mapping) or not depth:
        return set()
    named, among = wanted.get("type"), wanted.get("enum")
    found = {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
    if isinstance(among, list) and any(isinstance(each, str) for each in among):
        found.add("string")
    for key in ("anyOf", "oneOf"):
        several = wanted.get(key)
        for each in several if isinstance(several, list) else ():
            found |= _kinds_of(each, depth - 1)
    return found


# -- JSON that a model wrote -----------------------------------------------------------------------------------------

_BROKEN = object()


def _decode(text: str, at: int) -> tuple[Any, int]:
    """The value that begins there, and where it ends; (_BROKEN, at) for none."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return _BROKEN, at
    return (value, end) if _is_json(value) else (_BROKEN, at)


def _is_json(value: Any) -> bool:
    """Not so of 1e999, and of half a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _json(text: str) -> Any:
    text = text.strip()
    value, end = _decode(text, 0)
    return value if end == len(text) else _BROKEN


def _call_of(value: Any, *keys: str) -> ToolCall:
    """The call that a JSON value is. keys: the names that its arguments may have."""
    if value is _BROKEN:
        return ToolCall(name="", problem=NOT_JSON)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME:
        return ToolCall(name="", problem='the call has no "name"')
    own_keys = value.keys() - {"name", "id", "type", *keys}
    if own_keys and not any(key in value for key in keys):
        return ToolCall(name=name, problem=f'the call has {sorted(own_keys)[0][:MAX_NAME]!r} and no "{keys[0]}"')
    given: Any = next((value[key] for key in keys if key in value), {})
    arguments = _json(given) if isinstance(given, str) else given  # some models write them as a text
    if not isinstance(arguments, dict):
        return ToolCall(name=name, problem=f'"{keys[0]}" is no JSON object')
    call_id = value.get("id")
    own = isinstance(call_id, str) and CALL_ID.fullmatch(call_id)
    return ToolCall(name=name, arguments=arguments, call_id=call_id if own else "")


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


# -- the families ----------------------------------------------------------------------------------------------------


def _read_tagged(text: str, read_one: Callable[[str, int], tuple[ToolCall, int]]) -> tuple[ToolCall, ...]:
    """Calls between tags. read_one: (text, place behind a tag) to the call and where it ends."""
    calls: list[ToolCall] = []
    at = text.find(CALL_OPEN)
    while at >= 0 and len(calls) < MAX_CALLS:
        call, at = read_one(text, _skip_space(text, at + len(CALL_OPEN)))
        at = _skip_space(text, at)
        closed = text.startswith(CALL_CLOSE, at) or at == len(text)
        if not closed and not call.problem:
            call = replace(call, problem=f"text stands between the call and {CALL_CLOSE}")
        calls.append(call)
        at = text.find(CALL_OPEN, at)
    return tuple(calls)


def _end_tagged(text: str, at: int, read_one: Callable[[str, int], tuple[ToolCall, int]]) -> int:
    call, end = read_one(text, _skip_space(text, at + len(CALL_OPEN)))
    end = _skip_space(text, end)
    return end if not call.problem and (text.startswith(CALL_CLOSE, end) or end == len(text)) else at


def _read_object(text: str, at: int) -> tuple[ToolCall, int]:
    value, end = _decode(text, at)
    return _call_of(value, "arguments", "parameters"), end


def _write_hermes(content: str, calls: Sequence[ToolCall]) -> str:
    written = [
        f"{CALL_OPEN}\n{_dump({'name': call.name, 'arguments': call.arguments})}\n{CALL_CLOSE}" for call in calls
    ]
    return "\n".join([content] * bool(content) + written)


def _read_function(text: str, at: int) -> tuple[ToolCall, int]:
    """`<function=NAME>`, parameters, `</function>`. A parameter ends at the first tag that closes one."""
    broken = f"the call is not {FUNCTION}NAME>{PARAMETER}KEY>VALUE{PARAMETER_CLOSE}{FUNCTION_CLOSE}"
    end = text.find(">", at, at + len(FUNCTION) + MAX_NAME + 1)
    if not text.startswith(FUNCTION, at) or end < 0:
        return ToolCall(name="", problem=broken), at
    name, arguments = text[at + len(FUNCTION) : end].strip(), dict[str, Any]()
    at = _skip_space(text, end + 1)
    while text.startswith(PARAMETER, at):
        middle = text.find(">", at, at + len(PARAMETER) + MAX_NAME + 1)
        end = text.find(PARAMETER_CLOSE, middle) if middle >= 0 else -1
        if end < 0:
            return ToolCall(name=name, problem=broken), at
        value = text[middle + 1 : end]
        if f"\n{PARAMETER}" in value:  # of one that was never closed, and what follows it
            return ToolCall(name=name, problem=broken), at
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[text[at + len(PARAMETER) : middle].strip()] = value
        at = _skip_space(text, end + len(PARAMETER_CLOSE))
    if not name or not text.startswith(FUNCTION_CLOSE, at):
        return ToolCall(name=name, problem=broken), at
    return ToolCall(name=name, arguments=arguments), at + len(FUNCTION_CLOSE)


def _read_functions(text: str) -> tuple[ToolCall, ...]:
    """Whole functions count without the tags around them too, as the models leave these out."""
    if CALL_OPEN in text:
        return _read_tagged(text, _read_function)
    calls: list[ToolCall] = []
    at, tried = text.find(FUNCTION), 0
    while at >= 0 and tried < MAX_CALLS:
        call, end = _read_function(text, at)
        calls += [call] * (not call.problem)
        at, tried = text.find(FUNCTION, max(end, at + 1)), tried + 1
    return tuple(calls)


def _end_function(text: str, at: int) -> int:
    """A value is any text: one that holds another call's tag belongs to a call that was broken off."""
    end = _end_tagged(text, at, _read_function)
    return at if CALL_OPEN in text[at + len(CALL_OPEN) : end] else end


def _write_function(content: str, calls: Sequence[ToolCall]) -> str:
    def write(call: ToolCall) -> str:
        parameters = [
            f"{PARAMETER}{key}>\n{value if isinstance(value, str) else _dump(value)}\n{PARAMETER_CLOSE}\n"
            for key, value in call.arguments.items()
        ]
        return f"{CALL_OPEN}\n{FUNCTION}{call.name}>\n{''.join(parameters)}{FUNCTION_CLOSE}\n{CALL_CLOSE}"

    return "\n".join([content] * bool(content) + [write(call) for call in calls])


def _read_mistral(text: str) -> tuple[ToolCall, ...]:
    """A mark inside an argument is text: the next call begins behind the value of the last one."""
    calls: list[ToolCall] = []
    at = text.find(TOOL_CALLS)
    while at >= 0 and len(calls) < MAX_CALLS:
        begun, name, call_id = _open_mistral(text, at)
        value, end = _decode(text, begun)
        end = _skip_space(text, end)
        whole = value is not _BROKEN and (end == len(text) or text.startswith(TOOL_CALLS, end))
        if not whole:
            calls.append(_call_of(_BROKEN))
        elif isinstance(value, list) and not name:
            calls += [_call_of(each, "arguments") for each in value] or [_call_of(_BROKEN)]
        else:
            calls.append(_call_of({"name": name, "arguments": value, "id": call_id}, "arguments"))
        at = text.find(TOOL_CALLS, max(end, at + len(TOOL_CALLS)))
    return tuple(calls[:MAX_CALLS])


def _open_mistral(text: str, at: int) -> tuple[int, str, str]:
    """Of the call with its mark there: where its JSON begins, the name before it, and the id of Mistral Small 3.x."""
    begun = _skip_space(text, at + len(TOOL_CALLS))
    if text.startswith("[", begun) and not text.startswith((CALL_ID_MARK, ARGS), begun):
        return begun, "", ""
    opened = text.find("{", begun, begun + MAX_HEAD)
    if opened < 0:
        return begun, "", ""
    name, _, call_id = text[begun:opened].strip().removesuffix(ARGS).partition(CALL_ID_MARK)
    return opened, name.strip(), call_id.strip()


def _end_mistral(text: str, at: int) -> int:
    begun, _, _ = _open_mistral(text, at)
    before = text[at + len(TOOL_CALLS) : begun]
    if TOOL_CALLS in before or THOUGHT_CLOSE in before or THINK_CLOSE in before:
        return at  # a mention of the mark, and not a call
    value, end = _decode(text, begun)
    return at if value is _BROKEN else end


def _write_mistral(content: str, calls: Sequence[ToolCall]) -> str:
    listed = [
        {"name": call.name, "arguments": call.arguments} | ({"id": call.call_id} if call.call_id else {})
        for call in calls
    ]
    return f"{content}{TOOL_CALLS}{_dump(listed)}"


def _without_tags(text: str) -> str:
    """Without what Llama writes around a call, or not."""
    text = text.strip().removeprefix(PYTHON_TAG)
    if text.startswith(PYTHON_START):
        text = text.removeprefix(PYTHON_START).removesuffix(PYTHON_END)
    return text.strip()


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_BEGINS_PYTHONIC = re.compile(rf"\[\s*{_NAME.pattern}\(\s*(?:\)|{_NAME.pattern}\s*=)")
_STRING = re.compile(r"""'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*\"""", re.DOTALL)
_WORD = re.compile("[A-Za-z]+")
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|U0010[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", "'": "'", '"': '"', "\n": ""}
ReadOne = Callable[[str, int], tuple[Any, int]]  # the text and a place in it, to what stands there and where that ends


def _python_items(text: str, at: int, closing: str, read_one: ReadOne) -> tuple[Any, int]:
    """What stands between commas up to `closing`, and where that ends; _BROKEN for anything else."""
    items: list[Any] = []
    at = _skip_space(text, at)
    while not text.startswith(closing, at):
        item, at = read_one(text, at)
        if item is _BROKEN:
            return _BROKEN, at
        items.append(item)
        at = _skip_space(text, at)
        if text.startswith(",", at):
            at = _skip_space(text, at + 1)
        elif not text.startswith(closing, at):
            return _BROKEN, at
    return items, at + len(closing)


def _python_value(text: str, at: int, depth: int = MAX_NESTED) -> tuple[Any, int]:
    """A text, a number, a constant of Python's or JSON's, a list or a mapping of these. Nothing is evaluated."""
    if found := _STRING.match(text, at):
        return _ESCAPE.sub(_unescape, found[0][1:-1]), found.end()
    if found := _WORD.match(text, at):
        return _WORDS.get(found[0], _BROKEN), found.end()
    opened = text[at : at + 1]
    if opened and opened in "-0123456789":
        return _decode(text, at)
    if not opened or opened not in "[({" or not depth:
        return _BROKEN, at

    def read(text: str, at: int) -> tuple[Any, int]:
        return _python_value(text, at, depth - 1)

    if opened != "{":
        return _python_items(text, at + 1, "]" if opened == "[" else ")", read)
    pairs, end = _python_items(text, at + 1, "}", lambda text, at: _python_pair(text, at, _STRING, ":", read))
    return (pairs if pairs is _BROKEN else dict(pairs)), end


def _python_pair(text: str, at: int, keys: re.Pattern[str], between: str, read: ReadOne) -> tuple[Any, int]:
    key = keys.match(text, at)
    middle = _skip_space(text, key.end()) if key else at
    if key is None or not text.startswith(between, middle):
        return _BROKEN, at
    value, end = read(text, _skip_space(text, middle + 1))
    name = _ESCAPE.sub(_unescape, key[0][1:-1]) if keys is _STRING else key[0]
    return (_BROKEN if value is _BROKEN else (name, value)), end


def _unescape(found: re.Match[str]) -> str:
    """As Python reads it: what is no escape stays."""
    kind = found[1]
    return chr(int(kind[1:], 16)) if len(kind) > 1 else _ESCAPES.get(kind, found[0])


def _python_call(text: str, at: int) -> tuple[Any, int]:
    name = _NAME.match(text, at)
    if name is None or not text.startswith("(", name.end()):
        return _BROKEN, at
    pairs, end = _python_items(
        text, name.end() + 1, ")", lambda text, at: _python_pair(text, at, _NAME, "=", _python_value)
    )
    if pairs is _BROKEN or not _is_json(dict(pairs)):
        return _BROKEN, end
    return ToolCall(name=name[0], arguments=dict(pairs)), end


def _python_calls(text: str, at: int) -> tuple[Any, int]:
    """`[NAME(KEY=VALUE), ..]` that begins there, and where it ends; _BROKEN for none."""
    if not _BEGINS_PYTHONIC.match(text, at):
        return _BROKEN, at
    return _python_items(text, at + 1, "]", _python_call)


def _read_pythonic(text: str) -> tuple[ToolCall, ...]:
    text = _without_tags(text)
    if not _BEGINS_PYTHONIC.match(text):  # other lists, and links, are answers
        return ()
    calls, end = _python_calls(text, 0)
    if calls is _BROKEN:
        return (ToolCall(name="", problem=NOT_PYTHON),)
    if end < len(text):
        calls[-1] = replace(calls[-1], problem=BEHIND)
    return tuple(calls[:MAX_CALLS])


def _end_pythonic(text: str, at: int) -> int:
    calls, end = _python_calls(text, at)
    return at if calls is _BROKEN else end


def _write_pythonic(content: str, calls: Sequence[ToolCall]) -> str:
    """Content has no place in a message of this family that calls."""
    written = [
        f"{call.name}({', '.join(f'{key}={value!r}' for key, value in call.arguments.items())})" for call in calls
    ]
    return f"[{', '.join(written)}]"


_BEGINS_LLAMA = re.compile(r"\{\s*\"?(?:name|type|function|parameters|arguments)\"?\s*:")


def _read_llama(text: str) -> tuple[ToolCall, ...]:
    """Other objects, and sets of mathematics, are answers. Behind a sentence only whole calls count, to the end; and so
    does a whole list of Python calls, which Llama 3.2 may write in the place of JSON."""
    text = _without_tags(text)
    if _BEGINS_LLAMA.match(text):
        return _read_objects(text)
    calls, end = _python_calls(text, 0)
    if calls is not _BROKEN and end == len(text):
        return tuple(calls[:MAX_CALLS])
    at, tried = 0, 0
    while (begun := _BEGINS_LLAMA.search(text, at)) and tried < MAX_CALLS:  # a bound: each may take the whole text
        end, whole = _end_objects(text, begun.start())
        if whole and end == len(text):
            calls = _read_objects(text[begun.start() :])
            return () if any(call.problem for call in calls) else calls
        at, tried = max(end, begun.end()), tried + 1
    return ()


def _read_objects(text: str) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    at = 0
    while at < len(text) and len(calls) < MAX_CALLS:
        value, end = _decode(text, at)
        calls.append(_call_of(value, "parameters", "arguments"))
        at = _skip_space(text, end)
        if value is _BROKEN or at == len(text):
            break
        if text[at] != ";":
            calls[-1] = replace(calls[-1], problem=BEHIND)
            break
        at = _skip_space(text, at + 1)
    return tuple(calls)


def _end_objects(text: str, at: int) -> tuple[int, bool]:
    """Of the objects from there on: where they end, and whether each has arguments, as a call's has."""
    whole = True
    while True:
        value, end = _decode(text, at)
        whole = whole and isinstance(value, dict) and ("parameters" in value or "arguments" in value)
        at = _skip_space(text, end)
        if not whole or not text.startswith(";", at):
            return end, whole
        at = _skip_space(text, at + 1)


def _end_llama(text: str, at: int) -> int:
    """Of the object there, and of those that follow it: what a thought says of calls is objects too."""
    end = at
    while True:
        value, after = _decode(text, at)
        if value is _BROKEN:
            return end
        end, at = after, _skip_space(text, after)
        if not text.startswith(";", at):
            return end
        at = _skip_space(text, at + 1)


def _write_llama(content: str, calls: Sequence[ToolCall]) -> str:
    """Content has no place in a message of this family that calls."""
    return "; ".join(_dump({"name": call.name, "parameters": call.arguments}) for call in calls)


HERMES = Family(
    name="hermes",
    tags=(CALL_OPEN, CALL_CLOSE),
    read=lambda text: _read_tagged(text, _read_object),
    write=_write_hermes,
    opening=CALL_OPEN,
    end=lambda text, at: _end_tagged(text, at, _read_object),
)
QWEN3_CODER = Family(
    name="qwen3_coder",
    tags=(CALL_OPEN, CALL_CLOSE, FUNCTION, FUNCTION_CLOSE, PARAMETER, PARAMETER_CLOSE),
    read=_read_functions,
    write=_write_function,
    opening=CALL_OPEN,
    end=_end_function,
    typed=False,
)
MISTRAL = Family(
    name="mistral",
    tags=(TOOL_CALLS,),
    read=_read_mistral,
    write=_write_mistral,
    opening=TOOL_CALLS,
    end=_end_mistral,
    thoughts=THOUGHTS,
)
PYTHONIC = Family(
    name="pythonic",
    tags=(PYTHON_START, PYTHON_END),
    read=_read_pythonic,
    write=_write_pythonic,
    opening="[",
    end=_end_pythonic,
)
LLAMA3 = Family(name="llama3", tags=(PYTHON_TAG,), read=_read_llama, write=_write_llama, opening="{", end=_end_llama)

FAMILIES: Mapping[str, Family] = {each.name: each for each in (HERMES, QWEN3_CODER, MISTRAL, PYTHONIC, LLAMA3)}


def family_of(written: str, call: ToolCall) -> Family | None:
    """The family in which `written`, what a chat template makes of a message with `call`, is that call."""
    for family in FAMILIES.values():
        calls = read_calls(family, written)
        if [(each.name, each.arguments, each.problem) for each in calls] == [(call.name, call.arguments, "")]:
            return family
    bare = ", ".join(f"{key}={value}" for key, value in call.arguments.items())
    return PYTHONIC if written.strip() == f"[{call.name}({bare})]" else None  # as a template for Llama 3.2 writes texts
