"""Fields of a record, checked: what every reader of a format needs. Bad ones are BadInput naming the record."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from envs.tasks.files import Located
from envs.tasks.jsonl import text_field
from rlsys.errors import BadInput
from rlsys.types import Task


def lower(record: Located) -> dict[str, Any]:
    """The fields by lower-case name, for some publishers write `Question`; a name in lower case wins over others."""
    fields = {key.casefold(): value for key, value in record.fields.items()}
    return fields | {key: value for key, value in record.fields.items() if key == key.casefold()}


def text(record: Located, key: str) -> str:
    """A required text, stripped."""
    return text_field(lower(record), key, record.where).strip()


def mapping(record: Located, key: str) -> Mapping[str, Any]:
    value = lower(record).get(key)
    if not isinstance(value, Mapping) or not value:
        raise BadInput(f'{record.where}: "{key}" is missing, empty or no object')
    return value


def texts(values: object, key: str, record: Located) -> tuple[str, ...]:
    """A non-empty list of texts or numbers, as texts."""
    if not isinstance(values, list | tuple) or not values:
        raise BadInput(f'{record.where}: "{key}" is missing, empty or no list, expected a list of texts')
    return tuple(value_text(value, key, record) for value in values)


def value_text(value: object, key: str, record: Located) -> str:
    """A text or a number as text. True and false are neither."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    return text_field({key: value}, key, record.where).strip()


def answer(record: Located) -> str:
    """The field "answer"."""
    return value_text(lower(record).get("answer"), "answer", record)


def task(record: Located, question: str, answers: Sequence[str], extra: Mapping[str, Any] | None = None) -> Task:
    return Task(
        task_id=record.task_id, question=question, answers=tuple(answers), record={**record.fields, **(extra or {})}
    )
