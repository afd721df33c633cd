"""What makes two configurations the same one: within a process, and in files that are read on another machine."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, fields, is_dataclass
from typing import Any

# Keys that may differ between machines: addresses, numbers of processes, patience, secrets.
PLACES = (
    "url", "token_env", "guard", "endpoint", "service", "key_env", "plain_http", "workers", "threads", "ask_first",
)  # fmt: skip
PLACES_LISTED = ("token_env", "plain_http")  # in the sections of a list, whose other keys results were published with
# Of a key that came after results were published: left empty it is no part of what identifies them.
LATER = {"later": True}


def config_key(config: Any) -> str:
    """A short text, the same for equal configurations: what is built from one is kept and asked for by it."""
    values = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    text = (
        f"{type(config).__module__}.{type(config).__qualname__} {config!r} {values!r}"  # hidden fields, nested classes
    )
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def identity_of(where: str, config: Any) -> dict[str, Any]:
    """The values of a configuration without its places, by key: {"env.name": "calculator", ...} for `where` "env"."""
    empty = [field.name for field in fields(config) if field.metadata == LATER and not getattr(config, field.name)]
    values = _without_places(asdict(config))
    return {f"{where}.{key}": value for key, value in values.items() if key not in empty}


def _without_places(value: Any, places: tuple[str, ...] = PLACES) -> Any:
    if isinstance(value, dict):
        return {key: _without_places(inner, places) for key, inner in value.items() if key not in places}
    return [_without_places(inner, PLACES_LISTED) for inner in value] if isinstance(value, list) else value
