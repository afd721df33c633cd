"""envs.tools.schema.find_problem: what stands inside objects and alternatives."""

from typing import Any

import pytest

from envs.tools.schema import find_problem

POINT = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["x"]}
EITHER = {"anyOf": [{"type": "integer"}, POINT]}


@pytest.mark.parametrize(
    ("schema", "value", "right"),
    [
        (POINT, {"x": 3}, True),
        (POINT, {}, False),
        (POINT, {"x": -1}, False),
        (POINT, {"x": 10}, False),
        (POINT, {"x": "3"}, False),
        ({"type": "array", "items": POINT}, [{"x": 1}, {}], False),
        (EITHER, 5, True),
        (EITHER, {"x": 5}, True),
        (EITHER, "5", False),
        (EITHER, {}, False),
        ({"anyOf": []}, 5, True),
        ({"anyOf": "x", "minimum": "a", "required": 3, "properties": []}, {"x": 1}, True),
    ],
)
def test_inner_values(schema: Any, value: Any, right: bool) -> None:
    assert (find_problem({"properties": {"p": schema}}, {"p": value}) == "") == right
