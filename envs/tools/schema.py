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
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import partial
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

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
_LISTS = (list, tuple, set, Sequence, MutableSequence, Collection, Iterable)
_NAMES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_NAMES |= dict.fromkeys(_LISTS, "array") | dict.fromkeys((dict, Mapping, MutableMapping), "object")
TYPED = ("type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref")  # keys that say what a value may be
MAX_DEPTH = 4  # of the values that are looked at
SHOWN = 60  # characters of a value in an error text
_ARGUMENT = re.compile(r"\s+(\w+)\s*(?:\([^)]*\))?:\s*(.+)|:param\s(?:[^:]*\s)?(\w+):\s*(.+)")
_SECTION = re.compile(  # of a docstring, behind which nothing is said of the whole
    r"^\s*(?:(?:args|arguments|parameters|params|returns?|yields?|raises|examples?)\s*:?\s*$|:\w[\w\s]*:)",
    re.IGNORECASE | re.MULTILINE,
)


def make_schema(name: str, description: str, parameters: Mapping[str, Any]) -> Schema:
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": dict(parameters)},
    }


def schema_of(function: Callable[..., Any], name: str) -> Schema:
    """From its signature and its docstring, whose `Args:` describe the arguments. function: also a partial one, or an
    object that is called. An argument with a default that JSON has no form for is the function's own matter.

    Raises TypeError for a function whose arguments cannot all be given by name, and as JSON.
    """
    written, docstring = _annotated_and_docstring(function)
    described = _argument_descriptions(docstring)
    hints = get_type_hints(written)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key, parameter in inspect.signature(function).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"its argument {key!r} cannot be given by name")
        try:
            properties[key] = kind_of_hint(hints[key]) if key in hints else {}
        except TypeError as error:
            if parameter.default is not parameter.empty:
                continue
            raise TypeError(f"its argument {key!r} is {error}, which no call can give: a call has JSON") from None
        if key in described:
            properties[key] |= {"description": described[key]}
        if parameter.default is parameter.empty:
            required.append(key)
    section = _SECTION.search(docstring)
    description = " ".join(docstring[: section.start() if section else None].split())
    return make_schema(name, description, {"type": "object", "properties": properties, "required": required})


def _argument_descriptions(docstring: str) -> dict[str, str]:
    """What a docstring says of each argument, first. A line that is further in goes on with the one before it."""
    descriptions: dict[str, str] = {}
    name, depth = "", 0
    for line in docstring.splitlines():
        inward = len(line) - len(line.lstrip())
        if name and line.strip() and inward > depth:
            descriptions[name] += f" {line.strip()}"
        elif (match := _ARGUMENT.fullmatch(line)) and (match[1] or match[3]) not in descriptions:
            name, depth = match[1] or match[3], inward
            descriptions[name] = match[2] or match[4]
        else:
            name = ""
    return descriptions


def _annotated_and_docstring(function: Any) -> tuple[Any, str]:
    """What has its annotations, and its docstring."""
    function = inspect.unwrap(function)
    if isinstance(function, partial):
        return _annotated_and_docstring(function.func)
    if inspect.isroutine(function):
        return function, inspect.getdoc(function) or ""
    call = type(function).__call__  # of an object
    return call, inspect.cleandoc(call.__doc__) if call.__doc__ else inspect.getdoc(function) or ""


def undescribed(schema: Schema) -> str:
    """What a model is not told of a tool: "no description, no type of city, days"; empty where it is told all. The
    schema may be a stranger's."""
    function = schema.get("function")
    function = function if isinstance(function, Mapping) else {}
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else {}
    pairs = properties.items() if isinstance(properties, Mapping) else ()
    bare = [str(key) for key, subschema in pairs if not _is_typed(subschema)]
    missing = [] if function.get("description") else ["no description"]
    return ", ".join([*missing, *([f"no type of {', '.join(bare)}"] if bare else [])])


def _is_typed(schema: Any) -> bool:
    """As far as it says what each item of a list is."""
    return (
        isinstance(schema, Mapping)
        and any(key in schema for key in TYPED)
        and (schema.get("items") is None or _is_typed(schema["items"]))
    )


def kind_of_hint(hint: Any) -> dict[str, Any]:
    """{"type": "integer"} for int; {} for what may be anything. Raises TypeError for what is never read from JSON."""
    hint = getattr(hint, "__supertype__", getattr(hint, "__value__", hint))  # of NewType, and of a name for a type
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        kinds = [kind_of_hint(argument) for argument in arguments]
        non_null = [kind for kind in kinds if kind != {"type": "null"}]
        if len(non_null) == 1 and "enum" in non_null[0]:
            return {"enum": [*non_null[0]["enum"], None]}
        names = [kind.get("type") for kind in kinds]
        if not all(isinstance(name, str) for name in names):
            return {}
        return (non_null[0] if len(non_null) == 1 else {}) | {"type": names}
    if origin is tuple and arguments and arguments[1:] != (...,):  # of each place its own
        places = [kind_of_hint(argument) for argument in arguments]
        return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}
    kind = _NAMES.get(origin or hint)
    if kind == "array" and arguments:
        return {"type": "array", "items": kind_of_hint(arguments[0])}
    if is_typeddict(hint):
        properties = {key: kind_of_hint(annotation) for key, annotation in get_type_hints(hint).items()}
        return {"type": "object", "properties": properties, "required": _required_keys(hint)}
    if kind is None and isinstance(hint, type) and hint not in (object, Any):
        raise TypeError(f"of the class {hint.__name__}")
    return {"type": kind} if kind else {}


def _required_keys(hint: Any) -> list[str]:
    """Of a TypedDict; by its hints, since it cannot read its own where annotations are texts."""
    usual = Required if hint.__total__ else NotRequired
    marked = {key: get_origin(annotation) for key, annotation in get_type_hints(hint, include_extras=True).items()}
    return [key for key, mark in marked.items() if (mark if mark in (Required, NotRequired) else usual) is Required]


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
        if wrong := _expected_instead(properties.get(key), value, MAX_DEPTH):
            return f"the argument {_shorten(key)} is {_shorten(value)}: expected {wrong}"
    return ""


def _expected_instead(schema: Any, value: Any, depth: int) -> str:
    """What is expected in its place; "" where it fits."""
    if not isinstance(schema, Mapping) or not depth:
        return ""
    among = schema.get("enum")
    if isinstance(among, list) and value not in among:
        return "one of " + ", ".join(map(_shorten, among[:20]))
    names = schema.get("type")
    kinds = [
        name for name in (names if isinstance(names, list) else [names]) if isinstance(name, str) and name in KINDS
    ]
    if kinds and not any(_has_json_type(value, kind) for kind in kinds):
        return " or ".join(kinds)
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if isinstance(least, int | float) and value < least:
            return f"{_shorten(least)} or more"
        if isinstance(most, int | float) and value > most:
            return f"{_shorten(most)} or less"
    if isinstance(value, dict) and (expected := _wrong_object(schema, value, depth)):
        return expected
    several = [options for key in ("anyOf", "oneOf") if isinstance(options := schema.get(key), list) and options]
    for choices in several:
        if all(wrongs := [_expected_instead(choice, value, depth - 1) for choice in choices]):
            return " or ".join(dict.fromkeys(wrongs))
    if isinstance(value, list) and (expected := _wrong_length(schema, len(value))):
        return expected
    first = schema.get("prefixItems")
    first = first if isinstance(first, list) else []
    for at, element in enumerate(value if isinstance(value, list) else ()):
        if at < len(first):
            if wrong := _expected_instead(first[at], element, depth - 1):
                return f"a list with {wrong} in place {at + 1}"
        elif wrong := _expected_instead(schema.get("items"), element, depth - 1):
            return f"a list of {wrong}"
    return ""


def _wrong_object(schema: Mapping[str, Any], value: Mapping[str, Any], depth: int) -> str:
    required, properties = schema.get("required"), schema.get("properties")
    for key in required if isinstance(required, list) else ():
        if isinstance(key, str) and key not in value:
            return f"an object with {_shorten(key)}"
    for key, part in properties.items() if isinstance(properties, Mapping) else ():
        if key in value and (wrong := _expected_instead(part, value[key], depth - 1)):
            return f"an object whose {_shorten(key)} is {wrong}"
    return ""


def _wrong_length(schema: Mapping[str, Any], length: int) -> str:
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(least, int) and length < least:
        return f"a list of {least} items at least"
    if isinstance(most, int) and length > most:
        return f"a list of {most} items at most"
    return ""


def _has_json_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, KINDS[kind])


def _shorten(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
