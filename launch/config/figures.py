"""A paper's figures stand next to runs of its own setting: a command line that changes the setting removes them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from launch.config.layers import Layer, StageEntry
from launch.config.scope import leaves
from rlsys.config.mappings import Over, Raw, Section, as_changes
from rlsys.config.recipe import RecipeConfig

log = logging.getLogger("rlsys.config")
# What the rows of a paper's tables differ in.
SETTING = (
    *("model.path", "model.scratch", "window", "env", "envs", "reward", "algorithm", "verdicts", "loop.group_size"),
    *("generate.samples", "generate.keep", "generate.teacher.model", "generate.teacher.constructs"),
    *("learner.rope_theta_scale", "data"),  # the latter of a stage
)
TRAINING = ("sft", "rl", "stepwise", "dpo")  # the kinds of stages that change a policy
OF_SERVICES = {  # of their keys, those that change an answer; the others say where and how fast they are
    "retriever": ("kind", "encoder", "corpus", "k1", "b", "query_tokens"),
    "judge": ("model", "prompts"),
}
COPIED = ("env.data", "env.eval_data", "data")  # of the same name in a folder of the same name: the same file
_OVER = Over(dict.fromkeys(("env", "reward", "algorithm"), Section))
HELD_OUT = ""  # the name of what is evaluated without `eval.sets`


def find_foreign(
    files: Sequence[Layer],
    stages: Sequence[StageEntry],
    overrides: Sequence[Raw],
    *,
    removed: Collection[int] = (),
    replaced: Collection[int] = (),
    served: str | None = None,
) -> frozenset[str]:
    """The sets whose figures are of another setting than the command line's, which one line says.

    stages: as the files have them. overrides: of the command line, of everything and of single stages. removed:
    which of the stages it leaves out. replaced: which it gives another kind. served: the model behind an address that
    plays in place of `model.path`.
    """
    before = [_merge([*(layer.values for layer in files), *raws]) for raws in ((), *(stage.layers for stage in stages))]
    set_names = {name for values in before for name, _ in _figures(values)}
    keys = [(key, value) for override in overrides for key, value in leaves(override)] if set_names else []
    changed = [key for key, value in keys if _changes(key, key, value, before)]
    if set_names and served is not None and _changes("model.path", "model.path", served, before):
        changed.append("--model")
    if not any(key == "model.path" and _is_folder(str(value)) for key, value in keys):  # else what they had made
        shows = [at for at, values in enumerate(before[1:]) if at not in removed and any(_figures(values))]
        untrained = [at for at in sorted({*removed, *replaced}) if stages[at].get("kind") in TRAINING]
        missed = [at for at in untrained if shows and at <= shows[-1]]
        changed += [f"stages.{stages[at].label}{'.kind' if at in replaced else ''}" for at in missed]
    if changed:
        _say(changed[0], "")
        return frozenset(set_names)
    foreign_sets: set[str] = set()
    for name in sorted(set_names - {HELD_OUT}):
        stem = f"eval.sets.{name}."
        changed = [
            key for key, value in keys if key.startswith(stem) and _changes(key.removeprefix(stem), key, value, before)
        ]
        if changed:
            foreign_sets.add(name)
            _say(changed[0], f" of {name}")
    return frozenset(foreign_sets)


def without_figures(foreign: frozenset[str], layers: Sequence[Layer]) -> Layer:
    """What removes the figures that these layers have of the sets `foreign`."""
    figures = {name: dict.fromkeys(keys) for name, keys in _figures(_merge([layer.values for layer in layers]))}
    sets = {name: {"paper": nulls} for name, nulls in figures.items() if name in foreign and name != HELD_OUT}
    values: Raw = {"sets": sets} if sets else {}
    if HELD_OUT in figures and HELD_OUT in foreign:
        values["paper"] = figures[HELD_OUT]
    return Layer("figures of another setting", as_changes({"eval": values} if values else {}))


def _merge(values: Sequence[Raw]) -> Raw:
    return reduce(lambda base, change: _OVER.lay(base, change, RecipeConfig), values, {})


def _figures(values: Raw) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By set: which numbers a paper has of it."""
    evaluation = values.get("eval")
    evaluation = evaluation if isinstance(evaluation, dict) else {}
    sets = evaluation.get("sets")
    for name, section in ((HELD_OUT, evaluation), *(sets.items() if isinstance(sets, dict) else ())):
        paper = section.get("paper") if isinstance(section, dict) else None
        numbers = tuple(key for key, value in paper.items() if value is not None) if isinstance(paper, dict) else ()
        if numbers:
            yield name, numbers


def _changes(key: str, path: str, value: Any, before: Sequence[Raw]) -> bool:
    """Whether `key` names the setting, and no stage of the files has this value at `path`."""
    parts = key.split(".")
    names = any(key == setting or key.startswith(f"{setting}.") for setting in SETTING)
    service = next((OF_SERVICES[part] for part in parts[1:-1] if part in OF_SERVICES), None)
    if not names or (service is not None and parts[-1] not in service):
        return False
    if key == "model.path" and _is_folder(str(value)):
        return False  # a copy of the model, or what an earlier run of this setting has made
    file_values = [_find(recipe, path.split(".")) for recipe in before]
    if key == "data":  # a file in the place of a stage may be what that stage has made
        file_values = [file for file in file_values if Path(str(file)).suffix]
        return bool(file_values) and _name(value) not in map(_name, file_values)
    if key in COPIED:
        return _name(value) not in map(_name, file_values)
    if key == "model.path" and "/" not in str(value):  # as a server names it, without its owner
        return value not in [str(model).rpartition("/")[2] for model in file_values]
    return value not in file_values


def _name(path: Any) -> tuple[str, ...]:
    """Of a file, with that of its folder: each recipe has a train.jsonl."""
    return Path(str(path)).parts[-2:]


def _is_folder(path: str) -> bool:
    """Of this machine or of another, and not owner/name on the hub."""
    return path.startswith(("/", ".", "~")) or path.count("/") > 1 or Path(path).is_dir()


def _find(values: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        values = values.get(part) if isinstance(values, Mapping) else None
    return values


def _say(key: str, where: str) -> None:
    log.warning("the paper's figures%s are left out: with this %s the setting is another than theirs", where, key)
