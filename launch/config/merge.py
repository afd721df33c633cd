"""Layers merged into one recipe by OmegaConf, over its types and defaults; the error for a value that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache, reduce
from typing import Any

from cachetools import LRUCache
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs import REWARDS, WORLDS
from launch.config.keys import Key, keys_of
from launch.config.layers import Layer, check_plain
from launch.config.scope import has
from rlsys.choices import choose
from rlsys.config.identity import config_key
from rlsys.config.mappings import Over, Raw, Removals, clear, mappings_of
from rlsys.config.recipe import RecipeConfig
from rlsys.config.window import WindowConfig
from rlsys.errors import BadInput

OWN = {"env": WORLDS, "reward": REWARDS}  # what an evaluation set may have of its own


def merge_recipe(layers: Sequence[Layer], schemas: Mapping[str, type], removals: Removals) -> RecipeConfig:
    """The layers over the defaults. schemas: of `env`, `reward` and `algorithm`. removals: notes the entries that the
    layers leave out. Raises BadInput with the first layer that does not fit."""
    try:
        window = _part("window", None, {"window": _lay(layers, {}, {}).get("window", {})}).made
        below = [Layer("", _default_mappings(*pair)) for pair in schemas.items()]
        below.append(Layer("window", _window_values(window, schemas)))
        every = [*below, *layers]
        values = _lay(every, {}, schemas, removals)
        values |= _lay_sets(every, values, schemas, removals)
        parts = {field.name: _part(field.name, schemas.get(field.name), values) for field in fields(RecipeConfig)}
    except OmegaConfBaseException as error:
        raise _wrong_layer(error, layers, schemas) from error
    try:
        # What is chosen by name may be a user's class that changes itself: each recipe has its own copy.
        return RecipeConfig(
            **{key: deepcopy(part.made) if key in schemas else part.made for key, part in parts.items()}
        )
    except BadInput as error:
        raise BadInput(error, where="config") from error
    except OmegaConfBaseException as error:
        raise BadInput(f"config: {_one_line(error)}") from error


@dataclass(frozen=True)
class _Part:
    """One part of a recipe, such as `learner`: what is given over what holds without it. Not to be changed."""

    key: str
    merged: DictConfig

    @cached_property
    def made(self) -> Any:
        return OmegaConf.to_object(self.merged)[self.key]  # type: ignore[index,call-overload]


# Stages of a recipe, and recipes that are read again, differ in few parts.
_PARTS: LRUCache[tuple[str, type | None, str], _Part] = LRUCache(1024)


def _part(key: str, schema: type | None, values: Raw) -> _Part:
    """schema: of a part whose `name` picks one."""
    section = {key: values[key]} if key in values else {}
    cache_key = (key, schema, config_key(section))
    if cache_key not in _PARTS:
        default = _default(key, schema)
        if _default_mappings(key, schema):  # which are below what is given already
            default = deepcopy(default)
            clear(default, section, RecipeConfig, {key: schema} if schema else {})
        merged = OmegaConf.merge(default, section)
        if section:
            check_plain("config", OmegaConf.to_container(merged))  # a text may have become a number: "inf"
        _PARTS[cache_key] = _Part(key, merged)  # type: ignore[arg-type]
    return _PARTS[cache_key]


def _lay(
    layers: Sequence[Layer],
    base: Raw,
    schemas: Mapping[str, type],
    removals: Removals | None = None,
    below: Raw | None = None,
) -> Raw:
    """The layers over `base`, as `rlsys.config.mappings` says."""
    noted = removals or Removals()
    return reduce(
        lambda laid, layer: Over(schemas, layer.source, noted, below or {}).lay(laid, layer.values, RecipeConfig),
        layers,
        base,
    )


def _lay_sets(layers: Sequence[Layer], values: Raw, schemas: Mapping[str, type], removals: Removals) -> Raw:
    """{"eval": ..} merged again with the types of the `env` and `reward` that sets have of their own, so that a dotted
    key changes one entry of a mapping in them too: of the recipe's mapping where the set gives none."""
    types: dict[str, type] = {}
    below: Raw = {}
    for name, eval_set in (values.get("eval", {}).get("sets") or {}).items():
        for key, table in OWN.items():
            section = (eval_set or {}).get(key)
            if (
                key not in schemas
                or not isinstance(section, dict)
                or not any(isinstance(entry, dict) for entry in section.values())
            ):
                continue
            try:
                schema = choose(key, table, section["name"]).schema if "name" in section else schemas[key]
            except BadInput:
                continue  # where the set is made it is named
            types[f"eval.sets.{name}.{key}"] = schema
            defaults = values if schema is schemas[key] else _default_mappings(key, schema)
            below.setdefault(name, {})[key] = mappings_of(defaults.get(key, {}), schema, {})
    if not types:
        return {}
    ours = [Layer(layer.source, {"eval": layer.values["eval"]}) for layer in layers if "eval" in layer.values]
    return _lay(ours, {}, {**schemas, **types}, removals, {"eval": {"sets": below}})


def _window_values(window: WindowConfig, schemas: Mapping[str, type]) -> Raw:
    """What `window` sets, as the lowest layer: of a reward only what it always has (an optional limit means more)."""
    has = {key: {attr.name for attr in fields(schema) if attr.default is not None} for key, schema in schemas.items()}
    return {
        part: {key: value for key, value in values.items() if key in has.get(part, {key})}
        for part, values in window.sets().items()
    }


@lru_cache(maxsize=256)  # texts of parts: few differ between stages
def _default(key: str, schema: type | None) -> DictConfig:
    """What layers are merged over, of one part of a recipe: not to be changed."""
    default = OmegaConf.masked_copy(_every_default(), key)
    if schema is not None:
        default[key] = OmegaConf.structured(schema)
        check_plain("config", OmegaConf.to_container(default))  # of a user's own environment too
    return default


@lru_cache(maxsize=256)  # as many as `_default` keeps
def _default_mappings(key: str, schema: type | None) -> Raw:
    """Mappings with entries among the defaults of a part: a user's own class may have some."""
    values = OmegaConf.to_container(_default(key, schema))
    return mappings_of(values, RecipeConfig, {key: schema} if schema else {})  # type: ignore[arg-type]


@cache
def _every_default() -> DictConfig:
    """OmegaConf takes six times as long to make it as to copy it."""
    defaults = OmegaConf.structured(RecipeConfig)
    assert isinstance(defaults, DictConfig)
    OmegaConf.set_readonly(defaults, False)
    return defaults


def _wrong_layer(error: OmegaConfBaseException, layers: Sequence[Layer], schemas: Mapping[str, type]) -> BadInput:
    """The first layer that cannot be merged alone, and its value."""
    schema = deepcopy(_every_default())
    for key, part_schema in schemas.items():
        schema[key] = OmegaConf.structured(part_schema)
    for layer in layers:
        try:
            values = _lay([layer], {}, schemas)
            OmegaConf.merge(schema, values)
        except OmegaConfBaseException as alone:
            parts = {f"{key}.": of for key, of in schemas.items()}
            return BadInput(_wrong_value(alone, schema, values, parts), where=layer.source)
    return BadInput(f"config: {_one_line(error)}")


def _wrong_value(error: OmegaConfBaseException, schema: Any, values: Raw, parts: Mapping[str, type]) -> str:
    """`learner.lr='abc': expected a number`: the first value that cannot be merged alone."""
    keys = {key.name: key for prefix, of in {"": RecipeConfig, **parts}.items() for key in keys_of(of, prefix)}
    for name, key in keys.items():
        if has(values, name):
            value = reduce(lambda section, part: section[part], name.split("."), values)
            if not _fits(schema, name, value):
                return _wrong_entry(schema, name, value, keys) or f"{name}={value!r}: expected {key.kind}"
    return _one_line(error)


def _wrong_entry(schema: Any, name: str, value: Any, keys: Mapping[str, Key]) -> str:
    """The same of the first key in a list of sections, `env.tools.0.workers='x'`; "" where there is none."""
    inside = {path.removeprefix(f"{name}.N."): key for path, key in keys.items() if path.startswith(f"{name}.N.")}
    for at, entry in enumerate(value if isinstance(value, list) else ()):
        for field, key in inside.items():
            if isinstance(entry, dict) and field in entry and not _fits(schema, name, [{field: entry[field]}]):
                return f"{name}.{at}.{field}={entry[field]!r}: expected {key.kind}"
    return ""


def _fits(schema: Any, name: str, value: Any) -> bool:
    try:
        OmegaConf.merge(schema, reduce(lambda inner, part: {part: inner}, reversed(name.split(".")), value))
    except OmegaConfBaseException:
        return False
    return True


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    full_key = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key:")), None)
    return f"{full_key}: {lines[0]}" if full_key else lines[0]
