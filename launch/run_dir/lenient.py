"""Records out of JSON that another version, or anybody, may have written: what fits is taken, and nothing raised."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
UNFIT = object()  # in place of a value of another type than its field


def decode_lenient(kind: type[T], value: object) -> T:
    """A dataclass whose fields all have defaults, which stand for keys that are absent or of another type.

    Types of fields: int, str, bool, float (a whole number is one, and stays as it is), `Any`, `X | None`,
    tuple[X, ...], Mapping[str, X], and dataclasses of this kind. Elements that are no X are left out.
    """
    hint: Any = kind
    record = _make_decoder(hint)(value)
    return kind() if record is UNFIT else record


@cache
def _make_decoder(hint: Any) -> Callable[[Any], Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        decoders = {name: _make_decoder(field) for name, field in get_type_hints(hint).items()}
        return lambda value: hint(**_fields(decoders, value)) if isinstance(value, dict) else UNFIT
    if origin is UnionType:
        decode = _make_decoder(arguments[0])
        return lambda value: None if value is None else decode(value)
    if origin is tuple:
        decode = _make_decoder(arguments[0])
        return lambda value: (
            tuple(_fitting(enumerate(map(decode, value))).values()) if isinstance(value, list) else UNFIT
        )
    if origin is Mapping:
        decode = _make_decoder(arguments[1])
        return lambda value: (
            _fitting((key, decode(entry)) for key, entry in value.items()) if isinstance(value, dict) else UNFIT
        )
    if hint is Any:
        return lambda value: value
    types = (int, float) if hint is float else (hint,)
    return lambda value: value if type(value) in types else UNFIT


def _fields(decoders: Mapping[str, Callable[[Any], Any]], value: Mapping[str, Any]) -> dict[str, Any]:
    return _fitting((name, decode(value[name])) for name, decode in decoders.items() if name in value)


def _fitting(entries: Iterable[tuple[K, Any]]) -> dict[K, Any]:
    return {key: value for key, value in entries if value is not UNFIT}
