"""`envs`, the list of environments of a stage: what the layers say of it, and the layers of each of them alone.

    envs: [{name: questions, label: sums, weight: 2, max_terms: 3, reward: {...}, curriculum: {...}}, {...}]

An entry has the keys of `env`, and a label, a weight, a reward and a curriculum. `reward` and `curriculum` outside of
the list are below those of the entries. A later layer replaces the list, changes entries of it by their names
(`envs.sums.weight=2`), picks one of them, whose stage then has one environment (`envs=sums`), or names another one in
their place (`env.name=graph`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from envs.mixture import MixtureConfig
from launch.config.layers import Layer
from rlsys.config.curriculum import CurriculumConfig
from rlsys.config.envs import EnvShare
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, nearest

SECTIONS = ("reward", "curriculum")
KEYS = tuple(field.name for field in fields(EnvShare) if field.name != "env")  # of an entry, and not of its `env`
EXAMPLE = "keys and values, such as {name: calculator, weight: 1}"
Entries = dict[str, tuple[Layer, ...]]  # by name: what the layers say of each, the first one in the list itself


@dataclass(frozen=True, slots=True)
class Part:
    """One environment of a stage; of a stage with one its name is ""."""

    name: str
    layers: tuple[Layer, ...]  # what its recipe is merged from
    weight: float = 1.0


def parts_of(layers: Sequence[Layer]) -> list[Part]:
    """The environments of what the layers say together. Raises BadInput where they contradict each other."""
    found, begin = _entries(layers)
    plain = tuple(map(_without_envs, layers))
    if found is None:
        return [Part("", plain)]
    _check_read(layers[begin:], found)
    below = tuple(Layer(each.source, {k: v for k, v in each.values.items() if k != "env"}) for each in plain)
    parts = [_part(name, below, own) for name, own in found.items()]
    return parts if len(parts) > 1 else [Part("", parts[0].layers)]


def _part(name: str, below: tuple[Layer, ...], own: Sequence[Layer]) -> Part:
    layers: list[Layer] = []
    weight: Any = 1.0
    for layer in own:
        env = {key: value for key, value in layer.values.items() if key not in KEYS}
        sections = {key: layer.values[key] for key in SECTIONS if layer.values.get(key) is not None}
        weight = layer.values.get("weight", weight)
        layers.append(Layer(layer.source, {"env": env, **sections}))
    if not isinstance(weight, (int, float)) or isinstance(weight, bool):
        raise BadInput(where=own[-1].source, key="weight", found=weight, expected="a number above 0")
    return Part(name, (*below, *layers), float(weight))


def _without_envs(layer: Layer) -> Layer:
    """A run's own config.yaml has null for what is in the list."""
    if "envs" not in layer.values:
        return layer
    kept = {k: v for k, v in layer.values.items() if k != "envs" and (v is not None or k not in ("env", "reward"))}
    return Layer(layer.source, kept)


def _entries(layers: Sequence[Layer]) -> tuple[Entries | None, int]:
    """None where one environment is meant; and which layer has the list."""
    found: Entries | None = None
    begin = 0
    for at, layer in enumerate(layers):
        env, envs = layer.values.get("env"), layer.values.get("envs")
        if env and envs:
            what = "one environment and several are given"
            raise BadInput(what, where=layer.source, key="env and envs", expected="one of the two")
        if isinstance(envs, list):
            found, begin = _read(layer.source, envs), at
        elif isinstance(envs, str):
            found = {envs: _known(layer.source, envs, found)[envs]}
        elif isinstance(envs, dict):
            found = _changed(layer.source, envs, found)
        elif envs is not None:
            expected = "a list of environments, each with its name, or the name of one of them"
            raise BadInput(where=layer.source, key="envs", found=envs, expected=expected)
        elif "envs" in layer.values:
            found = None
        if env and found is not None:
            _check_named(layer.source, env, found)
            found = None
    return found, begin


def _check_named(source: str, env: Any, found: Entries) -> None:
    """A named environment stands in the place of several; a key alone does not say of which of them it is."""
    if not isinstance(env, dict) or "name" not in env:
        key = f".{next(iter(env))}" if isinstance(env, dict) else ""
        ways = " or ".join(f"envs.{name}{key}" for name in found)
        raise BadInput("there are several environments", where=source, key=f"env{key}", expected=ways)


def _read(source: str, given: Sequence[Any]) -> Entries:
    found: Entries = {}
    for at, entry in enumerate(given):
        if not isinstance(entry, dict):
            raise BadInput(where=source, key=f"envs.{at}", found=entry, expected=EXAMPLE)
        if not isinstance(entry.get("name"), str):
            raise BadInput("no name", where=source, key=f"envs.{at}", expected=EXAMPLE)
        name = entry.get("label") or entry["name"].rpartition(".")[2]  # of a class of the user's own
        if not isinstance(name, str) or not all(letter.isalnum() or letter in "-_" for letter in name):
            plain = "letters, digits, - and _ : it stands in task ids and metrics"
            raise BadInput(where=source, key=f"envs.{at}.label", found=name, expected=plain)
        if name in found:
            raise BadInput(f"two are called {name!r}", where=source, key="envs", expected="a label for one of them")
        found[name] = (Layer(f"{source}: envs.{name}", entry),)
    if not found:
        raise BadInput("it is empty", where=source, key="envs", expected="at least one environment, or env")
    return found


def _changed(source: str, given: Mapping[str, Any], found: Entries | None) -> Entries:
    changed = dict(found or {})
    for name, change in given.items():
        where = f"envs.{name}"
        _known(source, name, found)
        if change is None:
            del changed[name]
        elif not isinstance(change, dict):
            raise BadInput(where=source, key=where, found=change, expected="keys and values, or null to leave it out")
        elif "label" in change:
            raise BadInput("it has its name", where=source, key=f"{where}.label", expected="it in the list")
        else:
            changed[name] = (*changed[name], Layer(f"{source}: {where}", change))
    if not changed:
        raise BadInput("no environment is left", where=source, key="envs", expected="at least one")
    return changed


def _known(source: str, name: str, found: Entries | None) -> Entries:
    if found is None:
        expected = f"one that says `envs: [{{name: ...}}, ...]`, or {EXAMPLE} in such a list"
        raise BadInput("the recipe has no list of environments", where=source, key=f"envs.{name}", expected=expected)
    if name not in found:
        raise BadInput(f"no environment {name!r}{nearest(name, found)}", where=source, key="envs")
    return found


def _check_read(layers: Sequence[Layer], found: Entries) -> None:
    """Raises BadInput for a reward next to the list, or in a later layer, where every entry names its own."""
    sections = [[layer.values.get("reward") for layer in own] for own in found.values()]
    named = all(any(isinstance(each, dict) and "name" in each for each in own) for own in sections)
    given = next((layer for layer in layers if layer.values.get("reward")), None)
    if named and given is not None and len(found) > 1:
        ways = " or ".join(f"envs.{name}.reward" for name in found)
        raise BadInput("no environment reads it: each has its own", where=given.source, key="reward", expected=ways)


def mix(parts: Sequence[Part], recipes: Mapping[str, RecipeConfig]) -> RecipeConfig:
    """The recipe of several environments. recipes: of each alone, by name. Raises BadInput for a weight."""
    shares: dict[str, EnvShare] = {}
    for part in parts:
        own = recipes[part.name]
        taken = [field.name for field in fields(own.env) if field.name in KEYS]
        if taken:
            what = f"the environment has a key {taken[0]!r} of its own, which an entry of a list cannot set"
            raise BadInput(what, where=part.layers[-1].source, expected="it alone, with env")
        try:
            shares[part.name] = EnvShare(
                label=part.name, weight=part.weight, env=own.env, reward=own.reward, curriculum=own.curriculum
            )
        except BadInput as error:
            raise BadInput(error, where=part.layers[-1].source) from error
    world = MixtureConfig(parts={name: share.env for name, share in shares.items()})
    first = recipes[parts[0].name]
    sets = {name: recipes.get(name, first).eval.sets[name] for name in first.eval.sets}  # each over its environment
    evaluated = replace(first.eval, sets=sets)
    return replace(first, env=world, reward=None, curriculum=CurriculumConfig(), envs=shares, eval=evaluated)


def require_one(recipe: RecipeConfig, what: str) -> None:
    """Raises BadInput where `what` ("rlsys play knows") one environment and the recipe has several."""
    if recipe.envs:
        ways = " or ".join(f"envs={name}" for name in recipe.envs)
        raise BadInput(f"{what} one environment", key="envs", found=", ".join(recipe.envs), expected=ways)


def written(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as a dictionary, with `envs` as the list that it is read from."""
    if not recipe["envs"]:
        return {key: value for key, value in recipe.items() if key != "envs"}
    entries = [
        {**share["env"], "label": name, **{key: share[key] for key in ("weight", *SECTIONS)}}
        for name, share in recipe["envs"].items()
    ]
    return {**recipe, "env": None, "reward": None, "envs": entries}
