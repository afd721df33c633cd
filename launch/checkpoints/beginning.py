"""What a stage begins with besides its weights: the model that it is compared with, and an optimizer's moments.

The first stage is compared with the model that the run began with, which stays where it is. A later one begins with a
checkpoint, which is removed when enough newer ones are there. So each checkpoint of that stage holds the reference too,
as links to the files of the checkpoint before it: a run that continues from it needs no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from launch.checkpoints.checkpoint import DriverState, step_of
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE
from learners.layout import layout_of, refuse_other_layout
from rlsys.config.recipe import StageConfig
from rlsys.errors import BadInput

LEARNER = "learner"  # in a checkpoint: what the ranks continue from
KEPT = Path(LEARNER) / "reference"


def reference_of(stage: StageConfig, state: DriverState, checkpoint: Path | None) -> Path | None:
    """Where the weights lie that the stage began with, for one that is compared with them; None for any other.

    checkpoint: what the stage continues from, as `state` says. None too where these are the run's first weights. Raises
    BadInput where they are gone.
    """
    if checkpoint is None or state.stage_index == 0 or stage.config.learner.reference != "stage":
        return None
    if REFERENCE not in make_algorithm(stage.config.algorithm).needs:
        return None
    if state.stage_step == 0:
        return checkpoint / "hf"
    if not (checkpoint / KEPT).is_dir():
        raise BadInput(
            f"it does not hold the reference model of stage {stage.name}, the weights that the stage began with",
            where=checkpoint,
        )
    return checkpoint / KEPT


def takes_optimizer(stage: StageConfig, state: DriverState) -> bool:
    """Whether the stage continues with the optimizer of the checkpoint: its own, or that of the stage before it."""
    inherited = stage.config.learner.optimizer == "run" and bool(stage.steps or stage.epochs) and state.step > 0
    return state.stage_step > 0 or inherited


def refuse_impossible(stage: StageConfig, state: DriverState, checkpoint: Path, saved: Sequence[Path]) -> None:
    """What the learner would refuse, or not find, once everything has started. Raises BadInput.

    saved: all checkpoints of the run, of which an earlier one may be named in the error.
    """
    if takes_optimizer(stage, state):
        learner = stage.config.learner
        ours = layout_of(learner, make_algorithm(stage.config.algorithm), learner.ranks)
        refuse_other_layout(checkpoint / LEARNER, ours)
    try:
        reference_of(stage, state, checkpoint)
    except BadInput as error:
        holding = [path.name for path in saved if step_of(path) < step_of(checkpoint)]
        holding = [name for name in holding if (checkpoint.with_name(name) / KEPT).is_dir()]
        ways = [f"--resume-from {holding[-1]}"] if holding else []
        ways += [f"stages.{stage.name}.learner.reference=run", "another --run-dir"]
        raise BadInput(where=error, expected=", or ".join(ways)) from error
