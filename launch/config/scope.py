"""Keys that have no effect where they are given: each is refused, or said to be left out.

A key of the whole run in one stage; a key of a stage whose kind does not read it; a key of an environment or a reward
that belongs to another choice; a key of a retriever that is elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from envs.tools.search import SearchConfig
from launch.config.layers import Layer
from launch.driver.evaluation.sets import sets_of
from launch.driver.stages import STAGES
from launch.driver.stages.base import StageKeys, stage_of
from launch.driver.stages.reads import Keys, holds
from rlsys.choices import Table, choose
from rlsys.config.mappings import Raw
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput, refuse_unread

log = logging.getLogger("rlsys.config")
MOST = 5  # choices that one line names
# One set of actors serves all stages: what they are made from, and what watches over them, is read outside of stages.
RUN_KEYS: tuple[str, ...] = (
    "name",
    "seed",
    "about",
    "model",
    "engine",
    "cluster",
    "weights",
    "tracker",
    "wandb",
    "report",
    "incidents",
    "window",
    "rollout.workers",
    "rollout.min_workers",
    "rollout.threads",
    "rollout.in_flight",
    "rollout.infra_attempts",
    "rollout.grader_workers",
    "rollout.grader_deadline_s",
    "rollout.block_timeout_s",
    "rollout.call_timeout_s",
    "rollout.start_timeout_s",
    "learner.ranks",
    "learner.threads",
    "learner.rope_theta_scale",
    "learner.update_timeout_s",
    "learner.ping_timeout_s",
    "learner.start_timeout_s",
    "learner.max_restarts",
    "loop.mismatch_limit",
    "loop.running_kv",
    "loop.publish_deadline_s",
    "checkpoint.stop_deadline_s",
)


def check_scope(source: str, values: Mapping[str, Any]) -> None:
    """Raises BadInput for a key of the whole run among what is given to one stage."""
    for key in RUN_KEYS:
        if has(values, key):
            raise BadInput(f"{key} holds for the whole run: give it outside of stages", where=source)


def check_reads(
    source: str, values: Mapping[str, Any], head: StageKeys, recipe: RecipeConfig, stages: Sequence[StageKeys]
) -> None:
    """Raises BadInput for a key given to one stage whose kind does not read it.

    stages: all stages of the recipe, of which some may read it.
    """
    given = (key for key, value in leaves(values) if value != {})
    unread = next((key for key in given if not holds(_read(head, recipe), key)), None)
    if unread is None:
        return
    kinds = [kind for kind in STAGES if holds(stage_of(kind).reads, unread)]
    others = [each for each in stages if each is not head and each.kind in kinds]
    readers = [f"stages.{each.label}.{unread}" for each in others if holds(_read(each, recipe), unread)]
    data = " without data" * (head.kind in kinds)
    expected = " or ".join(readers) or f"it in a stage of kind {' or '.join(kinds)}"
    raise BadInput(f"{unread} has no effect in a stage of kind {head.kind}{data}", where=source, expected=expected)


def _read(head: StageKeys, recipe: RecipeConfig) -> Keys:
    return stage_of(head.kind).reads_here(head, recipe)


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys that are given, with their values."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def has(values: Mapping[str, Any], key: str) -> bool:
    """Whether a dotted key is given."""
    head, _, rest = key.partition(".")
    inner = values.get(head)
    return head in values and (not rest or (isinstance(inner, dict) and has(inner, rest)))


# -- of a choice -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Picked:
    """What holds in a stage, or outside of stages where that is None."""

    stage: str | None
    names: Mapping[str, str]  # {"reward": "answer"}


def carry_over_keys(key: str, name: str, schema: type, part: Raw) -> Raw:
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
                left = part.keys() - carry_over_keys(key, name, schema, part).keys() - {"name"}
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
        for path, value in leaves(part) if isinstance(part, dict) else ():
            if path == "name":
                continue
            with_it = [each for each in picked if _has(choose(key, table, each.names[key]).schema, path)]
            without = [each for each in picked if each not in with_it]
            stages = [each.stage for each in with_it if each.stage is not None]
            if without and stages:
                first, shown = without[0], "null" if value is None else value
                where = "outside of stages" if first.stage is None else f"in stage {first.stage}"
                ways = " ".join(f"stages.{stage}.{key}.{path}={shown}" for stage in stages)
                held = f"{where} {key}.name={first.names[key]!r} has no such key"
                raise BadInput(f"{key}.{path}: {held}", where="command line", expected=ways)
            owners = [name for name in table if _has(choose(key, table, name).schema, path)]
            if without and owners:
                names = ", ".join(owners[:MOST]) + ", ..." * (len(owners) > MOST)
                raise BadInput(
                    f"unknown key: {key}.name={without[0].names[key]!r} has none, {key}.name={names} has it",
                    where="command line",
                    key=f"{key}.{path}",
                )


def _has(schema: Any, path: str) -> bool:
    head, _, rest = path.partition(".")
    if not (isinstance(schema, type) and is_dataclass(schema)):
        return True  # a plain value, or a section with names of the user's own
    return head in {field.name for field in fields(schema)} and (not rest or _has(get_type_hints(schema)[head], rest))


# -- of a retriever ----------------------------------------------------------------------------------------------------


def check_unread(where: str, layers: Sequence[Layer], recipe: RecipeConfig, *, written: bool) -> None:
    """Raises BadInput for a key of a retriever that nothing reads, where what makes it so was given with it or before.

    A recipe names its own server's index; who gives `env.retriever.url` over it need not take those keys back.

    layers: all that a stage's recipe is merged from, in order. written: whether a run's own config.yaml is among them.
    """
    asked = [layer for layer in layers if not written or layer.source.startswith("command line")]
    given = [_retriever(layer.values.get("env")) for layer in asked]
    try:
        _check("env.retriever.", recipe.env, given)
        for each in sets_of(recipe) if not written else ():
            own = recipe.eval.sets[each.name].env if each.name else {}
            base = given if own.get("name", recipe.env.name) == recipe.env.name else []
            if own:
                _check(f"eval.sets.{each.name}.env.retriever.", each.recipe.env, [*base, _retriever(own)])
    except BadInput as error:
        raise BadInput(error, where=where) from error


def _check(prefix: str, env: Any, given: Sequence[Mapping[str, Any]]) -> None:
    """given: by layer."""
    config = getattr(env, "retriever", None)
    if not isinstance(config, SearchConfig):
        return
    switch, because = config.switch
    since = _last(switch, given)  # -1: below them all, or by default
    refused = [key for key in config.unread if _last(key, given) >= max(since, 0)]
    refuse_unread(config, prefix, refused, because)


def _last(key: str, given: Sequence[Mapping[str, Any]]) -> int:
    return max((at for at, layer in enumerate(given) if key in layer), default=-1)


def _retriever(env: Any) -> Mapping[str, Any]:
    found = env.get("retriever") if isinstance(env, Mapping) else None
    return found if isinstance(found, Mapping) else {}
