"""Objects as JSON, one a line: what is ours is a frozen dataclass whose fields are the keys, in their order.

Only what comes from elsewhere is read by hand, key by key, so that a bad line says what is wrong with it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import IO, Any, TypeVar, get_args, get_origin, get_type_hints

from rlsys.errors import BadInput
from rlsys.files import naming

T = TypeVar("T")


def encode(value: Any, optional: frozenset[str] = frozenset()) -> Any:
    """A dataclass as plain JSON; its `optional` keys are left out where they hold their default, or are empty."""
    if is_dataclass(value):
        pairs = ((field, getattr(value, field.name)) for field in fields(value))
        entries = ((field.name, v) for field, v in pairs if field.name not in optional or v not in (field.default, {}))
        return {name: encode(v, optional) for name, v in entries}
    if isinstance(value, tuple) and value and (is_dataclass(value[0]) or isinstance(value[0], tuple)):
        return [encode(element, optional) for element in value]  # a tuple of numbers is JSON as it is
    return dict(value) if isinstance(value, Mapping) else value


def decode(kind: Any, value: Any) -> Any:
    """The inverse of `encode`, by the type hints of `kind`; keys that it does not have are ignored.

    For files of ours: what does not fit raises TypeError, ValueError or AttributeError, or stays as it is.
    """
    return _decoder(kind)(value)


@cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    if is_dataclass(kind) and isinstance(kind, type):
        inner = {name: _decoder(hint) for name, hint in get_type_hints(kind).items()}
        return lambda value: kind(**{name: inner[name](raw) for name, raw in value.items() if name in inner})
    arguments = get_args(kind)
    if get_origin(kind) is UnionType:
        decode_inner = _decoder(arguments[0])
        return lambda value: None if value is None else decode_inner(value)
    if get_origin(kind) is tuple:
        decode_element = _decoder(arguments[0])
        return tuple if arguments[0] in (int, str) else lambda value: tuple(map(decode_element, value))
    return kind if isinstance(kind, type) and issubclass(kind, Enum) else lambda value: value


def read_as(kind: type[T], values: Mapping[str, Any], where: str, otherwise: str) -> T:
    """`decode`, which raises BadInput for what does not fit: that it is `otherwise`."""
    try:
        record: T = decode(kind, values)
        return record
    except (TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{otherwise} ({error})", where=where) from error


def json_object(line: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line.decode("utf-8").rstrip("\r\n"))
    except UnicodeDecodeError as error:
        raise BadInput(f"not UTF-8 (byte 0x{line[error.start]:02x} at {error.start})", where=where) from error
    except json.JSONDecodeError as error:
        raise BadInput(f"not JSON ({error.msg} at column {error.colno})", where=where) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting past the parser's limits
        raise BadInput(f"not usable JSON ({type(error).__name__})", where=where) from error
    if not isinstance(value, dict):
        raise BadInput(kind_of(value), where=where, expected="a JSON object")
    return value


def json_line(record: Mapping[str, Any]) -> bytes:
    """Half a surrogate pair, which UTF-8 has no bytes for, comes out as its JSON escape."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


class LineFile:
    """Lines of JSON, appended as work ends and continued after a kill. Only their places are for memory."""

    def __init__(self, path: Path, file: IO[bytes], on_line: Callable[[dict[str, Any], str, int], None]) -> None:
        """file: open to append and read. on_line: gets each line's object, where it stands, and its place.

        A torn last line is cut off. Raises BadInput for a line that is no object, and what `on_line` raises.
        """
        self.path, self._file = path, file
        file.seek(0)
        end = 0
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                break
            where = f"{path} line {number}"
            on_line(json_object(line, where), where, end)
            end += len(line)
        file.truncate(end)

    def append(self, record: Mapping[str, Any]) -> int:
        """One line more, and its place; it is on disk when this returns, as far as a killed process goes."""
        place = self._file.seek(0, os.SEEK_END)
        with naming(self.path):
            self._file.write(json_line(record))
            self._file.flush()
        return place

    def read(self, place: int) -> dict[str, Any]:
        self._file.seek(place)
        return json_object(self._file.readline(), str(self.path))

    def close(self) -> None:
        self._file.close()


def kind_of(value: object) -> str:
    """The JSON name of a value's type."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def format_value(value: object) -> str:
    """A value in an error: short; a long one is described by its kind."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        odd = next((f" with {kind_of(element)}" for element in value if not isinstance(element, type(value[0]))), "")
        return f"{kind_of(value)}{odd}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 40 else kind_of(value)
