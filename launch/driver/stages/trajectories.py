"""Generated trajectories: what is written of each group, which are kept, and which two make a preference pair."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from envs.rewards import counts_as_solved
from rlsys.config.generate import GenerateConfig
from rlsys.records import GroupRecord, PairRecord, Tokens, TrajectoryRecord, make_record
from rlsys.samples import sample_trajectory
from rlsys.types import Bools, Failure, Group, Reward, Trajectory

SLICES, SLICE = 64, 2**14  # how many places of a file of weights are read, and how many bytes at each


def tokenizer_id(renderer: Any) -> str:
    """The same for tokenizers that give the same text the same tokens in the same chat."""
    tokenizer = renderer.tokenizer
    args = [renderer.template_args] if renderer.template_args else []
    content = json.dumps([sorted(tokenizer.get_vocab().items()), tokenizer.chat_template, *args])
    return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def weights_id(model: str) -> str:
    """The same for the same model, and another for one that was trained: a folder may hold others than it did.

    A part of the weights is read, and the config. A hub name stands for itself.
    """
    digest = hashlib.blake2b(model.encode() if not Path(model).is_dir() else b"", digest_size=8)
    names = ("config.json", "*.safetensors", "pytorch_model*.bin")
    for path in sorted(path for name in names for path in Path(model).glob(name)):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:  # at places all over it: rows of tokens that are never met stay as they were
            for part in range(SLICES):
                file.seek(part * max(size - SLICE, 0) // (SLICES - 1))
                digest.update(file.read(SLICE))
    return digest.hexdigest()


def group_record(group: Group, tokenizer: str) -> GroupRecord:
    """All that was played of one task. tokenizer: "" where a teacher said it, and the policy sampled no token."""

    def record(trajectory: Trajectory) -> TrajectoryRecord:
        if tokenizer:
            return make_record(trajectory, group, tokenizer=tokenizer, samples=_samples(trajectory))
        return replace(make_record(trajectory, group), token_ids=(), weight_versions=())

    trajectories = tuple(map(record, group.trajectories))
    return GroupRecord(sequence=group.ticket.sequence, task_id=group.ticket.task.task_id, trajectories=trajectories)


def _samples(trajectory: Trajectory) -> tuple[Tokens, ...]:
    """Good for training: none of a failure."""
    samples = [] if isinstance(trajectory.reward, Failure) else sample_trajectory(trajectory, 1.0)
    return tuple(
        Tokens(token_ids=tuple(sample.token_ids.tolist()), sampled=_spans(sample.loss_mask)) for sample in samples
    )


def _spans(mask: Bools) -> tuple[tuple[int, int], ...]:
    """[0, 1, 1, 0, 1] gives ((1, 3), (4, 5))."""
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
    return tuple(zip(edges[::2], edges[1::2], strict=True))


def graded_trajectories(group: GroupRecord) -> list[tuple[float, TrajectoryRecord]]:
    return [(trajectory.reward, trajectory) for trajectory in group.trajectories if trajectory.reward is not None]


def is_solved(trajectory: TrajectoryRecord, reward: Any) -> bool:
    """reward: its config."""
    return counts_as_solved(reward, Reward(value=trajectory.reward or 0.0, parts=trajectory.parts))


def select_trajectories(group: GroupRecord, config: GenerateConfig, reward: Any) -> list[TrajectoryRecord]:
    """The trajectories of a task that are worth training on, in the order of their siblings; none of them twice."""
    graded = graded_trajectories(group)
    if config.keep == "best":
        highest = max((value for value, _ in graded), default=0.0)
        graded = [(value, record) for value, record in graded if value == highest]
    elif config.keep == "correct":
        graded = [(value, record) for value, record in graded if is_solved(record, reward)]
    if config.min_reward is not None:
        graded = [(value, record) for value, record in graded if value >= config.min_reward]
    graded = list({record.messages: (value, record) for value, record in reversed(graded)}.values())  # the first wins
    graded.sort(key=lambda pair: (-pair[0], pair[1].sibling))
    return sorted((record for _, record in graded[: config.per_task]), key=lambda record: record.sibling)


def pair_of(group: GroupRecord) -> PairRecord | None:
    """The best against the worst of a task: None where both have the same reward, or say the same.

    An answer of several samples (a chat template rewrote its context) has no single likelihood: it is in no pair. One
    without any is text, of a teacher.
    """
    graded = [(value, record) for value, record in graded_trajectories(group) if len(record.samples) <= 1]
    if not graded:
        return None
    (better, chosen), (worse, rejected) = (pick(graded, key=lambda pair: pair[0]) for pick in (max, min))
    if not better > worse or chosen.messages == rejected.messages:  # a judge may waver
        return None
    return PairRecord(
        task_id=group.task_id,
        prompt=chosen.prompt,
        chosen=chosen.messages,
        rejected=rejected.messages,
        chosen_reward=better,
        rejected_reward=worse,
        tokenizer=chosen.tokenizer,
        chosen_samples=chosen.samples,
        rejected_samples=rejected.samples,
        chosen_truncated=chosen.truncated,
        rejected_truncated=rejected.truncated,
    )
