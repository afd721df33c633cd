"""Keys of an environment or a reward that belong to one choice and not to another."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from launch.config.layers import Raw
from rlsys.choices import Table, choose
from rlsys.errors import BadInput

log = logging.getLogger("rlsys.config")
MOST = 5  # choices that one line names


@dataclass(frozen=True, slots=True)
class Picked:
    """What holds in a stage, or outside of stages where that is None."""

    stage: str | None
    names: Mapping[str, str]  # {"reward": "answer"}


def kept_keys(key: str, name: str, schema: type, part: Raw) -> Raw:
    """What a class of the user's own takes over of a section that was written for another: the keys that it has.

    A choice of ours begins with its own defaults.
    """
    has = {field.name for field in fields(schema)} - {"name"} if "." in name else set()
    return {each: value for each, value in part.items() if each in has}


def say_left_out(layers: Sequence[tuple[str, Raw]], tables: Mapping[str, Table]) -> None:
    """Which keys of the files do not hold, because the command line names another class."""
    for key, table in tables.items():
        named = [(source, _named(values.get(key))) for source, values in layers]
        given = [(source, name) for source, name in named if name is not None]
        if not given or not given[-1][0].startswith("command line"):
            continue
        name = given[-1][1]
        schema = choose(key, table, name).schema
        for source, values in layers:
            part = values.get(key)
            if isinstance(part, dict) and part.get("name", name) != name:
                left = part.keys() - kept_keys(key, name, schema, part).keys() - {"name"}
                if left:
                    keys = ", ".join(f"{key}.{each}" for each in sorted(left))
                    log.warning("%s.name=%s: left out of %s, which names another: %s", key, name, source, keys)


def _named(part: Any) -> str | None:
    name = part.get("name") if isinstance(part, dict) else None
    return name if isinstance(name, str) else None


def check_choices(given: Raw, picked: Sequence[Picked], tables: Mapping[str, Table]) -> None:
    """Raises BadInput for a key of the command line that the choice of one stage has and that of another has not."""
    for key, table in tables.items():
        part = given.get(key)
        for path, value in _leaves(part) if isinstance(part, dict) else ():
            with_it = [each for each in picked if _has(choose(key, table, each.names[key]).schema, path)]
            without = [each for each in picked if each not in with_it]
            stages = [each.stage for each in with_it if each.stage is not None]
            if without and stages:
                first, shown = without[0], "null" if value is None else value
                where = "outside of stages" if first.stage is None else f"in stage {first.stage}"
                ways = " ".join(f"stages.{stage}.{key}.{path}={shown}" for stage in stages)
                held = f"{where} {key}.name={first.names[key]!r} has no such key"
                raise BadInput(f"command line: {key}.{path}: {held}: expected {ways}")
            owners = [name for name in table if _has(choose(key, table, name).schema, path)]
            if without and owners:
                names = ", ".join(owners[:MOST]) + ", ..." * (len(owners) > MOST)
                raise BadInput(
                    f"command line: unknown key '{key}.{path}': {key}.name={without[0].names[key]!r} has none, "
                    f"{key}.name={names} has it"
                )


def _leaves(part: Raw, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        elif prefix + name != "name":
            yield prefix + name, value


def _has(schema: Any, path: str) -> bool:
    head, _, rest = path.partition(".")
    if not (isinstance(schema, type) and is_dataclass(schema)):
        return True  # a plain value, or a section with names of the user's own
    return head in {field.name for field in fields(schema)} and (not rest or _has(get_type_hints(schema)[head], rest))
