"""The share of a step's episodes that solved their task, by the rule that an evaluation's accuracy has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from envs.rewards import counts_as_solved, solved_thresholds
from rlsys.config.envs import by_name, env_in
from rlsys.metrics import Mean, Metrics, merge
from rlsys.summaries import GroupRef
from rlsys.types import Reward

SOLVED = "reward/solved"


def solved_metrics(groups: Sequence[GroupRef], rewards: Mapping[str, Any]) -> Metrics:
    """Over the graded episodes. rewards: the config of each environment's reward, of the only one under "".

    Nothing of an environment whose reward does not say what is solved, and nothing of all together where one does not.
    """
    says = {name for name, config in rewards.items() if solved_thresholds(config) is not None}
    several = rewards.keys() - {""}
    metrics: list[Metrics] = []
    for group in groups:
        name = env_in(several, group.ticket.task.task_id)
        for summary in group.summaries if name in says else ():
            if isinstance(summary.reward, Reward):
                right = Mean(float(counts_as_solved(rewards[name], summary.reward)))
                metrics += [{by_name(name, SOLVED): right}] if name else []
                metrics += [{SOLVED: right}] if says == rewards.keys() else []
    return merge(metrics)
