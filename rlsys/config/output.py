"""What a run leaves behind: trajectories, checkpoints, and what it reports to trackers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Optional

from rlsys.errors import BadInput, nearest, require_bounds

TRACKERS = ("wandb", "tensorboard", "trackio", "none")


def check_tracker(names: tuple[str, ...]) -> None:
    """Raises BadInput for a name that is neither one of ours nor a dotted path."""
    for name in names:
        if not isinstance(name, str) or (name not in TRACKERS and "." not in name):
            hint = nearest(str(name), TRACKERS, otherwise="")
            raise BadInput(key="tracker", found=name, expected=f"{', '.join(TRACKERS)} or module.Class{hint}")
    if len(set(names)) < len(names) or ("none" in names and len(names) > 1):
        raise BadInput(key="tracker", found=list(names), expected="each tracker once, or none alone")


@dataclass(frozen=True, kw_only=True)
class TrajectoriesConfig:
    """Episodes that are written to the run directory."""

    keep: Optional[int] = 1024
    """Number of episodes of each step that are written, at most: whole groups, spread evenly over all. 0: none. null:
    all. Episodes of evaluations are all written."""
    keep_mb: Optional[float] = 50.0
    """Size in MiB of the episodes of each step that are written, at most, before compression and as expected from their
    tokens (about 14 bytes a token): whole groups, one at least. 50 are 460 episodes of 8k tokens, and 200 such steps
    are 5 GB packed. null: no limit."""
    logprobs: bool = True
    """Whether episodes are written with the log-probability of each sampled token, as float16: 2.7 bytes a token."""
    compress_mb: Optional[float] = 16.0
    """File size in MiB above which a file of episodes is compressed; its name then ends in `.jsonl.gz`. 0: all are
    compressed. null: none."""

    def __post_init__(self) -> None:
        require_bounds(self, "trajectories.", "0 or more, or null", "keep", "compress_mb")
        require_bounds(self, "trajectories.", "above 0, or null", "keep_mb")

    @property
    def most_bytes(self) -> float:
        """Of a step."""
        return math.inf if self.keep_mb is None else self.keep_mb * 2**20


@dataclass(frozen=True, kw_only=True)
class CheckpointConfig:
    """When checkpoints are written, and which of them stay on disk."""

    every: Optional[int] = 20
    """Number of training steps between checkpoints. One more is written at the end of each stage and when the run is
    stopped. null: `every_s` alone counts."""
    every_s: Optional[float] = 1800.0
    """Time between checkpoints in seconds, in addition to `every`: one that is due is written after the step in
    progress. Half an hour is what a lost rank or machine costs at most, besides that step; copying takes a large model
    seconds of it, and small ones come to `every` first. null: `every` alone counts."""
    keep: int = 2
    """Number of checkpoints that stay on disk, the newest ones."""
    stop_deadline_s: Optional[float] = None
    """Time limit of a graceful stop after Ctrl-C or SIGTERM, in seconds: the update in progress is left, and the
    checkpoint is written. After it the last checkpoint is kept. The value holds for the whole run. `ray job stop` kills
    after RAY_JOB_STOP_WAIT_TIME_S: set that variable of the job 20 higher. null: twice what a row, the
    optimizer steps of an update after its first one, and the copying and writing of a checkpoint of this size take, at
    least 30, as `--dry-run` says."""
    best: Optional[str] = None
    """Metric of the evaluations that selects the best model, such as `greedy/accuracy` or
    `hotpotqa/greedy/exact_match`. The model with the highest value so far is kept in addition to the newest
    checkpoints, and `rlsys eval --checkpoint RUN_DIR@best` plays it."""

    def __post_init__(self) -> None:
        require_bounds(self, "checkpoint.", "at least 1", "keep")
        require_bounds(self, "checkpoint.", "at least 1, or null", "every")
        require_bounds(self, "checkpoint.", "above 0, or null", "every_s", "stop_deadline_s")


@dataclass(frozen=True, kw_only=True)
class IncidentsConfig:
    """Folders of evidence that a run writes when a part dies, a phase of a step hangs, or the run fails."""

    keep: int = 20
    """Number of incidents whose folders stay in the run directory, the newest ones; each takes a few MiB at most. 0:
    none is written."""
    stall_factor: float = 6.0
    """Number of times the median of its recent durations after which a phase of a step counts as stalled, while it is
    still in progress."""
    stall_floor_s: float = 60.0
    """Shortest duration of a stalled phase, in seconds. A phase that the stage has gone through fewer than three times
    is stalled after ten times as long, after a third of `learner.update_timeout_s` or, on GPUs that are known, after
    one and a half times the forecast of `--dry-run`, whichever is longest; a first wait for rollouts is given the time
    of its longest episodes too, and a publication that `eval.hold_weights` holds back that of the evaluation."""

    def __post_init__(self) -> None:
        require_bounds(self, "incidents.", "0 or more", "keep")
        require_bounds(self, "incidents.", "at least 1", "stall_factor")
        require_bounds(self, "incidents.", "above 0", "stall_floor_s")


@dataclass(frozen=True, kw_only=True)
class WandbConfig:
    """Tracking with Weights & Biases (`tracker` has `wandb`), in addition to the metrics in the run directory."""

    mode: Literal["auto", "online", "offline", "disabled"] = "auto"
    """Mode of the wandb client. auto: online if wandb has a key, else offline, which writes to the run directory."""
    project: Optional[str] = None
    """Name of the project in wandb and trackio. null: WANDB_PROJECT (wandb only), else "rlsys"."""
    entity: Optional[str] = None
    """User or team that owns the project. null: WANDB_ENTITY, else the owner of the key."""
    group: Optional[str] = None
    """Group of runs that belong together in wandb or trackio, such as the seeds of one setting. null: WANDB_RUN_GROUP
    (wandb only)."""
    name: Optional[str] = None
    """Name of the run in wandb and trackio. null: WANDB_NAME (wandb only), else the recipe's `name` and its seed."""
    tags: tuple[str, ...] = ()
    """Tags of the run in wandb. (): those of WANDB_TAGS."""
    notes: Optional[str] = None
    """Free-text notes on the run."""
    samples: int = 4
    """Number of episodes in a table of samples, of different prompts as far as possible, from the lowest reward to the
    highest. It holds for every tracker. 0: no table."""
    samples_every: int = 10
    """Number of training steps between two tables of samples. It holds for every tracker."""

    def __post_init__(self) -> None:
        require_bounds(self, "wandb.", "0 or more", "samples")
        require_bounds(self, "wandb.", "at least 1", "samples_every")
