"""A finished run goes on: its last stage gets more steps, from its last checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launch.config.compose import compose
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput

if TYPE_CHECKING:
    from launch.checkpoints.checkpoint import DriverState

MORE = re.compile(r"stages\.([^.=]+)\.steps=\+([0-9]{1,9})")


def with_more_steps(overrides: Sequence[str], run_dir: str | None) -> list[str]:
    """`stages.rl.steps=+100` as a number: 100 more than the finished run in `run_dir` took.

    While that run is not finished it goes on to the number that it was given: the command that was interrupted may be
    given again. Raises BadInput without a run, and for a stage that is not its last.
    """
    found = [(index, asked) for index, text in enumerate(overrides) if (asked := MORE.fullmatch(text))]
    if not found:
        return list(overrides)
    words = list(overrides)
    for index, asked in found:
        saved = Path(run_dir or "") / "config.yaml"
        if run_dir is None or not saved.is_file():
            raise BadInput(f"command line: {asked[0]!r}: expected the --run-dir of a run to go on with")
        stages = compose(str(saved), [], saved=True).stages
        last = stages[-1]
        if asked[1] not in (last.name, str(len(stages) - 1)):
            raise BadInput(f"command line: {asked[0]!r}: only the last stage goes on: stages.{last.name}.steps")
        more = int(asked[2]) if _finished(Path(run_dir), len(stages)) else 0
        words[index] = f"stages.{asked[1]}.steps={last.steps + more}"
    return words


def goes_on(state: DriverState, run_dir: Path, config: RunConfig) -> bool:
    """Whether `config` gives the last stage of a finished run more steps. Then `state` is in that stage again.

    To be saved before `config` is, whose steps say how far the run had come. Raises BadInput for a stage that cannot go
    on.
    """
    before, last = compose(str(run_dir / "config.yaml"), [], saved=True).stages[-1], config.stages[-1]
    if last.epochs is not None or before.epochs is not None or last.steps <= before.steps:
        return False
    if last.kind == "dpo" and last.config.eval.every:
        key = f"stages.{last.name}.eval.every"
        raise BadInput(f"{key}: the reference values of a finished dpo stage are gone: expected a stage without them")
    state.stage_index = len(config.stages) - 1
    state.stage_step = before.steps
    planned = before.steps * before.config.loop.groups_per_step
    state.next_sequence = state.sequences.get(last.name, planned)  # an rl stage ends with none open
    return True


def _finished(run_dir: Path, stages: int) -> bool:
    """As the newest checkpoint says it. Raises BadInput where that is damaged."""
    from launch.checkpoints.checkpoint import FOLDER, read_state, step_of

    found = [folder for folder in run_dir.glob("checkpoints/*") if FOLDER.fullmatch(folder.name)]
    return bool(found) and read_state(max(found, key=step_of)).stage_index >= stages
