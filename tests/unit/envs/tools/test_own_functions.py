"""Which of a person's objects are tools, and what the model is told of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial, wraps
from pathlib import Path
from typing import Any, NewType, NotRequired, TypedDict

import numpy as np
import pytest

from envs.tools.function import read_schema
from envs.tools.function_worker import plain
from envs.tools.schema import undescribed
from tests.refused import refused


def height(mountain: str, unit: str = "metres") -> str:
    """Look up how high a mountain is.

    Args:
        mountain: Its name.
    """
    return f"{mountain} {unit}"


async def waits(mountain: str) -> str:
    """Look up how high a mountain is."""
    return mountain


class Stateful:
    """A counter."""

    def __call__(self, city: str) -> str:
        """Count a city."""
        return city


class Short:
    """Count a city."""

    def __call__(self, city: str) -> str:
        return city


def logged(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def logging(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    return logging


def yields(city: str) -> Iterator[str]:
    """Count cities."""
    yield city


async def yields_later(city: str) -> AsyncIterator[str]:
    """Count cities."""
    yield city


def many(*cities: str) -> str:
    """Count cities."""
    return ", ".join(cities)


class Yields:
    def __call__(self, city: str) -> Iterator[str]:
        yield city


stateful, short, yielding = Stateful(), Short(), Yields()
in_feet, kept, told, method = partial(height, unit="feet"), lru_cache(height), logged(height), stateful.__call__
bare = lambda a, b: a + b  # noqa: E731
VALUE = 3


def schema_of(name: str) -> Any:
    return read_schema("env.tools.0.function", f"{__name__}.{name}", name)["function"]


@pytest.mark.parametrize("name", ["height", "waits", "in_feet", "kept", "told"])
def test_whatever_is_called_like_a_function_is_described_like_one(name: str) -> None:
    schema = schema_of(name)
    assert schema["description"] == "Look up how high a mountain is." and schema["parameters"]["required"] == [
        "mountain"
    ]
    assert schema["parameters"]["properties"]["mountain"]["type"] == "string"


@pytest.mark.parametrize("name", ["stateful", "short", "method"])
def test_an_object_is_described_by_its_call_or_else_its_class(name: str) -> None:
    schema = schema_of(name)
    assert schema["description"] == "Count a city." and schema["parameters"]["properties"] == {
        "city": {"type": "string"}
    }


class Unit(Enum):
    METRES = "metres"


class Place(TypedDict):
    name: str
    country: NotRequired[str]


Metres = NewType("Metres", int)


def measures(
    place: Place, heights: Sequence[Metres], by: Mapping[str, int], anything: Any, unit: Unit = Unit.METRES
) -> str:
    """Measure a place.

    The heights are those of its mountains, from
    north to south.

    Args:
        place: Its name, and where there are several
            of this name its country.
        heights (list[int]): In metres: whole ones.

    Returns:
        heights: Not an argument's.
    """
    return f"{place} {heights} {by} {unit}"


def in_rest(mountain: str) -> str:
    """Look it up.

    :param str mountain: Its name.
    """
    return mountain


def enumerated(unit: Unit) -> str:
    return unit.value


def listed(units: list[Unit] | None) -> str:
    return str(units)


def test_types_and_words_of_a_signature_reach_the_model() -> None:
    schema = schema_of("measures")
    assert schema["description"] == ("Measure a place. The heights are those of its mountains, from north to south.")
    place = {"type": "object", "properties": {"name": {"type": "string"}, "country": {"type": "string"}}}
    description = "Its name, and where there are several of this name its country."
    assert schema["parameters"]["properties"] == {
        "place": place | {"required": ["name"], "description": description},
        "heights": {"type": "array", "items": {"type": "integer"}, "description": "In metres: whole ones."},
        "by": {"type": "object"},
        "anything": {},
    }
    assert schema_of("in_rest")["parameters"]["properties"]["mountain"]["description"] == "Its name."


@dataclass
class Point:
    x: int


RESULTS = [
    (np.float32(2.5), "2.5"),
    (np.arange(2), "[0, 1]"),
    ({"n": np.int64(3)}, '{"n": 3}'),
    ([Point(1)], '[{"x": 1}]'),
    ({2, 1}, "[1, 2]"),
    ([b"caf\xc3\xa9", Path("a")], '["café", "a"]'),
]


@pytest.mark.parametrize(("result", "text"), RESULTS)
def test_a_result_that_json_has_no_form_for_is_written_as_its_value(result: Any, text: str) -> None:
    assert json.dumps(result, ensure_ascii=False, default=plain) == text


@pytest.mark.parametrize("result", [stateful, (letter for letter in "ab"), lambda: None, Stateful.__call__])
def test_a_place_in_memory_is_no_result(result: Any) -> None:
    with pytest.raises(TypeError, match="which has no text"):
        json.dumps([result], default=plain)


NO_TOOLS = [
    (f"{__name__}.Stateful", "a function; a class"),
    ("builtins.dict", "a function; a class"),
    (f"{__name__}.VALUE", "a function"),
    (f"{__name__}.yields", "a function that returns"),
    (f"{__name__}.yields_later", "a function that returns"),
    (f"{__name__}.yielding", "a function that returns"),
    (f"{__name__}.many", "'cities' cannot be given by name"),
    ("math.sqrt", "cannot be given by name"),
    ("builtins.max", "no signature"),
    (f"{__name__}.absent", "absent"),
    (f"{__name__}.enumerated", "'unit' is of the class Unit"),
    (f"{__name__}.listed", "'units' is of the class Unit"),
]


@pytest.mark.parametrize(("path", "says"), NO_TOOLS)
def test_what_is_no_tool_is_refused_in_one_line(path: str, says: str) -> None:
    with refused("env.tools.0.function", found=path, says=says):
        read_schema("env.tools.0.function", path, "it")


def test_what_the_model_is_not_told() -> None:
    def of(name: str) -> str:
        return undescribed({"function": schema_of(name)})

    assert (of("height"), of("bare")) == ("", "no description, no type of a, b")
    strange = [
        {},
        {"function": None},
        {"function": {"parameters": []}},
        {"function": {"parameters": {"properties": 3}}},
    ]
    assert {undescribed(schema) for schema in strange} == {"no description"}
    properties = {"a": {"anyOf": [{}]}, "b": {"$ref": "#/x"}, "c": {"description": "x"}, "d": None}
    function = {"description": "x", "parameters": {"properties": properties}}
    assert undescribed({"function": function}) == "no type of c, d"
    nested = {"a": {"type": "array", "items": {}}, "b": {"type": "array", "items": {"type": "string"}}}
    assert undescribed({"function": {"description": "x", "parameters": {"properties": nested}}}) == "no type of a"
