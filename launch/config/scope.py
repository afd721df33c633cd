"""Which keys hold for the whole run, and are refused within a stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def has(values: Mapping[str, Any], key: str) -> bool:
    """Whether a dotted key is given."""
    head, _, rest = key.partition(".")
    inner = values.get(head)
    return head in values and (not rest or (isinstance(inner, dict) and has(inner, rest)))
