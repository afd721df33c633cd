"""The JSON schema of a tool's arguments: made from a Python function, checked before a call.

The check is of what a schema says most often: required names, types, enumerations, bounds, and these inside objects,
lists and alternatives. A tool may refuse more. Patterns and references of a foreign schema are never followed: they
could be made to run for ever, or to load something.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Schema = Mapping[str, Any]  # {"type": "function", "function": {"name": .., "description": .., "parameters": {..}}}

KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_NAMES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array"} | {
    dict: "object",
    type(None): "null",
}
TYPED = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")  # keys that say what a value may be
MAX_DEPTH = 4  # of the values that are looked at
SHOWN = 60  # characters of a value in an error text
_ARGUMENT = re.compile(r"\s+(\w+)\s*(?:\([^)]*\))?:\s*(.+)")


def make_schema(name: str, description: str, parameters: Mapping[str, Any]) -> Schema:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": dict(parameters)},
    }


def schema_of(function: Callable[..., Any], name: str) -> Schema:
    """From its signature and its docstring, whose `Args:` describe the arguments, a line each. function: also a partial
    one, or an object that is called.

    Raises TypeError for a function whose arguments cannot all be given by name.
    """
    written, said = _written(function)
    described = {found[1]: found[2] for line in said.splitlines() if (found := _ARGUMENT.fullmatch(line))}
    hints = get_type_hints(written)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"its argument {key!r} cannot be given by name")
        properties[key] = kind_of_hint(hints[key]) if key in hints else {}
        if key in described:
            properties[key] |= {"description": described[key]}
        if parameter.default is parameter.empty:
            required.append(key)
    description = " ".join(said.partition("\n\n")[0].split())
    return make_schema(name, description, {"type": "object", "properties": properties, "required": required})


def _written(function: Any) -> tuple[Any, str]:
    """What has its annotations, and its docstring."""
    function = inspect.unwrap(function)
    if isinstance(function, partial):
        return _written(function.func)
    if inspect.isroutine(function):
        return function, inspect.getdoc(function) or ""
    call = type(function).__call__  # of an object
    return call, inspect.cleandoc(call.__doc__) if call.__doc__ else inspect.getdoc(function) or ""


def undescribed(schema: Schema) -> str:
    """What a model is not told of a tool: "no description, no type of city, days"; empty where it is told all. The
    schema may be a stranger's."""
    said = schema.get("function")
    said = said if isinstance(said, Mapping) else {}
    parameters = said.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else {}
    known = properties.items() if isinstance(properties, Mapping) else ()
    bare = [str(key) for key, each in known if not (isinstance(each, Mapping) and any(key in each for key in TYPED))]
    missing = [] if said.get("description") else ["no description"]
    return ", ".join([*missing, *([f"no type of {', '.join(bare)}"] if bare else [])])


def kind_of_hint(hint: Any) -> dict[str, Any]:
    """{"type": "integer"} for int; {} for what JSON has no name for."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        kinds = [kind_of_hint(each) for each in arguments]
        others = [each for each in kinds if each != {"type": "null"}]
        if len(others) == 1 and "enum" in others[0]:
            return {"enum": [*others[0]["enum"], None]}
        named = [each.get("type") for each in kinds]
        if not all(isinstance(each, str) for each in named):
            return {}
        return (others[0] if len(others) == 1 else {}) | {"type": named}
    if origin is tuple and arguments and arguments[1:] != (...,):  # of each place its own
        places = [kind_of_hint(each) for each in arguments]
        return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}
    if origin in (list, tuple, set) and arguments:
        return {"type": "array", "items": kind_of_hint(arguments[0])}
    kind = _NAMES.get(origin or hint)
    return {"type": kind} if kind else {}


def find_problem(parameters: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Why a tool with these parameters cannot be called so; "" where nothing is seen. A schema may hold anything."""
    properties = parameters.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = parameters.get("required")
    for key in required if isinstance(required, list) else ():
        if isinstance(key, str) and key not in arguments:
            return f"the argument {key!r} is missing"
    closed = parameters.get("additionalProperties") is False
    for key, value in arguments.items():
        if key not in properties and closed:
            return f"there is no argument {_shorten(key)}"
        if wrong := _wrong(properties.get(key), value, MAX_DEPTH):
            return f"the argument {_shorten(key)} is {_shorten(value)}: expected {wrong}"
    return ""


def _wrong(schema: Any, value: Any, depth: int) -> str:
    """What is expected in its place; "" where it fits."""
    if not isinstance(schema, Mapping) or not depth:
        return ""
    among = schema.get("enum")
    if isinstance(among, list) and value not in among:
        return "one of " + ", ".join(map(_shorten, among[:20]))
    named = schema.get("type")
    kinds = [
        each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str) and each in KINDS
    ]
    if kinds and not any(_is(value, kind) for kind in kinds):
        return " or ".join(kinds)
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if isinstance(least, int | float) and value < least:
            return f"{_shorten(least)} or more"
        if isinstance(most, int | float) and value > most:
            return f"{_shorten(most)} or less"
    if isinstance(value, dict) and (wanted := _wrong_object(schema, value, depth)):
        return wanted
    several = [kept for key in ("anyOf", "oneOf") if isinstance(kept := schema.get(key), list) and kept]
    for choices in several:
        if all(wrongs := [_wrong(choice, value, depth - 1) for choice in choices]):
            return " or ".join(dict.fromkeys(wrongs))
    if isinstance(value, list) and (wanted := _wrong_length(schema, len(value))):
        return wanted
    first = schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    for at, each in enumerate(value if isinstance(value, list) else ()):
        if at < len(first):
            if wrong := _wrong(first[at], each, depth - 1):
                return f"a list with {wrong} in place {at + 1}"
        elif wrong := _wrong(schema.get("items"), each, depth - 1):
            return f"a list of {wrong}"
    return ""


def _wrong_object(schema: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> str:
    required, properties = schema.get("required"), schema.get("properties")
    for key in required if isinstance(required, list) else ():
        if isinstance(key, str) and key not in value:
            return f"an object with {_shorten(key)}"
    for key, part in properties.items() if isinstance(properties, Mapping) else ():
        if key in value and (wrong := _wrong(part, value[key], depth - 1)):
            return f"an object whose {_shorten(key)} is {wrong}"
    return ""


def _wrong_length(schema: Mapping[str, Any], length: int) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(least, int) and length < least:
        return f"a list of {least} items at least"
    if isinstance(most, int) and length > most:
        return f"a list of {most} items at most"
    return ""


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, KINDS[kind])


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
