"""What a stage begins with besides its weights: the model that it is compared with, and an optimizer's moments.

The first stage is compared with the model that the run began with, which stays where it is. A later one begins with a
checkpoint, which is removed when enough newer ones are there. So each checkpoint of that stage holds the reference too,
as links to the files of the checkpoint before it: a run that continues from it needs no other.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from launch.driver.checkpoints.checkpoint import DriverState, read_digests, step_of
from launch.driver.checkpoints.proof import base_name
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE
from learners.layout import layout_of, other_division
from rlsys.adapters import BASES, Adapter, AdapterStart, read_adapter
from rlsys.config.learner import LearnerConfig
from rlsys.config.recipe import StageConfig
from rlsys.errors import BadInput
from rlsys.files import link_or_copy, rename_synced

LEARNER = "learner"  # in a checkpoint: what the ranks continue from
KEPT = Path(LEARNER) / "reference"


def reference_weights_folder(stage: StageConfig, state: DriverState, checkpoint: Path | None) -> Path | None:
    """Where the weights lie that the stage began with, for one that is compared with them; None for any other, and for
    the first stage that trains an adapter: what it is compared with lies under the adapter, and lasts.

    checkpoint: what the stage continues from, as `state` says. None too where these are the run's first weights. Raises
    BadInput where they are gone.
    """
    if checkpoint is None or state.stage_index == 0 or stage.config.learner.reference != "stage":
        return None
    if REFERENCE not in make_algorithm(stage.config.algorithm).needs:
        return None
    if begins_adapter(stage):
        return None
    if state.stage_step == 0:
        return checkpoint / "hf"
    if not (checkpoint / KEPT).is_dir():
        raise BadInput(
            f"it does not hold the reference model of stage {stage.name}, the weights that the stage began with",
            where=checkpoint,
        )
    return checkpoint / KEPT


def begins_adapter(stage: StageConfig) -> bool:
    """Whether this is the first stage that trains an adapter."""
    lora = stage.config.model.lora
    return lora.rank > 0 and lora.begins == stage.name


def learner_config_of(stage: StageConfig) -> LearnerConfig:
    """With the learning rate of what it trains: an adapter's is `model.lora.lr_scale` times that of all weights."""
    learner, lora = stage.config.learner, stage.config.model.lora
    return replace(learner, lr=learner.lr * lora.lr_scale) if lora.rank else learner


def initial_weights_of(run: Path, stage: StageConfig, saved: str, first: str) -> tuple[str, AdapterStart | None]:
    """What a stage begins with: the weights that its learner loads and, where it trains an adapter on them, that.

    saved: the newest checkpoint's model or, where there is none, `first`, which the run began with. The weights that an
    adapter is put on are kept as long as the run directory. Raises BadInput where the checkpoint does not fit.
    """
    lora, adapter = stage.config.model.lora, read_adapter(saved)
    if not lora.rank:
        if adapter is not None:
            raise BadInput("an adapter", where=saved, expected=f"all weights: stage {stage.name} trains no adapter")
        return saved, None
    if adapter is None:
        base = first if saved == first else str(keep_base_model(run, Path(saved)))
        return base, AdapterStart(adapter=Adapter.on(base, lora))
    if adapter != Adapter.on(adapter.base, lora):
        raise BadInput("an adapter of another model.lora", where=saved, expected=f"rank {lora.rank}, as configured")
    return adapter.base, AdapterStart(adapter=adapter, folder=saved)


def keep_base_model(run: Path, model: Path) -> Path:
    """A checkpoint's model, so that it is not removed: its links, under a name that no other weights ever have."""
    saved = read_digests(model.parent)
    files = {name: entry for name, entry in (saved or {}).items() if name.startswith("hf/")}
    name = base_name(files) if files else model.parent.name
    folder = run / BASES / name
    if not folder.is_dir():
        draft = folder.with_name(f".{name}.tmp")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.copytree(model, draft, copy_function=link_or_copy)
        rename_synced(draft, folder)
    return folder.resolve()


def continues_optimizer(stage: StageConfig, state: DriverState) -> bool:
    """Whether the stage continues with the optimizer of the checkpoint: its own, or that of the stage before it."""
    inherited = stage.config.learner.optimizer == "run" and bool(stage.steps or stage.epochs) and state.step > 0
    return state.stage_step > 0 or inherited


def describe_division(stage: StageConfig, state: DriverState, checkpoint: Path) -> str:
    """How the optimizer of the checkpoint is divided, where the stage continues with it on other ranks or under another
    ZeRO stage; else empty. Raises BadInput where it cannot."""
    if not continues_optimizer(stage, state):
        return ""
    learner, lora = stage.config.learner, stage.config.model.lora.rank
    ours = layout_of(learner, make_algorithm(stage.config.algorithm), learner.ranks, lora)
    divided = other_division(checkpoint / LEARNER, ours)
    if divided is None:
        return ""
    now = f"learner.ranks={learner.ranks} learner.zero_stage={learner.zero_stage}"
    return f"its optimizer was saved with learner.ranks={divided[0]} learner.zero_stage={divided[1]}, now {now}"


def refuse_impossible(stage: StageConfig, state: DriverState, checkpoint: Path, saved: Sequence[Path]) -> None:
    """What the learner would refuse, or not find, once everything has started. Raises BadInput.

    saved: all checkpoints of the run, of which an earlier one may be named in the error.
    """
    describe_division(stage, state, checkpoint)
    try:
        reference_weights_folder(stage, state, checkpoint)
    except BadInput as error:
        holding = [path.name for path in saved if step_of(path) < step_of(checkpoint)]
        holding = [name for name in holding if (checkpoint.with_name(name) / KEPT).is_dir()]
        ways = [f"--resume-from {holding[-1]}"] if holding else []
        ways += [f"stages.{stage.name}.learner.reference=run", "another --run-dir"]
        raise BadInput(where=error, expected=", or ".join(ways)) from error
