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
    given: Sequence[Raw],
    *,
    removed: Collection[int] = (),
    replaced: Collection[int] = (),
    served: str | None = None,
) -> frozenset[str]:
    """The sets whose figures are of another setting than the command line's, which one line says.

    stages: as the files have them. given: what the command line says, of everything and of single stages. removed:
    which of the stages it leaves out. replaced: which it gives another kind. served: the model behind an address that
    plays in place of `model.path`.
    """
    before = [_merge([*(layer.values for layer in files), *stage]) for stage in ((), *(each.layers for each in stages))]
    shown = {name for each in before for name, _ in _figures(each)}
    keys = [(key, value) for each in given for key, value in leaves(each)] if shown else []
    changed = [key for key, value in keys if _changes(key, key, value, before)]
    if shown and served is not None and _changes("model.path", "model.path", served, before):
        changed.append("--model")
    if not any(key == "model.path" and _is_folder(str(value)) for key, value in keys):  # else what they had made
        shows = [at for at, each in enumerate(before[1:]) if at not in removed and any(_figures(each))]
        untrained = [at for at in sorted({*removed, *replaced}) if stages[at].get("kind") in TRAINING]
        missed = [at for at in untrained if shows and at <= shows[-1]]
        changed += [f"stages.{stages[at].label}{'.kind' if at in replaced else ''}" for at in missed]
    if changed:
        _say(changed[0], "")
        return frozenset(shown)
    found: set[str] = set()
    for name in sorted(shown - {HELD_OUT}):
        own = f"eval.sets.{name}."
        changed = [
            key for key, value in keys if key.startswith(own) and _changes(key.removeprefix(own), key, value, before)
        ]
        if changed:
            found.add(name)
            _say(changed[0], f" of {name}")
    return frozenset(found)


def without_figures(foreign: frozenset[str], layers: Sequence[Layer]) -> Layer:
    """What removes the figures that these layers have of the sets `foreign`."""
    figures = {name: dict.fromkeys(keys) for name, keys in _figures(_merge([each.values for each in layers]))}
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
    for name, given in ((HELD_OUT, evaluation), *(sets.items() if isinstance(sets, dict) else ())):
        paper = given.get("paper") if isinstance(given, dict) else None
        numbers = tuple(key for key, value in paper.items() if value is not None) if isinstance(paper, dict) else ()
        if numbers:
            yield name, numbers


def _changes(key: str, path: str, value: Any, before: Sequence[Raw]) -> bool:
    """Whether `key` names the setting, and no stage of the files has this value at `path`."""
    parts = key.split(".")
    names = any(key == each or key.startswith(f"{each}.") for each in SETTING)
    service = next((OF_SERVICES[part] for part in parts[1:-1] if part in OF_SERVICES), None)
    if not names or (service is not None and parts[-1] not in service):
        return False
    if key == "model.path" and _is_folder(str(value)):
        return False  # a copy of the model, or what an earlier run of this setting has made
    known = [_find(each, path.split(".")) for each in before]
    if key == "data":  # a file in the place of a stage may be what that stage has made
        known = [each for each in known if Path(str(each)).suffix]
        return bool(known) and _name(value) not in map(_name, known)
    if key in COPIED:
        return _name(value) not in map(_name, known)
    if key == "model.path" and "/" not in str(value):  # as a server names it, without its owner
        return value not in [str(each).rpartition("/")[2] for each in known]
    return value not in known


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


def _say(what: str, where: str) -> None:
    log.warning("the paper's figures%s are left out: with this %s the setting is another than theirs", where, what)
