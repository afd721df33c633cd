"""Whether the disk of a run directory has room for the run's checkpoints: reported before anything starts.

A checkpoint holds the policy for the hub, and what the ranks continue from (`gpu_memory.parameter_bytes`).
docs/run-directory.md has the sum, which follows from the number of parameters.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.filesize import decimal as size

from launch.checks import model_size
from launch.checks.gpu_memory import BYTES, parameter_bytes
from launch.checks.model_size import trained_parameters
from launch.driver.checkpoints.best import find_best_model
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE, VALUES
from rlsys.config.recipe import RunConfig, StageConfig
from rlsys.errors import BadInput
from rlsys.system.device import Device, dtype_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the checkpoints of a run take at most, in bytes."""

    each: int
    most: int  # that lie there at once, the one that is being written too
    extra: int  # the best model, the model that a stage is compared with
    keep: int

    @property
    def needed(self) -> int:
        return self.each * self.most + self.extra

    def describe(self) -> str:
        more = f" + {size(self.extra)} of other models" if self.extra else ""
        return f"{self.most} checkpoints x {size(self.each)}{more} = {size(self.needed)}"


def training_stages(config: RunConfig) -> list[StageConfig]:
    return [stage for stage in config.stages if stage.steps or stage.epochs is not None]


def room_for(config: RunConfig, device: Device) -> Room | None:
    """None where it takes a download to know how many parameters there are, or nothing is trained."""
    count = model_size.parameters(config.recipe)
    training = training_stages(config)
    if count is None or not training:
        return None
    dtype = dtype_of(config.recipe.model.dtype, device)
    keep = max(stage.config.checkpoint.keep for stage in training)
    checkpoints = sum(_count_checkpoints(stage) for stage in training)
    compared = any(map(_keeps_reference, config.stages[1:]))  # the first is compared with what lies elsewhere
    apart = any(stage.config.checkpoint.best is not None for stage in training) + compared
    return Room(
        each=max(trained_parameters(stage.config, count) * _checkpoint_bytes(stage, dtype) for stage in training),
        most=min(keep + 1, checkpoints),
        extra=count * BYTES[dtype] * (apart + any(map(_keeps_base, config.stages))),
        keep=keep,
    )


def _checkpoint_bytes(stage: StageConfig, dtype: str) -> int:
    critic = VALUES in make_algorithm(stage.config.algorithm).needs
    return parameter_bytes(dtype, stage.config.learner.zero_stage, critic=critic)


def _keeps_base(stage: StageConfig) -> bool:
    """Whether the model under an adapter is one that this run trained (`beginning.keep_base_model`)."""
    return stage.config.model.lora.rank == 0 and stage.config.model.lora.begins is not None


def _keeps_reference(stage: StageConfig) -> bool:
    """Whether its checkpoints hold the weights that it began with (`beginning.reference_weights_folder`)."""
    trains = stage.steps or stage.epochs is not None
    needs = make_algorithm(stage.config.algorithm).needs if trains else ()
    return stage.config.learner.reference == "stage" and REFERENCE in needs


def _count_checkpoints(stage: StageConfig) -> int:
    """How many a stage writes, at most: with `every_s` one after each step, if steps are that long."""
    config = stage.config.checkpoint
    if stage.epochs is not None:  # its length is not known yet
        return config.keep + 1
    every = 1 if config.every_s is not None else config.every or stage.steps
    return max(-(-stage.steps // max(every, 1)), 1)


def check_disk(room: Room | None, run: Path) -> None:
    """Raises BadInput where the disk is too small. What this run's own checkpoints take is room too: they are removed
    for newer ones."""
    if room is None:
        return
    free, replaced_bytes = _free_bytes(run), _replaced_bytes(run)
    if room.needed > free + replaced_bytes:
        lower = f"lower checkpoint.keep={room.keep}, " if room.keep > 1 and room.most > 2 else ""
        raise BadInput(
            f"too little room for checkpoints in {run}: {room.describe()}, and {size(free + replaced_bytes)} are free: "
            f"{lower}free some, or give another --run-dir"
        )


def describe_room(room: Room | None, run: Path | None) -> str:
    """Of `--dry-run`. run: None where the run's disk is another than this machine's."""
    if room is None:
        return "not known yet"
    return room.describe() if run is None else f"{room.describe()}; {size(_free_bytes(run))} are free in {run}"


def when_full(room: Room | None) -> str:
    """What to do about it, once it has happened."""
    if room is None:
        return ""
    lower = f": lower checkpoint.keep={room.keep}, or free some" if room.keep > 1 else ""
    return f" ({room.describe()}{lower})"


def _free_bytes(run: Path) -> int:
    """Of the disk that it lies on, or is going to lie on."""
    return shutil.disk_usage(nearest_folder(run)).free


def nearest_folder(path: Path) -> Path:
    """The folder, or the nearest above it: a run makes its directory by itself."""
    while not path.is_dir():
        path = path.parent
    return path


def _replaced_bytes(run: Path) -> int:
    """By what a newer checkpoint replaces."""
    best, folders = find_best_model(run), [*(run / "checkpoints").glob("step-*")]
    files = [path for folder in [*folders, *([best] if best is not None else [])] for path in folder.rglob("*")]
    sizes = {(stat.st_dev, stat.st_ino): stat.st_size for stat in (path.lstat() for path in files if path.is_file())}
    return sum(sizes.values())
