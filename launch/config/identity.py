"""Whether a run directory may be continued with a configuration."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from launch.config.compose import compose
from launch.stages.base import stage_of, without_places
from rlsys.config import RunConfig
from rlsys.errors import BadInput, differences


def refuse_other_config(path: Path, config: RunConfig) -> None:
    """A run directory continues only what was begun in it: the same model, data and order of tasks.

    More steps, other timings, other learning rates or more workers are fine.
    """
    saved = path / "config.yaml"
    if not saved.is_file() or not any((path / "checkpoints").glob("step-*")):
        return
    changed = differences(_identity(compose(str(saved), [])), _identity(config))
    if changed:
        raise BadInput(f"--run-dir {path}: it was begun with {changed}: choose another directory")


def _identity(config: RunConfig) -> dict[str, Any]:
    """What a checkpoint and a sequence number mean, by key."""
    recipe = config.recipe
    identity: dict[str, Any] = {"seed": recipe.seed, "stages": [stage.name for stage in config.stages]}
    identity |= {f"model.{key}": value for key, value in asdict(recipe.model).items()}
    identity |= {"learner.ranks": recipe.learner.ranks, "learner.zero_stage": recipe.learner.zero_stage}
    for stage in config.stages:
        own = {"kind": stage.kind, "loop.groups_per_step": stage.config.loop.groups_per_step}
        own |= {f"env.{key}": value for key, value in without_places(asdict(stage.config.env)).items()}
        own |= stage_of(stage.kind).identity(stage)
        identity |= {f"stages.{stage.name}.{key}": value for key, value in own.items()}
    return identity
