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
    entries, begin = _entries(layers)
    plain = tuple(map(_without_envs, layers))
    if entries is None:
        return [Part("", plain)]
    _check_read(layers[begin:], entries)
    below = tuple(Layer(layer.source, {k: v for k, v in layer.values.items() if k != "env"}) for layer in plain)
    parts = [_part(name, below, entry_layers) for name, entry_layers in entries.items()]
    return parts if len(parts) > 1 else [Part("", parts[0].layers)]


def _part(name: str, below: tuple[Layer, ...], entry_layers: Sequence[Layer]) -> Part:
    layers: list[Layer] = []
    weight: Any = 1.0
    for layer in entry_layers:
        env = {key: value for key, value in layer.values.items() if key not in KEYS}
        sections = {key: layer.values[key] for key in SECTIONS if layer.values.get(key) is not None}
        weight = layer.values.get("weight", weight)
        layers.append(Layer(layer.source, {"env": env, **sections}))
    if not isinstance(weight, (int, float)) or isinstance(weight, bool):
        raise BadInput(where=entry_layers[-1].source, key="weight", found=weight, expected="a number above 0")
    return Part(name, (*below, *layers), float(weight))


def _without_envs(layer: Layer) -> Layer:
    """A run's own config.yaml has null for what is in the list."""
    if "envs" not in layer.values:
        return layer
    values = {k: v for k, v in layer.values.items() if k != "envs" and (v is not None or k not in ("env", "reward"))}
    return Layer(layer.source, values)


def _entries(layers: Sequence[Layer]) -> tuple[Entries | None, int]:
    """The entries of the list, None where the stage has one environment; and the index of the layer that has it."""
    entries: Entries | None = None
    begin = 0
    for at, layer in enumerate(layers):
        env, envs = layer.values.get("env"), layer.values.get("envs")
        if env and envs:
            problem = "one environment and several are given"
            raise BadInput(problem, where=layer.source, key="env and envs", expected="one of the two")
        if isinstance(envs, list):
            entries, begin = _read(layer.source, envs), at
        elif isinstance(envs, str):
            entries = {envs: _check_entry(layer.source, envs, entries)[envs]}
        elif isinstance(envs, dict):
            entries = _apply_changes(layer.source, envs, entries)
        elif envs is not None:
            expected = "a list of environments, each with its name, or the name of one of them"
            raise BadInput(where=layer.source, key="envs", found=envs, expected=expected)
        elif "envs" in layer.values:
            entries = None
        if env and entries is not None:
            _check_named(layer.source, env, entries)
            entries = None
    return entries, begin


def _check_named(source: str, env: Any, entries: Entries) -> None:
    """A named environment stands in the place of several; a key alone does not say of which of them it is."""
    if not isinstance(env, dict) or "name" not in env:
        key = f".{next(iter(env))}" if isinstance(env, dict) else ""
        ways = " or ".join(f"envs.{name}{key}" for name in entries)
        raise BadInput("there are several environments", where=source, key=f"env{key}", expected=ways)


def _read(source: str, raw_entries: Sequence[Any]) -> Entries:
    entries: Entries = {}
    for at, entry in enumerate(raw_entries):
        if not isinstance(entry, dict):
            raise BadInput(where=source, key=f"envs.{at}", found=entry, expected=EXAMPLE)
        if not isinstance(entry.get("name"), str):
            raise BadInput("no name", where=source, key=f"envs.{at}", expected=EXAMPLE)
        name = entry.get("label") or entry["name"].rpartition(".")[2]  # of a class of the user's own
        if not isinstance(name, str) or not all(letter.isalnum() or letter in "-_" for letter in name):
            plain = "letters, digits, - and _ : it stands in task ids and metrics"
            raise BadInput(where=source, key=f"envs.{at}.label", found=name, expected=plain)
        if name in entries:
            raise BadInput(f"two are called {name!r}", where=source, key="envs", expected="a label for one of them")
        entries[name] = (Layer(f"{source}: envs.{name}", entry),)
    if not entries:
        raise BadInput("it is empty", where=source, key="envs", expected="at least one environment, or env")
    return entries


def _apply_changes(source: str, changes: Mapping[str, Any], entries: Entries | None) -> Entries:
    changed = dict(entries or {})
    for name, change in changes.items():
        where = f"envs.{name}"
        _check_entry(source, name, entries)
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


def _check_entry(source: str, name: str, entries: Entries | None) -> Entries:
    if entries is None:
        expected = f"one that says `envs: [{{name: ...}}, ...]`, or {EXAMPLE} in such a list"
        raise BadInput("the recipe has no list of environments", where=source, key=f"envs.{name}", expected=expected)
    if name not in entries:
        raise BadInput(f"no environment {name!r}{nearest(name, entries)}", where=source, key="envs")
    return entries


def _check_read(layers: Sequence[Layer], entries: Entries) -> None:
    """Raises BadInput for a reward next to the list, or in a later layer, where every entry names its own."""
    sections = [[layer.values.get("reward") for layer in entry_layers] for entry_layers in entries.values()]
    all_named = all(any(isinstance(reward, dict) and "name" in reward for reward in rewards) for rewards in sections)
    culprit = next((layer for layer in layers if layer.values.get("reward")), None)
    if all_named and culprit is not None and len(entries) > 1:
        ways = " or ".join(f"envs.{name}.reward" for name in entries)
        raise BadInput("no environment reads it: each has its own", where=culprit.source, key="reward", expected=ways)


def mix(parts: Sequence[Part], recipes: Mapping[str, RecipeConfig]) -> RecipeConfig:
    """The recipe of several environments. recipes: of each alone, by name. Raises BadInput for a weight."""
    shares: dict[str, EnvShare] = {}
    for part in parts:
        recipe = recipes[part.name]
        clashes = [field.name for field in fields(recipe.env) if field.name in KEYS]
        if clashes:
            problem = f"the environment has a key {clashes[0]!r} of its own, which an entry of a list cannot set"
            raise BadInput(problem, where=part.layers[-1].source, expected="it alone, with env")
        try:
            shares[part.name] = EnvShare(
                label=part.name, weight=part.weight, env=recipe.env, reward=recipe.reward, curriculum=recipe.curriculum
            )
        except BadInput as error:
            raise BadInput(error, where=part.layers[-1].source) from error
    world = MixtureConfig(parts={name: share.env for name, share in shares.items()})
    first = recipes[parts[0].name]
    sets = {name: recipes.get(name, first).eval.sets[name] for name in first.eval.sets}  # each over its environment
    evaluated = replace(first.eval, sets=sets)
    return replace(first, env=world, reward=None, curriculum=CurriculumConfig(), envs=shares, eval=evaluated)


def require_one(recipe: RecipeConfig, subject: str) -> None:
    """Raises BadInput where `subject` ("rlsys play knows") one environment and the recipe has several."""
    if recipe.envs:
        ways = " or ".join(f"envs={name}" for name in recipe.envs)
        raise BadInput(f"{subject} one environment", key="envs", found=", ".join(recipe.envs), expected=ways)


def to_dict(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe as a dictionary, with `envs` as the list that it is read from."""
    if not recipe["envs"]:
        return {key: value for key, value in recipe.items() if key != "envs"}
    entries = [
        {**share["env"], "label": name, **{key: share[key] for key in ("weight", *SECTIONS)}}
        for name, share in recipe["envs"].items()
    ]
    return {**recipe, "env": None, "reward": None, "envs": entries}
