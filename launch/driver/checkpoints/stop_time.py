"""What a stop needs: the row in progress ends, the learner is copied, and the copy is written.

    a stop needs      row + rest + copy + write
    the rest          of an update that is past its first optimizer step, and is finished: all its others
    its deadline      twice that, at least 30 s: a checkpoint may just have begun to be written, and ends first

The speeds are those of slow machines of a kind; nothing is measured, and a row and all episodes are taken as full. No
rest is longer than `learner.update_timeout_s` allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from launch.checks import model_size
from launch.driver.checkpoints.disk_space import room_for, training_stages
from learners.algorithms import make_algorithm
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.system.device import Device, require_resolved, resolve

LEAST_S = 30.0  # a deadline: small models are copied in seconds, on machines that may be busy
UNKNOWN_S = 300.0  # a deadline where the size of the model is not known yet
SLACK = 2.0  # times what a stop needs: another checkpoint may be on its way to the disk
ROUND_S = 10.0  # a deadline is a number to be given to `ray job stop` and schedulers
COPIES = 1e9  # bytes/s of a rank, from its device into ordinary host memory
WRITES = 8e8  # bytes/s into a run directory, with digests: shared file systems take 0.6e9 to 2e9
ROW_FLOPS = 8  # of a parameter for each token of a row: forward 2, backward 4, the forward pass again 2
# A third of an A100's peak; two cores at less than half of the 7e10 that one of a Xeon was measured to do in float32.
RANK_FLOPS = {"cuda": 1e14, "cpu": 6e10}


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTime:
    """Seconds, by what a checkpoint and a row are."""

    row_s: float
    rest_s: float
    copy_s: float
    write_s: float

    @property
    def needed_s(self) -> float:
        return self.row_s + self.rest_s + self.copy_s + self.write_s

    @property
    def deadline_s(self) -> float:
        return max(LEAST_S, math.ceil(SLACK * self.needed_s / ROUND_S) * ROUND_S)


def stop_time(
    *,
    parameters: int,
    checkpoint_bytes: int,
    ranks: int,
    row_tokens: int,
    rank_flops: float,
    rest_tokens: int = 0,
    most_rest_s: float = math.inf,
) -> StopTime:
    """row_tokens: that a rank has of a row. rank_flops: that it computes in a second. checkpoint_bytes, rest_tokens: of
    all ranks together."""
    token_s = ROW_FLOPS * parameters / rank_flops
    return StopTime(
        row_s=token_s * row_tokens,
        rest_s=min(token_s * rest_tokens / ranks, most_rest_s),
        copy_s=checkpoint_bytes / ranks / COPIES,
        write_s=checkpoint_bytes / WRITES,
    )


def longest_stop_time(config: RunConfig, device: Device) -> StopTime | None:
    """Of the stage whose stop takes longest. None where the size of the model is not known, or nothing is trained."""
    room, count = room_for(config, device), model_size.parameters(config.recipe)
    if room is None or count is None:
        return None
    stops = []
    for stage in training_stages(config):
        learner, (rest_tokens, share) = resolve(stage.config, device).learner, rest_of_update(stage.config)
        stops.append(
            stop_time(
                parameters=count,
                checkpoint_bytes=room.each,
                ranks=config.recipe.learner.ranks,
                row_tokens=math.ceil(require_resolved(learner.tokens_per_row) / learner.sequence_parallel),
                rank_flops=RANK_FLOPS[device.torch_device],
                rest_tokens=rest_tokens,
                most_rest_s=share * learner.update_timeout_s,
            )
        )
    return max(stops, key=lambda stop: stop.needed_s)


def optimizer_steps(recipe: RecipeConfig) -> int:
    """Of an update."""
    algorithm = make_algorithm(recipe.algorithm)
    return algorithm.epochs * algorithm.minibatches


def rest_of_update(recipe: RecipeConfig) -> tuple[int, float]:
    """Tokens that are trained after the first optimizer step of an update, and its share of the update."""
    steps, loop = optimizer_steps(recipe), recipe.loop
    share = (steps - 1) / steps
    batch_tokens = loop.groups_per_step * loop.group_size * recipe.engine.max_model_len
    return int(share * make_algorithm(recipe.algorithm).epochs * batch_tokens), share


def stop_deadline_s(config: RunConfig, device: Device) -> float:
    """The key's, or what follows from the sizes."""
    deadline_s = config.recipe.checkpoint.stop_deadline_s
    if deadline_s is not None:
        return deadline_s
    stop = longest_stop_time(config, device)
    if stop is not None:
        return stop.deadline_s
    return UNKNOWN_S if training_stages(config) else LEAST_S


def describe_stop(config: RunConfig, device: Device) -> str:
    """`a stop needs about 183 s (a row 6, copying 24, writing 152), and has 370`"""
    stop, limit = longest_stop_time(config, device), stop_deadline_s(config, device)
    if stop is None:
        return f"a stop has {limit:g} s"
    rest = f"the rest of an update {stop.rest_s:.0f}, " if stop.rest_s else ""
    parts = f"a row {stop.row_s:.0f}, {rest}copying {stop.copy_s:.0f}, writing {stop.write_s:.0f}"
    return f"a stop needs about {math.ceil(stop.needed_s)} s ({parts}), and has {limit:g}{_describe_updates(config)}"


def _describe_updates(config: RunConfig) -> str:
    """A clause for algorithms with several optimizer steps per update: past the first, the update is finished."""
    most = max((optimizer_steps(stage.config) for stage in training_stages(config)), default=1)
    return f"; after the first of its {most} optimizer steps an update is finished before it" if most > 1 else ""


def advise_stop(config: RunConfig, device: Device) -> str | None:
    """Said at the start of a run in which it matters: of a stop that takes long, or has too little time."""
    stop = longest_stop_time(config, device)
    if stop is None or stop.needed_s <= LEAST_S / SLACK:
        return None
    deadline_s = config.recipe.checkpoint.stop_deadline_s
    raised = deadline_s is not None and deadline_s < stop.needed_s
    more = f": raise checkpoint.stop_deadline_s, or leave it out for {stop.deadline_s:g}" if raised else ""
    return describe_stop(config, device) + more
