"""Which of a person's objects are tools, and what the model is told of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import lru_cache, partial, wraps
from typing import Any

import pytest

from envs.tools.function import read_schema
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
    found = schema_of(name)
    assert found["description"] == "Look up how high a mountain is." and found["parameters"]["required"] == ["mountain"]
    assert found["parameters"]["properties"]["mountain"]["type"] == "string"


@pytest.mark.parametrize("name", ["stateful", "short", "method"])
def test_an_object_is_described_by_its_call_or_else_its_class(name: str) -> None:
    found = schema_of(name)
    assert found["description"] == "Count a city." and found["parameters"]["properties"] == {"city": {"type": "string"}}


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
    assert {undescribed(each) for each in strange} == {"no description"}
    properties = {"a": {"anyOf": [{}]}, "b": {"$ref": "#/x"}, "c": {"description": "x"}, "d": None}
    told = {"description": "x", "parameters": {"properties": properties}}
    assert undescribed({"function": told}) == "no type of c, d"
