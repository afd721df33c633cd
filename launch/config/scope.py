"""Which keys hold for the whole run, and which have no effect in a stage: both are refused within it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from launch.stages import STAGES
from launch.stages.base import Head, stage_of
from launch.stages.reads import Keys, holds
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput

# One set of actors serves all stages: what they are made from, and what watches over them, is read outside of stages.
RUN_KEYS: tuple[str, ...] = (
    "name",
    "seed",
    "about",
    "model",
    "engine",
    "cluster",
    "weights",
    "wandb",
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
            raise BadInput(f"{source}: {key} holds for the whole run: give it outside of stages")


def check_reads(
    source: str, values: Mapping[str, Any], head: Head, recipe: RecipeConfig, beside: Sequence[Head]
) -> None:
    """Raises BadInput for a key given to one stage whose kind does not read it.

    beside: all stages of the recipe, of which some may read it.
    """
    unread = next((key for key in leaves(values) if not holds(_read(head, recipe), key)), None)
    if unread is None:
        return
    kinds = [kind for kind in STAGES if holds(stage_of(kind).reads, unread)]
    others = [each for each in beside if each is not head and each.kind in kinds]
    readers = [f"stages.{each.label}.{unread}" for each in others if holds(_read(each, recipe), unread)]
    data = " without data" * (head.kind in kinds)
    expected = " or ".join(readers) or f"it in a stage of kind {' or '.join(kinds)}"
    raise BadInput(f"{source}: {unread} has no effect in a stage of kind {head.kind}{data}: expected {expected}")


def _read(head: Head, recipe: RecipeConfig) -> Keys:
    return stage_of(head.kind).reads_here(head, recipe)


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys that are given."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def has(values: Mapping[str, Any], key: str) -> bool:
    """Whether a dotted key is given."""
    head, _, rest = key.partition(".")
    inner = values.get(head)
    return head in values and (not rest or (isinstance(inner, dict) and has(inner, rest)))
