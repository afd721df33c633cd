"""Reshard: a checkpoint of another number of ranks (GPUs) or another ZeRO stage, loaded into the engines of this one.

DeepSpeed loads a part that a rank of the same division saved. Here every rank maps the files of all parts, joins one
parameter after the other, and gives its optimizer what it would have saved itself. DeepSpeed's universal checkpoints
do the same by way of a second checkpoint on disk, as large as the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from learners.shards import Division, Parts, Place, cut, join
from rlsys.errors import BadInput

MASTER, STEP = "master", "step"  # the weights as the optimizer holds them; how often it has moved them


class Saved:
    """What all ranks have saved under a tag. Whole parameters come from it one at a time."""

    def __init__(self, folder: Path, *, ranks: int, zero_stage: int) -> None:
        """Raises BadInput where a file is missing or not what DeepSpeed saves."""
        first = "zero_pp_rank_0_mp_rank_00" if zero_stage == 3 else "mp_rank_00"
        self.client = _load_memory_mapped(folder, f"{first}_model_states.pt")
        optimizers = [
            _load_memory_mapped(folder, f"*zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")["optimizer_state_dict"]
            for rank in range(ranks)
        ]
        if any(any(paddings) for paddings in optimizers[0].get("param_alignment_paddings", [])):
            raise BadInput("saved with DeepSpeed's zero_optimization.parameter_alignment", where=folder)
        shapes: list[Mapping[str, torch.Size]] = self.client["param_shapes"]
        groups = [{name: math.prod(shape) for name, shape in group.items()} for group in shapes]
        self.folder, self.division = folder, Division(groups=groups, ranks=ranks, zero_stage=zero_stage)
        self.places: dict[str, Place] = self.division.places()
        master = "fp32_flat_groups" if zero_stage == 3 else "single_partition_of_fp32_groups"
        base = "optimizer_state_dict" if zero_stage == 3 else "base_optimizer_state"
        moments = [[state for _, state in sorted(optimizer[base]["state"].items())] for optimizer in optimizers]
        self.parts: dict[str, Parts] = {MASTER: [optimizer[master] for optimizer in optimizers]}
        if all(len(mine) == len(groups) for mine in moments):  # else no step was taken, and there are none
            self.step = moments[0][0][STEP]
            for key in moments[0][0].keys() - {STEP}:
                self.parts[key] = [[state[key] for state in mine] for mine in moments]

    def whole(self, key: str, name: str) -> torch.Tensor:
        """The master weights of one parameter, or one of its moments; flat."""
        return join(self.parts[key], self.places[name], self.division)


def load(engine: Any, folder: Path, *, ranks: int, zero_stage: int) -> dict[str, Any]:
    """Weights and moments of `folder`, which so many ranks saved under another stage. Returns what was saved with them.

    A collective. Raises BadInput where the checkpoint is of another model, or not whole.
    """
    saved = Saved(folder, ranks=ranks, zero_stage=zero_stage)
    optimizer, rank = engine.optimizer, torch.distributed.get_rank()
    shapes: list[Mapping[str, torch.Size]] = engine._get_zero_param_shapes()
    groups = [{name: math.prod(shape) for name, shape in group.items()} for group in shapes]
    division = Division(
        groups=groups, ranks=torch.distributed.get_world_size(), zero_stage=engine.zero_optimization_stage()
    )
    ours, theirs = ({name: place.numel for name, place in side.items()} for side in (division.places(), saved.places))
    if ours != theirs:
        name = min(ours.items() ^ theirs.items())[0]
        raise BadInput(f"{name} has {theirs.get(name, 0):,} numbers", where=folder, expected=f"{ours.get(name, 0):,}")
    state = optimizer.state_dict()
    if division.zero_stage == 3:
        base, master, shards = "optimizer_state_dict", "fp32_flat_groups", optimizer.fp32_partitioned_groups_flat
    else:
        base, master = "base_optimizer_state", "single_partition_of_fp32_groups"
        # DeepSpeed's optimizer for bfloat16 under stage 1 has its own name for the same.
        shards = getattr(optimizer, "fp32_groups_flat_partition", None) or optimizer.single_partition_of_fp32_groups

    def mine(key: str) -> list[torch.Tensor]:
        read: Callable[[str], torch.Tensor] = partial(saved.whole, key)
        try:
            return [cut(read, division, rank=rank, group=group, size=flat.numel()) for group, flat in enumerate(shards)]
        except ValueError as error:
            raise BadInput(f"damaged: {key}: {error}", where=folder) from error

    moments = {key: mine(key) for key in saved.parts if key != MASTER}
    state[master] = mine(MASTER)
    state[base]["state"] = {
        group: {STEP: saved.step.clone(), **{key: parts[group] for key, parts in moments.items()}}
        for group in range(len(shards) if moments else 0)
    }
    _load_into_engine(engine, state, saved)
    return saved.client


def _load_into_engine(engine: Any, state: Mapping[str, Any], saved: Saved) -> None:
    """To the optimizer, and the weights that follow from its own to the model."""
    optimizer = engine.optimizer
    states = [state] * torch.distributed.get_world_size()  # of which it takes its own
    if engine.zero_optimization_stage() == 3:  # the optimizer has the weights, too
        optimizer.checkpoint_event_prologue()
        optimizer.load_state_dict(states)
        optimizer.checkpoint_event_epilogue()
        return
    optimizer.load_state_dict(states, load_from_fp32_weights=True)
    with torch.no_grad():
        for parameter, name in engine.param_names.items():
            if name in saved.places:  # frozen ones under an adapter are not
                parameter.copy_(saved.whole(MASTER, name).view(parameter.shape))


def _load_memory_mapped(folder: Path, pattern: str) -> dict[str, Any]:
    """The one file of this name, as data, its tensors left on the disk until they are read."""
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise BadInput(f"{len(files)} files {pattern}", where=folder, expected="1: a rank's part of the checkpoint")
    content: dict[str, Any] = torch.load(files[0], map_location="cpu", mmap=True, weights_only=True)
    return content
