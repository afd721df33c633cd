"""What a run leaves behind: trajectories, checkpoints, and what wandb is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import require_bounds


@dataclass(frozen=True, kw_only=True)
class TrajectoriesConfig:
    keep: Optional[int] = 1024
    """Episodes of each step that are written to the run directory, at most: whole groups, spread evenly over all. 0
    writes none, null all. Those of evaluations are all written."""
    compress_mb: Optional[float] = 16.0
    """A file of more MiB is compressed, and its name then ends in `.jsonl.gz`. 0 compresses all, null none."""

    def __post_init__(self) -> None:
        require_bounds(self, "trajectories.", "0 or more, or null", "keep", "compress_mb")


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    every: int = 20
    """Steps between checkpoints. One more is written at the end of each stage and when the run is stopped."""
    keep: int = 2
    """Checkpoints that stay on disk, the newest ones."""
    stop_deadline_s: float = 30.0
    """Seconds from Ctrl-C or SIGTERM in which the update that is going on may end and the checkpoint be written. Past
    them the last one stands. It holds for the whole run. `ray job stop` kills after RAY_JOB_STOP_WAIT_TIME_S: give
    that variable of the job 20 more."""
    best: Optional[str] = None
    """A number of the evaluations, such as `greedy/accuracy` or `hotpotqa/greedy/exact_match`: the model with the
    highest one so far is kept beside the newest checkpoints, and `rlsys eval --checkpoint RUN_DIR@best` plays it."""

    def __post_init__(self) -> None:
        require_bounds(self, "checkpoint.", "at least 1", "every", "keep")
        require_bounds(self, "checkpoint.", "above 0", "stop_deadline_s")


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """auto is online where wandb has a key, else offline: rows are written to the run directory."""
    project: Optional[str] = None
    """Project in wandb that runs are listed under. null is WANDB_PROJECT, else "rlsys"."""
    entity: Optional[str] = None
    """User or team that the project belongs to. null is WANDB_ENTITY, else the key's own."""
    group: Optional[str] = None
    """Group of runs that belong together, such as the seeds of one setting. null is WANDB_RUN_GROUP."""
    name: Optional[str] = None
    """What the run is called there. null is WANDB_NAME, else the recipe's `name` and its seed."""
    tags: tuple[str, ...] = ()
    """Words to filter runs by. Without any, those of WANDB_TAGS."""
    notes: Optional[str] = None
    """A remark on the run."""
    samples: int = 4
    """Episodes in the table of samples, from the lowest reward to the highest. 0: no table."""
    samples_every: int = 10
    """Steps from one such table to the next."""

    def __post_init__(self) -> None:
        require_bounds(self, "wandb.", "0 or more", "samples")
        require_bounds(self, "wandb.", "at least 1", "samples_every")
