"""Layers merged into one recipe by OmegaConf, over its types and defaults; the error for a value that does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from functools import cache, lru_cache, reduce
from typing import Any

from cachetools import LRUCache
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from launch.config.keys import keys_of
from launch.config.layers import Layer, Raw, check_plain, over
from launch.config.scope import has
from rlsys.config.identity import config_key
from rlsys.config.recipe import RecipeConfig
from rlsys.config.window import WindowConfig
from rlsys.errors import BadInput


def merged_recipe(layers: Sequence[Layer], schemas: Mapping[str, type]) -> RecipeConfig:
    """The layers over the defaults. schemas: of `env`, `reward` and `algorithm`. Raises BadInput with the first layer
    that does not fit."""
    schema = _defaults(tuple(schemas.items()))
    try:
        window = OmegaConf.merge(schema.window, *(layer.values.get("window", {}) for layer in layers))
        given = reduce(over, (layer.values for layer in layers), _windowed(window, schemas))
        keys = [field.name for field in fields(RecipeConfig)]
        merged = {key: _merged(schema, key, schemas.get(key), given) for key in keys}
    except OmegaConfBaseException as error:
        raise _wrong_layer(error, schema, layers, schemas) from error
    try:
        return RecipeConfig(**{key: _made(part) for key, part in merged.items()})
    except BadInput as error:
        raise BadInput(f"config: {error}") from error
    except OmegaConfBaseException as error:
        cause = error.__cause__
        raise (cause if isinstance(cause, BadInput) else BadInput(f"config: {_one_line(error)}")) from error


# Stages of a recipe, and recipes that are read again, differ in few parts.
_MERGED: LRUCache[tuple[str, type | None, str], Any] = LRUCache(1024)


def _merged(defaults: DictConfig, key: str, schema: type | None, given: Raw) -> Any:
    """One part of a recipe, such as `learner`: what is given over what holds without it. Not to be changed.

    schema: of a part whose `name` picks one.
    """
    own = {key: given[key]} if key in given else {}
    asked = (key, schema, config_key(own))
    if asked not in _MERGED:
        found: Any = OmegaConf.unsafe_merge(OmegaConf.masked_copy(defaults, key), own)
        check_plain("config", OmegaConf.to_container(found))  # defaults of somebody else's environment too
        _MERGED[asked] = found[key]
    return _MERGED[asked]


def _made(part: Any) -> Any:
    return OmegaConf.to_object(part) if OmegaConf.is_config(part) else part


def _windowed(window: Any, schemas: Mapping[str, type]) -> Raw:
    """What `window` sets, as the lowest layer: of a reward only what it always has (an optional limit means more)."""
    found: WindowConfig = OmegaConf.to_object(window)  # type: ignore[assignment]
    has = {key: {each.name for each in fields(schema) if each.default is not None} for key, schema in schemas.items()}
    return {
        part: {key: value for key, value in values.items() if key in has.get(part, {key})}
        for part, values in found.sets().items()
    }


@lru_cache(maxsize=64)
def _defaults(schemas: tuple[tuple[str, type], ...]) -> DictConfig:
    """What layers are merged over: not to be changed."""
    defaults = deepcopy(_every_default())
    for key, schema in schemas:
        defaults[key] = OmegaConf.structured(schema)
    return defaults


@cache
def _every_default() -> DictConfig:
    """OmegaConf takes six times as long to make it as to copy it."""
    defaults = OmegaConf.structured(RecipeConfig)
    assert isinstance(defaults, DictConfig)
    OmegaConf.set_readonly(defaults, False)
    return defaults


def _wrong_layer(
    error: OmegaConfBaseException, schema: DictConfig, layers: Sequence[Layer], schemas: Mapping[str, type]
) -> BadInput:
    """The first layer that cannot be merged alone, and its value."""
    for layer in layers:
        try:
            OmegaConf.merge(schema, layer.values)
        except OmegaConfBaseException as alone:
            parts = {f"{key}.": of for key, of in schemas.items()}
            return BadInput(f"{layer.source}: {_wrong_value(alone, schema, layer.values, parts)}")
    return BadInput(f"config: {_one_line(error)}")


def _wrong_value(error: OmegaConfBaseException, schema: Any, values: Raw, parts: Mapping[str, type]) -> str:
    """`learner.lr='abc': expected a number`: the first value that cannot be merged alone."""
    for key in (each for prefix, of in {"": RecipeConfig, **parts}.items() for each in keys_of(of, prefix)):
        if has(values, key.name):
            path = key.name.split(".")
            value = reduce(lambda found, part: found[part], path, values)
            try:
                OmegaConf.merge(schema, reduce(lambda inner, part: {part: inner}, reversed(path), value))
            except OmegaConfBaseException:
                return f"{key.name}={value!r}: expected {key.kind}"
    return _one_line(error)


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).split("\n") if line.strip()]
    full_key = next((line.removeprefix("full_key: ") for line in lines if line.startswith("full_key:")), None)
    return f"{full_key}: {lines[0]}" if full_key else lines[0]
