"""Continue a run in its directory with its saved configuration, or a finished run with more steps of its last stage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from launch.checks.shareable import without_home
from launch.config.compose import compose
from launch.driver.checkpoints.checkpoint import FOLDER, read_state, step_of
from launch.driver.stages.base import stage_of
from rlsys.config.identity import identity_of
from rlsys.config.recipe import RunConfig, StageConfig
from rlsys.errors import BadInput, differences

if TYPE_CHECKING:
    from launch.driver.checkpoints.checkpoint import DriverState

MORE = re.compile(r"stages\.([^.=]+)\.steps=\+([0-9]{1,9})")


def refuse_other_config(
    path: Path, config: RunConfig, state: DriverState, moved: Mapping[str, str] = MappingProxyType({})
) -> None:
    """A run directory continues only what was begun in it: the same model, data and order of tasks.

    More steps, other timings, other learning rates, more workers, other ranks or ZeRO stages are fine. What the
    optimizer and the open groups of a stage stand for may not change once it has begun, also where a finished run gets
    more steps of its last stage; and the steps of other stages that have ended are what they were. moved: data files
    that lie elsewhere by now, and where they lay (`launch.driver.run.exchanged`).
    """
    saved = path / "config.yaml"
    if not any((path / "checkpoints").glob("step-*")):
        return
    if not saved.is_file():
        raise BadInput(
            "missing, so that the checkpoints next to it cannot be continued: restore it (`rlsys train CONFIG "
            "--dry-run -v` prints it, where CONFIG and overrides are those that the run began with)",
            where=saved,
        )
    before = compose(str(saved), [], saved=True)
    old, new = _identity(before), _identity(config)
    if old["stages"] == new["stages"]:
        number = state.stage_index
        if number == len(config.stages) and _grows(before.stages[-1], config.stages[-1]):
            number -= 1
        if number < state.stage_index or state.stage_step:
            old, new = old | _midway(before.stages[number]), new | _midway(config.stages[number])
        for ended in range(number):
            old, new = old | _length(before.stages[ended]), new | _length(config.stages[ended])
    new = {key: old.get(key) if _places(old.get(key)) == _places(new[key], moved) else new[key] for key in new}
    changed = differences(old, new)
    if changed:
        raise BadInput(f"it was begun with {changed}: choose another directory", key="--run-dir", found=path)


def _places(value: Any, moved: Mapping[str, str] = MappingProxyType({})) -> Any:
    """The value with each file in it where it lay."""
    if isinstance(value, str):
        return moved.get(without_home(value), without_home(value))
    if isinstance(value, Mapping):
        return {_places(key, moved): _places(child, moved) for key, child in value.items()}
    return value


# Parts of a recipe whose change is told: what is learned from there on, and how it is measured.
TOLD: tuple[str, ...] = ("model", "env", "envs", "reward", "algorithm", "engine", "rollout", "learner", "loop")
TOLD += ("curriculum", "window", "eval")


def changed_midway(path: Path, config: RunConfig, state: DriverState) -> list[str]:
    """What a resume changes, a line for each stage: of the one that has begun it holds from there on, of those that
    have ended it does nothing, where it is not a change of the whole recipe."""
    before, at = compose(str(path / "config.yaml"), [], saved=True), state.stage_index
    now = _changes(before.stages[at], config.stages[at])
    lines = (
        [f"changed in the middle of stage {config.stages[at].name}: {_list(now)}"] if state.stage_step and now else []
    )
    for old, ended in zip(before.stages[:at], config.stages[:at], strict=True):
        edits = {key: values for key, values in _changes(old, ended).items() if now.get(key, ("", ""))[1] != values[1]}
        lines += [f"stage {ended.name} has ended, and nothing comes of: {_list(edits)}"] if edits else []
    return lines


def _changes(before: StageConfig, now: StageConfig) -> dict[str, tuple[Any, Any]]:
    old, new = (
        dict(_leaves({part: value for part, value in asdict(stage.config).items() if part in TOLD}))
        for stage in (before, now)
    )
    return {
        key: (old.get(key), new.get(key)) for key in {**old, **new} if _places(old.get(key)) != _places(new.get(key))
    }


def _list(changes: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{key} {before} -> {now}" for key, (before, now) in changes.items())


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """By dotted key."""
    if not isinstance(value, dict):
        yield key, value
        return
    for name, part in value.items():
        yield from _leaves(part, f"{key}.{name}" if key else str(name))


def _midway(stage: StageConfig) -> dict[str, Any]:
    return {f"stages.{stage.name}.{key}": value for key, value in stage_of(stage.kind).midway(stage).items()}


def _length(stage: StageConfig) -> dict[str, Any]:
    return {f"stages.{stage.name}.{key}": getattr(stage, key) for key in ("steps", "epochs")}


def _grows(before: StageConfig, now: StageConfig) -> bool:
    return now.epochs is None and before.epochs is None and now.steps > before.steps


def _identity(config: RunConfig) -> dict[str, Any]:
    """What a checkpoint and a sequence number mean, by key."""
    recipe = config.recipe
    identity: dict[str, Any] = {"seed": recipe.seed, "stages": [stage.name for stage in config.stages]}
    model = asdict(recipe.model)
    del model["gradient_checkpointing"]  # changes no number
    del model["lora"]["lr_scale"]  # as learner.lr, which may change
    identity |= {f"model.{key}": value for key, value in model.items()}
    for stage in config.stages:
        values = {"kind": stage.kind, "loop.groups_per_step": stage.config.loop.groups_per_step}
        values |= identity_of("env", stage.config.env)
        values |= stage_of(stage.kind).identity(stage)
        identity |= {f"stages.{stage.name}.{key}": value for key, value in values.items()}
    return identity


def with_more_steps(overrides: Sequence[str], run_dir: str | None) -> list[str]:
    """`stages.rl.steps=+100` as a number: 100 more than the finished run in `run_dir` took.

    While that run is not finished it continues to the number that it was given: the command that was interrupted may
    be given again. Raises BadInput without a run, and for a stage that is not its last.
    """
    extensions = [(index, match) for index, text in enumerate(overrides) if (match := MORE.fullmatch(text))]
    if not extensions:
        return list(overrides)
    words = list(overrides)
    for index, match in extensions:
        saved = Path(run_dir or "") / "config.yaml"
        if run_dir is None or not saved.is_file():
            raise BadInput(f"{match[0]!r}", where="command line", expected="the --run-dir of a run to continue")
        stages = compose(str(saved), [], saved=True).stages
        last = stages[-1]
        if match[1] not in (last.name, str(len(stages) - 1)):
            raise BadInput(f"{match[0]!r}: extend only the last stage: stages.{last.name}.steps", where="command line")
        more = int(match[2]) if _is_finished(Path(run_dir), len(stages)) else 0
        words[index] = f"stages.{match[1]}.steps={last.steps + more}"
    return words


def has_more_steps(state: DriverState, run_dir: Path, config: RunConfig) -> bool:
    """Whether `config` gives the last stage of a finished run more steps. Then `state` is in that stage again.

    To be saved before `config` is, whose steps say how far the run had come. Raises BadInput for a stage that cannot
    continue.
    """
    before, last = compose(str(run_dir / "config.yaml"), [], saved=True).stages[-1], config.stages[-1]
    if not _grows(before, last):
        return False
    if last.kind == "dpo" and last.config.eval.every:
        key = f"stages.{last.name}.eval.every"
        raise BadInput(
            "the reference values of a finished dpo stage are gone", where=key, expected="a stage without them"
        )
    state.stage_index = len(config.stages) - 1
    state.stage_step = before.steps
    planned = before.steps * before.config.loop.groups_per_step
    state.next_sequence = state.sequences.get(last.name, planned)  # an rl stage ends with none open
    return True


def _is_finished(run_dir: Path, stages: int) -> bool:
    """As the newest checkpoint says it. Raises BadInput where that is damaged."""
    checkpoints = [folder for folder in run_dir.glob("checkpoints/*") if FOLDER.fullmatch(folder.name)]
    return bool(checkpoints) and read_state(max(checkpoints, key=step_of)).stage_index >= stages
