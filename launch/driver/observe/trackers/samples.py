"""The table of samples: which episodes of a step it shows, and what stands in its cells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rlsys.types import Failure, Message, Reward, Trajectory

COLUMNS = ("step", "task", "prompt", "messages", "end", "reward", "parts", "tokens")
SHOWN = 10_000  # characters of a cell


def choose_samples(groups: Sequence[Sequence[Reward | Failure]], count: int) -> list[tuple[int, int]]:
    """(group, sibling) of at most `count` graded episodes, from the lowest reward to the highest.

    Round robin over the groups, so that a small table shows different prompts: each round takes one sibling of groups
    that lie evenly between the hardest and the easiest, a low one of the hard ones and a high one of the easy ones.
    """
    rewards = {
        (index, sibling): outcome.value
        for index, group in enumerate(groups)
        for sibling, outcome in enumerate(group)
        if isinstance(outcome, Reward)
    }
    by_group: dict[int, list[tuple[int, int]]] = {}  # by group: its graded episodes, lowest reward first
    for place in sorted(rewards, key=lambda place: (rewards[place], place)):
        by_group.setdefault(place[0], []).append(place)

    def mean(index: int) -> float:
        return sum(rewards[place] for place in by_group[index]) / len(by_group[index])

    order = sorted(by_group, key=lambda index: (mean(index), index))
    picks: list[tuple[int, int]] = []
    while order and len(picks) < count:
        positions = _evenly(len(order), count - len(picks))
        for nth, at in enumerate(positions):
            siblings = by_group[order[at]]
            picks.append(siblings.pop((len(siblings) - 1) * nth // max(len(positions) - 1, 1)))
        order = [index for index in order if by_group[index]]
    return sorted(picks, key=lambda place: (rewards[place], place))


def _evenly(length: int, count: int) -> list[int]:
    """At most `count` different places of `length`, evenly from the first to the last."""
    last, steps = length - 1, max(count - 1, 1)
    return sorted({last * place // steps for place in range(count)})


def cells(trajectory: Trajectory) -> list[Any]:
    """A row of the table, without the step."""
    reward, start = trajectory.reward, trajectory.num_prompt
    assert isinstance(reward, Reward)
    texts = [_join_messages(trajectory.messages[:start]), _join_messages(trajectory.messages[start:])]
    parts = json.dumps(dict(reward.parts))
    end, tokens = str(trajectory.end), trajectory.num_sampled
    return [trajectory.task.task_id, *texts, end, reward.value, parts, tokens]


def _join_messages(messages: Sequence[Message]) -> str:
    """As one text: half a surrogate pair, which a model may write, has no bytes in a tracker's files."""
    text = "\n".join(f"{message.role}: {message.content}" for message in messages)
    return text.encode("utf-8", "backslashreplace").decode()[:SHOWN]
