"""How long a part of a run may take to start, by what it loads, and what a node has to have downloaded before."""

from __future__ import annotations

from collections.abc import Iterable

from launch.checks.deadlines import load_deadline
from launch.checks.gpu_memory import BYTES
from launch.checks.model_size import model_bytes, teacher_parameters
from rlsys.config.recipe import RecipeConfig
from rlsys.deadlines import Derived
from rlsys.system.device import Device


def size_of(model: str) -> int:
    """Bytes of a model besides the policy, in bfloat16; 0 where its size is not known."""
    return (teacher_parameters(model) or 0) * BYTES["bfloat16"]


def start_of_engine(recipe: RecipeConfig, device: Device) -> Derived:
    return load_deadline(recipe.rollout.start_timeout_s, model_bytes(recipe, device))


def start_of_rank(recipe: RecipeConfig, device: Device, teachers: Iterable[str] = ()) -> Derived:
    """Of the start and of the loading of a stage's models: the policy and its reference, which may be another."""
    policy = model_bytes(recipe, device)
    return load_deadline(recipe.learner.start_timeout_s, policy + max([policy, *map(size_of, teachers)]))
