"""Which run directory a command means, and whether it may continue what lies there."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from launch.config import compose
from launch.run.cluster import inside_ray_job
from rlsys.config import RunConfig, StageConfig
from rlsys.errors import BadInput


def choose_run_dir(config: RunConfig, given: str | None, must_resume: bool) -> Path:
    """`--run-dir`, else the newest unfinished runs/NAME of this very configuration, else the next free runs/NAME-N."""
    if inside_ray_job() and (given is None or not Path(given).is_absolute()):
        raise BadInput(
            "inside a Ray job give an absolute --run-dir on shared storage: "
            "a relative one vanishes with the job's folder"
        )
    text = compose.to_yaml(config)
    if given is not None:
        path = Path(given).resolve()  # actors work elsewhere
        if must_resume and not path.is_dir():
            raise BadInput(f"--resume: there is no run directory {given}")
        refuse_other_config(path, config)
        return path
    base = Path("runs").resolve() / config.recipe.name
    number, path = 1, base
    while path.exists():
        saved = path / "config.yaml"
        same = saved.is_file() and saved.read_text() == text
        summary = path / "summary.json"
        finished = summary.is_file() and '"status": "done"' in summary.read_text()
        if same and not finished:
            return path
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    if must_resume:
        raise BadInput(f"--resume: no unfinished run of this configuration under {base.parent}/; give its --run-dir")
    return path


def refuse_other_config(path: Path, config: RunConfig) -> None:
    """A run directory continues only what was begun in it: the same model, data and order of tasks.

    More steps, other timings, other learning rates or more workers are fine.
    """
    saved = path / "config.yaml"
    if not saved.is_file() or not any((path / "checkpoints").glob("step-*")):
        return
    before, now = _identity(compose.compose(str(saved), [])), _identity(config)
    changed = [
        f"{key}={before.get(key)!r}, not {now.get(key)!r}" for key in before | now if before.get(key) != now.get(key)
    ]
    if changed:
        raise BadInput(f"--run-dir {path}: it was begun with {'; '.join(changed)}: choose another directory")


def _identity(config: RunConfig) -> dict[str, Any]:
    """What a checkpoint and a sequence number mean, by key."""
    identity: dict[str, Any] = {"seed": config.recipe.seed, "stages": [stage.name for stage in config.stages]}
    identity |= {f"model.{key}": value for key, value in asdict(config.recipe.model).items()}
    identity |= {f"learner.{key}": getattr(config.recipe.learner, key) for key in ("ranks", "zero_stage")}
    for stage in config.stages:
        identity[f"stages.{stage.name}.kind"] = stage.kind
        identity[f"stages.{stage.name}.loop.groups_per_step"] = stage.config.loop.groups_per_step
        played = without_places(asdict(stage.config.env))
        identity |= {f"stages.{stage.name}.env.{key}": value for key, value in played.items()}
        identity |= {f"stages.{stage.name}.{key}": value for key, value in _examples(stage).items()}
    return identity


def _examples(stage: StageConfig) -> dict[str, Any]:
    """What decides which examples there are, in which order."""
    drawn: dict[str, Any] = {}
    if stage.kind == "generate":
        drawn |= {f"generate.{key}": getattr(stage.config.generate, key) for key in ("samples", "temperature", "top_p")}
    if stage.data is not None:
        evaluated = stage.config.eval
        drawn |= {"data": stage.data}
        drawn |= {f"eval.{key}": getattr(evaluated, key) if evaluated.every else None for key in ("share", "tasks")}
    return drawn


def without_places(values: dict[str, Any]) -> dict[str, Any]:
    """Where a server listens and how patient its callers are may change."""
    return {
        key: without_places(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if key not in ("url", "token_env", "guard", "endpoint", "service", "key_env")
    }
