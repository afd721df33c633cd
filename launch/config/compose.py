"""From YAML and `key=value` to one checked RunConfig.

Precedence: defaults < `extends` < file < a stage's own keys < command line. Each layer is checked on its own against
the schema, so an error names the layer it came from. `env`, `reward` and `algorithm` hold the dataclass that `name`
picks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, get_origin, get_type_hints

import yaml

from actors.vllm_arguments import check_arguments
from envs import REWARDS, WORLDS
from launch.config import scope
from launch.config.adapters import with_adapters
from launch.config.figures import find_foreign, without_figures
from launch.config.keys import is_list, kind_of, known_names, listed_sections, named_sections
from launch.config.layers import (
    Layer,
    StageEntry,
    find_config,
    is_written,
    parse_overrides,
    read_config_layers,
)
from launch.config.mixture import mix, parts_of, require_one, to_dict
from launch.config.placement import check_placement
from launch.config.synonyms import suggest_key
from launch.driver.evaluation.sets import check_sets
from launch.driver.stages import STAGES
from launch.driver.stages.base import STAGE_KEYS, Stage, StageKeys, check_mixes, check_name, check_optimizer, stage_of
from launch.driver.stages.reads import holds
from learners.algorithms import ALGORITHMS
from rlsys.choices import Table, add_search_paths, choose
from rlsys.config.mappings import Raw, Removals
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, nearest

CHOSEN: dict[str, Table] = {"env": WORLDS, "reward": REWARDS}
TABLES: dict[str, Table] = {**CHOSEN, "algorithm": ALGORITHMS}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSource:
    """One entry of `stages`, as the files and the command line have it."""

    where: str  # how an error line begins: "quickstart: stages.rl"
    name: str
    head: StageKeys
    layers: tuple[Layer, ...]  # all that is merged for this stage, in order
    own: tuple[Layer, ...]  # those of them that speak to this stage alone; not what a run has written
    of_kind: tuple[Layer, ...]  # and those of them that know its kind: not a file's, where the command line has another


def compose(config: str, overrides: Sequence[str], *, saved: bool = False, served: str | None = None) -> RunConfig:
    """Read, merge, check. Raises BadInput with one line.

    saved: the file is a run's own, which a rule that is younger than the run may not refuse. served: name of the model
    behind an address that plays, where it is not `model.path`.
    """
    layers, stages, command_line = _read(config, overrides, served)
    _check_choices(command_line, layers, stages)
    removals = Removals()
    recipe = _recipe(layers, None, removals)
    if not stages:
        raise BadInput("no stages", where=config, expected="a list such as [{name: rl, kind: rl, steps: 100}]")
    built: list[StageConfig] = []
    for source in stages:
        kind = source.head.kind
        if not isinstance(kind, str) or kind not in STAGES:
            hint = nearest(str(kind), STAGES)
            raise BadInput(key=f"{source.where}.kind", found=kind, expected=f"one of {', '.join(STAGES)}{hint}")
        stage = stage_of(kind)
        for layer in source.own if not saved else ():
            scope.check_scope(source.where, layer.values)
        recipe_here = _recipe(source.layers, stage, removals)
        for layer in source.of_kind if not saved else ():
            scope.check_reads(source.where, layer.values, source.head, recipe_here, [entry.head for entry in stages])
        if not saved:
            check_name(source.where, source.head)
            check_mixes(source.where, source.head, recipe_here)
            for part in parts_of(source.layers):
                view, where = recipe_here.by_env[part.name], source.where + f": envs.{part.name}" * bool(part.name)
                stage.check(where, source.head, view)
                scope.check_unread(where, part.layers, view, written=is_written(source.layers))
            check_optimizer(source.where, source.head, recipe_here, built)
            check_sets(source.where, recipe_here)
        built.append(stage.build(source.where, source.head, recipe_here, built))
    removals.check()
    names = [source.name for source in stages]
    if len(set(names)) != len(names):
        raise BadInput(f"stages need different names, found {', '.join(names)}", where=config)
    if not saved:
        check_arguments(recipe.engine.vllm)
        for recipe_here in (recipe, *(stage.config for stage in built)):
            check_placement(recipe_here)
    return RunConfig(recipe=recipe, stages=tuple(with_adapters(recipe, built)))


def _check_choices(command_line: Sequence[Layer], layers: Sequence[Layer], stages: Sequence[StageSource]) -> None:
    """What the command line says of the environment and the reward, against what holds in each stage.

    command_line: its layers."""
    tables = {key: table for key, table in CHOSEN.items() if any(key in layer.values for layer in command_line)}
    sources = [source for source in stages if source.head.kind in STAGES]
    if not tables:
        return
    cases = [(None, layers, None), *((source.name, source.layers, stage_of(source.head.kind)) for source in sources)]
    choices = [
        scope.Picked(name, {key: _choose_name(key, table, part.layers, stage) for key, table in tables.items()})
        for name, case_layers, stage in cases
        for part in parts_of(case_layers)
    ]
    for layer in command_line:
        scope.check_choices(layer.values, choices, tables)
    scope.say_left_out([(layer.source, layer.values) for layer in layers], tables)


def last_recipe(config: str, overrides: Sequence[str]) -> RecipeConfig:
    """What holds in the last stage, the one that the recipe ends in, to score with. Raises BadInput for several
    environments.

    Its tasks and its data are not looked at, and its algorithm is left out.
    """
    recipe = _last_recipe(config, overrides)
    require_one(recipe, "rlsys score and rlsys play know")
    return recipe


def _last_recipe(config: str, overrides: Sequence[str]) -> RecipeConfig:
    layers, stages, _ = _read(config, overrides)
    kind = stages[-1].head.kind if stages else None
    removals = Removals()
    recipe = _recipe(
        stages[-1].layers if stages else layers, stage_of(kind) if kind in STAGES else None, removals, CHOSEN
    )
    removals.check()
    return recipe


def _read(
    config: str, overrides: Sequence[str], served: str | None = None
) -> tuple[list[Layer], list[StageSource], list[Layer]]:
    """What holds everywhere, and the stages; and of the former what the command line says.

    Keys are checked as far as that takes no algorithm and no environment."""
    path = find_config(config)
    add_search_paths(path)
    files, stages = read_config_layers(path, seen=())
    everywhere, by_stage = parse_overrides(overrides, stages)
    command_line = [Layer("command line", values) for values in everywhere]
    given_here = [*everywhere, *(values for edits in by_stage.values() for values in edits or ())]
    removed = [index for index, edits in by_stage.items() if edits is None]
    kinds = {index: StageEntry(tuple(edits)).get("kind") for index, edits in by_stage.items() if edits is not None}
    replaced = [index for index, kind in kinds.items() if kind not in (None, stages[index].get("kind"))]
    foreign = find_foreign(files, stages, given_here, removed=removed, replaced=replaced, served=served)
    sources: list[StageSource] = []
    for index, stage in enumerate(stages):
        where, name = f"{config}: stages.{stage.get('name', index)}", stage.label
        edits = by_stage.get(index, [])
        if edits is None:
            continue
        file_layers, cli_layers = (
            [Layer(source, {key: value for key, value in raw.items() if key not in STAGE_KEYS}) for raw in values]
            for source, values in ((where, stage.layers), (f"command line: stages.{name}", edits))
        )
        entry = StageEntry((*stage.layers, *edits))
        head = StageKeys(**{key: entry.get(key) for key in STAGE_KEYS})
        layers = (*files, *file_layers, without_figures(foreign, (*files, *file_layers)), *command_line, *cli_layers)
        checked = tuple(cli_layers) if is_written(files) else (*file_layers, *cli_layers)
        of_kind = checked if head.kind == stage.get("kind") else tuple(cli_layers)
        sources.append(StageSource(where=where, name=name, head=head, layers=layers, own=checked, of_kind=of_kind))
    for layer in (*files, *command_line, *(layer for source in sources for layer in source.own)):
        _check_keys(layer.source, layer.values, RecipeConfig, {}, "")
    return [*files, without_figures(foreign, files), *command_line], sources, command_line


def _recipe(
    layers: Sequence[Layer], stage: Stage | None, removals: Removals, tables: Mapping[str, Table] = TABLES
) -> RecipeConfig:
    """Merge layers over the defaults. For a stage, its kind decides the algorithm that nothing names."""
    parts = parts_of(layers)
    recipes = {part.name: _recipe_of_one(part.layers, stage, removals, tables) for part in parts}
    return mix(parts, recipes) if len(parts) > 1 else recipes[""]


def _recipe_of_one(
    layers: Sequence[Layer], stage: Stage | None, removals: Removals, tables: Mapping[str, Table]
) -> RecipeConfig:
    """With one environment."""
    names = {key: _choose_name(key, table, layers, stage) for key, table in tables.items()}
    schemas = {key: choose(key, tables[key], name).schema for key, name in names.items()}
    used_layers: list[Layer] = []
    for layer in layers:
        values = {key: value for key, value in layer.values.items() if key in tables or key not in TABLES}
        for key, name in names.items():
            part = values.get(key)
            if isinstance(part, dict) and part.get("name", name) != name:
                # It belongs to another algorithm, environment or reward than the one that holds here.
                values[key] = scope.carry_over_keys(key, name, schemas[key], part)
            elif key == "algorithm" and isinstance(part, dict) and "name" not in part and not _fits(part, schemas[key]):
                if stage is not None and _fits_any(key, part):
                    del values[key]  # `algorithm.clip_low=0.1` on the command line speaks to the rl stages only
        _check_keys(layer.source, values, RecipeConfig, schemas, "")
        used_layers.append(Layer(layer.source, values))
    from launch.config.merge import merge_recipe  # OmegaConf behind it: the help of a command goes without

    return merge_recipe(used_layers, schemas, removals)


def _choose_name(key: str, table: Table, layers: Sequence[Layer], stage: Stage | None) -> str:
    name, source = None, ""
    for layer in layers:
        part = layer.values.get(key)
        if part is None:
            continue
        if not isinstance(part, dict):
            raise BadInput(
                where=layer.source,
                key=key,
                found=part,
                expected=f"keys and values, such as {key}.name={next(iter(table))}",
            )
        of_rl_only = key == "algorithm" and stage is not None and not stage.recipe_algorithm
        if part.get("name") is not None and not (of_rl_only and ": stages." not in layer.source):
            name, source = part["name"], layer.source
    if name is None:
        name = stage.algorithm if key == "algorithm" and stage is not None else next(iter(table))
    if not isinstance(name, str):
        raise BadInput(
            where=source, key=f"{key}.name", found=name, expected=f"one of {', '.join(table)}, or module.Class"
        )
    try:
        choose(key, table, name)
    except BadInput as error:
        raise BadInput(error, where=source) from error
    return name


def _fits(part: Raw, schema: type) -> bool:
    return set(part) <= {field.name for field in fields(schema)}


def _fits_any(key: str, part: Raw) -> bool:
    return any(_fits(part, choose(key, TABLES[key], name).schema) for name in TABLES[key])


def _check_keys(source: str, values: Mapping[str, Any], schema: type, parts: Mapping[str, type], prefix: str) -> None:
    """Unknown keys, with the full key and the one that was probably meant. parts: of `env`, `reward`, `algorithm`."""
    hints = _types(schema)
    for key, value in values.items():
        if key == "envs" and not prefix:
            continue  # checked as what it stands for, a recipe for each
        if key not in hints:
            full_key = _first_key(f"{prefix}{key}", value)
            valid_keys = [*[*STAGE_KEYS] * (": stages." in source), *known_names(TABLES, parts)]
            listed = f" (`rlsys config {prefix.rstrip('.')}".rstrip() + "` lists the keys)"
            raise BadInput(f"unknown key{suggest_key(full_key, valid_keys) or listed}", where=source, key=full_key)
        inner = parts.get(prefix + key, hints[key])
        if isinstance(inner, type) and is_dataclass(inner):
            if not isinstance(value, dict):
                raise BadInput(where=source, key=f"{prefix}{key}", found=value, expected="keys and values")
            _check_keys(source, value, inner, parts, f"{prefix}{key}.")
        elif isinstance(value, list) and get_origin(hints[key]) is dict:  # OmegaConf would not say which
            raise BadInput(where=source, key=f"{prefix}{key}", found=value, expected=kind_of(hints[key]))
        elif (section_type := named_sections(hints[key])) is not None and isinstance(value, dict):
            for name, section in value.items():
                where = f"{prefix}{key}.{name}"
                if section is None:
                    continue  # it is left out
                if not isinstance(section, dict):
                    expected = "keys and values, or null to leave it out"
                    raise BadInput(where=source, key=where, found=section, expected=expected)
                _check_keys(source, section, section_type, parts, f"{where}.")
        elif is_list(hints[key]) and isinstance(value, dict):
            entry = _first_key(f"{prefix}{key}", value)
            raise BadInput(
                "an entry of a list is not set alone", where=source, key=entry, expected=f"{prefix}{key}=[..]"
            )
        elif (entry_type := listed_sections(hints[key])) is not None and isinstance(value, list):
            for at, section in enumerate(value):
                where = f"{prefix}{key}.{at}"
                if not isinstance(section, dict):
                    raise BadInput(where=source, key=where, found=section, expected="keys and values")
                _check_keys(source, section, entry_type, parts, f"{where}.")


@cache
def _types(schema: type) -> dict[str, Any]:
    return get_type_hints(schema)


def _first_key(key: str, value: Any) -> str:
    """The whole of a key that a command line gave: `trainer.epochs`, where there is no `trainer`."""
    while isinstance(value, dict) and value:
        inner, value = next(iter(value.items()))
        key = f"{key}.{inner}"
    return key


def to_yaml(config: RunConfig) -> str:
    """The resolved configuration, as written to a run directory: complete, and readable by `compose`."""
    recipe = to_dict(asdict(config.recipe))
    stages = [
        _head(stage) | _difference(to_dict(asdict(stage.config)), recipe, stage.config) for stage in config.stages
    ]
    for stage, resolved in zip(stages, config.stages, strict=True):
        if config.recipe.envs and not resolved.config.envs:
            stage["envs"] = None
        if not holds(stage_of(stage["kind"]).reads, "algorithm"):
            stage.pop("algorithm", None)  # it trains nothing: its kind says which
    recipe |= {"stages": stages}
    text: str = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True)
    return text


def _head(stage: StageConfig) -> Raw:
    head: Raw = {"name": stage.name, "kind": stage.kind}
    if stage_of(stage.kind).has_length:
        head |= {"steps": stage.steps} if stage.epochs is None else {"epochs": stage.epochs}
    inputs = {"data": stage.data, "prompts": stage.prompts}
    return head | {key: value for key, value in inputs.items() if value is not None}


def _difference(values: Raw, base: Raw, settings: Any, prefix: str = "") -> Raw:
    """What `values`, of `settings`, say that `base` does not; in whole what another name picks, and the
    algorithm; under a dotted key a mapping with names of the user's own, which is not that of `base` with changes."""
    changed: Raw = {}
    dotted: Raw = {}
    for key, value in values.items():
        below = base.get(key)
        if key in base and value == below:
            continue
        part = getattr(settings, key, None)
        if not isinstance(value, dict):
            changed[key] = value
        elif not is_dataclass(part):
            dotted[f"{prefix}{key}"] = value
        else:
            same = isinstance(below, dict) and key != "algorithm" and value.get("name") == below.get("name")
            inside = _difference(value, dict(below or {}) if same else {}, part, f"{prefix}{key}.")
            section = {name: setting for name, setting in inside.items() if "." not in name}
            dotted |= {name: setting for name, setting in inside.items() if "." in name}
            changed |= {key: section} if section else {}
    return changed | dotted
