"""How a step's episodes used their tools: calls, what of them was valid or said before, lengths, and when they ended.

An environment counts with `Step.metrics`; these names of it are everybody's and have columns of their own, `episode/*`.
What it counts under any other name is a column `env/*`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlsys.metrics import Mean, Metric, Metrics, merge
from rlsys.summaries import TrajectorySummary
from rlsys.types import EpisodeEnd

CALLS = "calls"  # made: a message that holds one, within the limit of calls
VALID = "valid_calls"  # of them those that the tool carried out
REPEATED = "repeated_calls"  # of them those made before in the same episode
REPLIES = "reply_tokens"  # what the environment said, with its chat marks
SHARED = (CALLS, VALID, REPEATED, REPLIES)
MOST_TURNS = 8  # columns of `answered_by_N`


def use_metrics(trajectories: Sequence[TrajectorySummary]) -> Metrics:
    """Means over all trajectories: one in which nothing of a name was counted has 0 of it.

    `episode/calls` and the other shared names, where some episode has them; `episode/response_tokens`, the length with
    what tools said, beside `episode/tokens` without; `episode/answered_by_2`, the share of the episodes that had given
    their answer with their second message or before.
    """
    names = sorted({name for each in trajectories for name in each.metrics})
    rows: list[Metrics] = []
    longest = min(max((len(each.turns) for each in trajectories), default=0), MOST_TURNS)
    for each in trajectories:
        row: dict[str, Metric] = {column(name): Mean(each.metrics.get(name, 0.0)) for name in names}
        row["episode/response_tokens"] = Mean(each.num_sampled + each.metrics.get(REPLIES, 0.0))
        answered = len(each.turns) if each.end is EpisodeEnd.ANSWERED else longest + 1
        row |= {f"episode/answered_by_{turn}": Mean(float(answered <= turn)) for turn in range(1, longest + 1)}
        rows.append(row)
    return merge(rows)


def column(name: str) -> str:
    return f"episode/{name}" if name in SHARED else f"env/{name}"
