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
    "learner.sequence_parallel",
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
    keys = (key for key, value in leaves(values) if value != {})
    unread = next((key for key in keys if not holds(_read(head, recipe), key)), None)
    if unread is None:
        return
    kinds = [kind for kind in STAGES if holds(stage_of(kind).reads, unread)]
    other_stages = [stage for stage in stages if stage is not head and stage.kind in kinds]
    readers = [f"stages.{stage.label}.{unread}" for stage in other_stages if holds(_read(stage, recipe), unread)]
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
    return {field_name: value for field_name, value in part.items() if field_name in has}


def say_left_out(layers: Sequence[tuple[str, Raw]], tables: Mapping[str, Table]) -> None:
    """Which keys of the files do not hold, because the command line names another class."""
    for key, table in tables.items():
        candidates = [(source, _named(values.get(key))) for source, values in layers]
        choices = [(source, name) for source, name in candidates if name is not None]
        if not choices or not choices[-1][0].startswith("command line"):
            continue
        name = choices[-1][1]
        schema = choose(key, table, name).schema
        for source, values in layers:
            part = values.get(key)
            if isinstance(part, dict) and part.get("name", name) != name:
                dropped_keys = part.keys() - carry_over_keys(key, name, schema, part).keys() - {"name"}
                if dropped_keys:
                    keys = ", ".join(f"{key}.{option}" for option in sorted(dropped_keys))
                    log.warning("%s.name=%s: left out of %s, which names another: %s", key, name, source, keys)


def _named(part: Any) -> str | None:
    name = part.get("name") if isinstance(part, dict) else None
    return name if isinstance(name, str) else None


def check_choices(overrides: Raw, choices: Sequence[Picked], tables: Mapping[str, Table]) -> None:
    """Raises BadInput for a key of the command line that the choice of one stage has and that of another has not."""
    for key, table in tables.items():
        part = overrides.get(key)
        for path, value in leaves(part) if isinstance(part, dict) else ():
            if path == "name":
                continue
            with_it = [choice for choice in choices if _has(choose(key, table, choice.names[key]).schema, path)]
            without = [choice for choice in choices if choice not in with_it]
            stages = [choice.stage for choice in with_it if choice.stage is not None]
            if without and stages:
                first, text = without[0], "null" if value is None else value
                where = "outside of stages" if first.stage is None else f"in stage {first.stage}"
                ways = " ".join(f"stages.{stage}.{key}.{path}={text}" for stage in stages)
                problem = f"{where} {key}.name={first.names[key]!r} has no such key"
                raise BadInput(f"{key}.{path}: {problem}", where="command line", expected=ways)
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
    user_layers = [layer for layer in layers if not written or layer.source.startswith("command line")]
    retrievers = [_retriever(layer.values.get("env")) for layer in user_layers]
    try:
        _check("env.retriever.", recipe.env, retrievers)
        for eval_set in sets_of(recipe) if not written else ():
            env = recipe.eval.sets[eval_set.name].env if eval_set.name else {}
            base = retrievers if env.get("name", recipe.env.name) == recipe.env.name else []
            if env:
                _check(f"eval.sets.{eval_set.name}.env.retriever.", eval_set.recipe.env, [*base, _retriever(env)])
    except BadInput as error:
        raise BadInput(error, where=where) from error


def _check(prefix: str, env: Any, retrievers: Sequence[Mapping[str, Any]]) -> None:
    """retrievers: by layer, the section's keys as given there."""
    config = getattr(env, "retriever", None)
    if not isinstance(config, SearchConfig):
        return
    switch, because = config.switch
    since = _last(switch, retrievers)  # -1: below them all, or by default
    refused = [key for key in config.unread if _last(key, retrievers) >= max(since, 0)]
    refuse_unread(config, prefix, refused, because)


def _last(key: str, retrievers: Sequence[Mapping[str, Any]]) -> int:
    return max((at for at, layer in enumerate(retrievers) if key in layer), default=-1)


def _retriever(env: Any) -> Mapping[str, Any]:
    retriever = env.get("retriever") if isinstance(env, Mapping) else None
    return retriever if isinstance(retriever, Mapping) else {}
