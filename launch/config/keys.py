"""Every key of a configuration, read off the dataclasses: name, type, default, allowed values, meaning."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from launch.driver.stages.base import STAGE_KEYS, StageKeys
from rlsys.choices import Table, choose
from rlsys.config.recipe import RecipeConfig, StageConfig

PLAIN = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Key(name="learner.lr", kind="a number", default="1e-06", meaning="Learning rate of the policy's ...")"""

    name: str
    kind: str  # what a value is, the allowed ones where only some are: "one of 1, 2, 3"
    default: str  # as YAML has it; empty where there is none
    meaning: str  # the docstring of the field
    owner: type  # the dataclass that says all this: several environments share one


def recipe_keys() -> list[Key]:
    """Those outside of `env`, `reward` and `algorithm`."""
    return list(keys_of(RecipeConfig))


def choice_keys(key: str, table: Table, name: str) -> list[Key]:
    """Those of one environment, reward or algorithm, without `name`."""
    return [entry for entry in keys_of(choose(key, table, name).schema, f"{key}.") if entry.name != f"{key}.name"]


def stage_keys() -> list[Key]:
    """Those that only a stage has: `stages.NAME.steps`."""
    hints, meanings = get_type_hints(StageConfig), meanings_of(StageKeys)
    return [
        Key(name=f"stages.NAME.{key}", kind=kind_of(hints[key]), default="", meaning=meanings[key], owner=StageKeys)
        for key in STAGE_KEYS
    ]


def known_names(tables: Mapping[str, Table], classes: Mapping[str, type]) -> list[str]:
    """Every key that a recipe may have. classes: the dataclasses of `env`, `reward` and `algorithm` where they are
    known; else every key of any of the table's."""
    names = [name for name, *_ in _leaves(RecipeConfig, "")]
    names += [f"stages.NAME.{key}" for key in STAGE_KEYS] + [f"{key}.name" for key in tables]
    for key, table in tables.items():
        schemas = [classes[key]] if key in classes else [choose(key, table, name).schema for name in table]
        names += [name for schema in schemas for name, *_ in _leaves(schema, f"{key}.")]
    return names


def keys_of(schema: type, prefix: str = "") -> Iterator[Key]:
    """The keys of a dataclass and of those inside it, in order."""
    for name, owner, field, hint in _leaves(schema, prefix):
        meaning = meanings_of(owner).get(field.name, "")
        yield Key(name=name, kind=kind_of(hint), default=_default(field), meaning=meaning, owner=owner)


def _leaves(schema: type, prefix: str) -> Iterator[tuple[str, type, Field[Any], Any]]:
    """(name, the class that declares it, field, type) of every key that is no section."""
    hints = get_type_hints(schema)
    for field in fields(schema):
        hint = hints[field.name]
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _leaves(hint, f"{prefix}{field.name}.")
        elif (section := named_sections(hint)) is not None:
            yield from _leaves(section, f"{prefix}{field.name}.NAME.")
        elif hint is not Any:
            owner = next(base for base in schema.__mro__ if field.name in base.__dict__.get("__annotations__", {}))
            yield prefix + field.name, owner, field, hint
            if (listed := listed_sections(hint)) is not None:
                yield from _leaves(listed, f"{prefix}{field.name}.N.")


def named_sections(hint: Any) -> type | None:
    """Of a section with names that a recipe chooses, `dict[str, EvalSet]`, the dataclass of each; else None."""
    inner: type | None = get_args(hint)[1] if get_origin(hint) is dict else None
    return inner if isinstance(inner, type) and is_dataclass(inner) else None


def listed_sections(hint: Any) -> type | None:
    """Of a list of sections, `list[ToolEntry]`, the dataclass of each; else None."""
    inner: type | None = get_args(hint)[0] if get_origin(hint) is list else None
    return inner if isinstance(inner, type) and is_dataclass(inner) else None


def is_list(hint: Any) -> bool:
    """Whether a key of this type takes a list: `list[str]`, `tuple[float, float] | None`."""
    return any(get_origin(part) in (list, tuple) for part in (hint, *get_args(hint) * (get_origin(hint) is not dict)))


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    keys: tuple[Key, ...]


def reference(tables: Mapping[str, Table]) -> list[Section]:
    """All keys there are, each once: those of every recipe by section, then what an environment, a reward and an
    algorithm add. What several of them share has its own section."""
    by_part: dict[str, list[Key]] = {"of a recipe": [_name_key(key, table) for key, table in tables.items()]}
    for entry in recipe_keys():
        part, _, rest = entry.name.partition(".")
        by_part.setdefault(f"`{part}`" if rest else "of a recipe", []).append(entry)
    sections = [Section(title, tuple(keys)) for title, keys in by_part.items()]
    sections.append(Section("of a stage", tuple(stage_keys())))
    for key, table in tables.items():
        shared: dict[type, tuple[list[str], dict[str, Key]]] = {}
        for name in table:
            for entry in choice_keys(key, table, name):
                names, keys = shared.setdefault(entry.owner, ([], {}))
                keys.setdefault(entry.name, entry)
                names.extend([name] * (name not in names))
        by_names: dict[str, dict[str, Key]] = {}
        for names, keys in shared.values():
            heading = f"`{key}.name`: {', '.join(names)}" if len(names) < len(table) else f"`{key}`"
            by_names.setdefault(heading, {}).update(keys)
        sections += [Section(heading, tuple(keys.values())) for heading, keys in by_names.items()]
    return sections


def _name_key(key: str, table: Table) -> Key:
    noun = {"env": "environment", "reward": "reward", "algorithm": "algorithm of rl stages"}[key]
    kind, meaning = f"one of {', '.join(table)}, or module.Class", f"Name of the {noun}."
    return Key(name=f"{key}.name", kind=kind, default=next(iter(table)), meaning=meaning, owner=RecipeConfig)


def values_of(config: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(name, value, default) of every key of a recipe, those of its environment, reward and algorithm too."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from values_of(value, f"{prefix}{field.name}.")
        else:
            default = field.default_factory() if field.default_factory is not MISSING else field.default
            yield prefix + field.name, value, default


@cache
def meanings_of(schema: type) -> Mapping[str, str]:
    """{field: the docstring below it}, of the class that declares it or of the next base that says something."""
    meanings: dict[str, str] = {}
    for base in reversed(schema.__mro__):
        if not is_dataclass(base):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                    meanings[node.target.id] = " ".join(str(following.value.value).split())
    return meanings


def kind_of(hint: Any) -> str:
    """What a value of this type is, for people: "a number", "one of 1, 2, 3"."""
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join("null" if argument is type(None) else kind_of(argument) for argument in arguments)
    if get_origin(hint) is dict:
        value = arguments[1]
        return f"keys, each with {PLAIN[value]}" if value in PLAIN else "keys and values"
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if listed_sections(hint) is not None:
        return "a list of keys and values"
    if get_origin(hint) in (tuple, list):
        listed = f"a list of {kind_of(arguments[0]).removeprefix('a ')}s"
        return listed if get_origin(hint) is list or Ellipsis in arguments else f"{listed}, {len(arguments)} of them"
    return PLAIN.get(hint, getattr(hint, "__name__", str(hint)))


def _default(field: Field[Any]) -> str:
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    if value is MISSING:
        return ""
    return str(plain(value))


def plain(value: Any) -> Any:
    """As YAML writes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return value if value and "\n" not in value and value == value.strip() else repr(value)
    return list(value) if isinstance(value, tuple) else value
