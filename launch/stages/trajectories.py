"""Generated trajectories as JSON: what is written of each, which are kept, and which two make a preference pair.

    {"task": {"task_id", "question", "answers", ...}, "sequence": 7, "sibling": 2, "prompt": [...], "messages": [...],
     "end": "answered", "truncated": false, "reward": 1.0, "parts": {"correct": 1.0}, "tokenizer": "5f0c...",
     "samples": [{"token_ids": [...], "sampled": [[12, 43]]}], "num_tokens": 31, "weight_versions": [[[1, 0, 31]]]}

`prompt` is what the model was given and `messages` what followed, so that `rlsys score` reads such a file too.
`samples` are the tokens as they were sampled, good for the tokenizer that `tokenizer` names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.rewards import solved
from rlsys.config import GenerateConfig
from rlsys.packing import sample_trajectory
from rlsys.types import EpisodeEnd, Failure, Group, Message, Reward, Trajectory

Record = dict[str, Any]
SLICES, SLICE = 64, 2**14  # how many places of a file of weights are read, and how many bytes at each


def tokenizer_id(renderer: Any) -> str:
    """The same for tokenizers that give the same text the same tokens in the same chat."""
    tokenizer = renderer.tokenizer
    whole = json.dumps([sorted(tokenizer.get_vocab().items()), tokenizer.chat_template])
    return hashlib.blake2b(whole.encode(), digest_size=8).hexdigest()


def weights_id(model: str) -> str:
    """The same for the same model, and another for one that was trained: a folder may hold others than it did.

    A part of the weights is read, and the config. A hub name stands for itself.
    """
    whole = hashlib.blake2b(model.encode() if not Path(model).is_dir() else b"", digest_size=8)
    names = ("config.json", "*.safetensors", "pytorch_model*.bin")
    for path in sorted(path for name in names for path in Path(model).glob(name)):
        size = path.stat().st_size
        whole.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:  # at places all over it: rows of tokens that are never met stay as they were
            for part in range(SLICES):
                file.seek(part * max(size - SLICE, 0) // (SLICES - 1))
                whole.update(file.read(SLICE))
    return whole.hexdigest()


def entry_of(group: Group, tokenizer: str) -> Record:
    """All that was played of one task."""
    return {
        "sequence": group.ticket.sequence,
        "task_id": group.ticket.task.task_id,
        "trajectories": [_record(trajectory, group, tokenizer) for trajectory in group.trajectories],
    }


def _record(trajectory: Trajectory, group: Group, tokenizer: str) -> Record:
    task, reward, start = trajectory.task, trajectory.reward, trajectory.num_prompt
    graded: Record
    if isinstance(reward, Failure):
        graded = {"failure": {"kind": reward.kind, "where": reward.where, "detail": reward.detail}}
    else:
        samples = [
            {"token_ids": list(sample.token_ids), "sampled": _spans(sample.loss_mask)}
            for sample in sample_trajectory(trajectory, 1.0)
        ]
        graded = {"reward": reward.value, "parts": dict(reward.parts), "tokenizer": tokenizer, "samples": samples}
    return {
        "task": {
            **task.record,
            "task_id": task.task_id,
            "question": task.question,
            "answers": list(task.answers),
        },
        "sequence": group.ticket.sequence,
        "sibling": trajectory.sibling,
        "prompt": [_message(message) for message in trajectory.messages[:start]],
        "messages": [_message(message) for message in trajectory.messages[start:]],
        "end": trajectory.end,
        "truncated": trajectory.end is EpisodeEnd.TOKEN_LIMIT,
        **graded,
        "num_tokens": trajectory.num_sampled,
        "weight_versions": [
            [[span.version, span.start, span.end] for span in turn.completion.spans] for turn in trajectory.turns
        ],
    }


def _message(message: Message) -> Record:
    said = {"role": message.role, "content": message.content}
    return said | {"inline": True} if message.inline else said


def _spans(mask: Sequence[int]) -> list[list[int]]:
    """[0, 1, 1, 0, 1] gives [[1, 3], [4, 5]]."""
    edges = [index for index, (a, b) in enumerate(zip([0, *mask], [*mask, 0], strict=True)) if a != b]
    return [[start, end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


# -- of one task's entry ----------------------------------------------------------------------------------------------


def graded(entry: Record) -> list[Record]:
    return [trajectory for trajectory in entry["trajectories"] if "reward" in trajectory]


def is_solved(trajectory: Record, reward: Any) -> bool:
    """reward: its config."""
    return solved(reward, Reward(value=trajectory["reward"], parts=trajectory["parts"]))


def kept(entry: Record, config: GenerateConfig, reward: Any) -> list[Record]:
    """The trajectories of a task that are worth training on, in the order of their siblings; none of them twice."""
    found = graded(entry)
    if config.keep == "best":
        highest = max((each["reward"] for each in found), default=0.0)
        found = [each for each in found if each["reward"] == highest]
    elif config.keep == "correct":
        found = [each for each in found if is_solved(each, reward)]
    if config.min_reward is not None:
        found = [each for each in found if each["reward"] >= config.min_reward]
    found = list({_said(each): each for each in reversed(found)}.values())  # of those that say the same, the first
    found.sort(key=lambda each: (-each["reward"], each["sibling"]))
    return sorted(found[: config.per_task], key=lambda each: each["sibling"])


def _said(trajectory: Record) -> str:
    return json.dumps(trajectory["messages"])


def pair_of(entry: Record) -> Record | None:
    """The best against the worst of a task: None where both have the same reward, or say the same.

    An answer of several samples (a chat template rewrote its context) has no single likelihood: it is in no pair.
    """
    found = [each for each in graded(entry) if len(each["samples"]) == 1]
    if not found:
        return None
    chosen, rejected = (pick(found, key=lambda each: each["reward"]) for pick in (max, min))
    if not chosen["reward"] > rejected["reward"] or _said(chosen) == _said(rejected):  # a judge may waver
        return None
    return {
        "task_id": entry["task_id"],
        "prompt": chosen["prompt"],
        "chosen": chosen["messages"],
        "rejected": rejected["messages"],
        "chosen_reward": chosen["reward"],
        "rejected_reward": rejected["reward"],
        "tokenizer": chosen["tokenizer"],
        "chosen_samples": chosen["samples"],
        "rejected_samples": rejected["samples"],
        "chosen_truncated": chosen["truncated"],
        "rejected_truncated": rejected["truncated"],
    }
