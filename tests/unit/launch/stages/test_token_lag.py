"""`loop.max_token_lag`: old tokens are context, their trajectories still count in the baseline, and nothing is lost."""

import dataclasses
from collections.abc import Sequence

import pytest

from launch.stages.rl_loop import harvest_groups
from learners.algorithms.base import Plain
from rlsys.config import LoopConfig
from rlsys.errors import BadInput
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Group,
    Reward,
    Task,
    Ticket,
    Timings,
    Trajectory,
    Turn,
    TurnStop,
    VersionSpan,
)

NOW = 7  # the version that is trained


@dataclasses.dataclass(frozen=True)
class Centred(Plain):
    reduction: str = "group_total"

    def advantages(self, rewards: Sequence[float]) -> list[float] | None:
        mean = sum(rewards) / len(rewards)
        return [reward - mean for reward in rewards] if len(set(rewards)) > 1 else None


def completion(*sampled_by: int) -> Completion:
    """One token of each version."""
    return Completion(
        token_ids=(9,) * len(sampled_by),
        logprobs=(-1.0,) * len(sampled_by),
        stop=TurnStop.EOS,
        text="",
        spans=tuple(VersionSpan(version=v, start=at, end=at + 1) for at, v in enumerate(sampled_by)),
    )


def group(sequence: int, *siblings: tuple[float, tuple[int, ...]]) -> Group:
    """Siblings as (reward, versions of their tokens)."""
    task = Task(task_id=f"t:{sequence}", question="q")
    return Group(
        ticket=Ticket(sequence=sequence, epoch=0, task=task, attempt=0, start_version=4),
        worker="rollout:0",
        trajectories=tuple(
            Trajectory(
                task=task,
                sibling=sibling,
                turns=(Turn(context_ids=(1, 2), completion=completion(*versions), reply=None),),
                messages=(),
                end=EpisodeEnd.ANSWERED,
                reward=Reward(value=value, parts={"correct": value}),
                timings=Timings(generate_s=0, tool_s=0, score_s=0),
            )
            for sibling, (value, versions) in enumerate(siblings)
        ),
    )


GROUPS = [
    group(0, (1.0, (4, 5, 5, 7)), (0.0, (4, 4)), (0.5, (6, 7))),  # of two versions; all old; all new
    group(1, (1.0, (4, 4)), (0.0, (3,))),  # nothing of it is new enough
    group(2, (1.0, (4,)), (1.0, (4,))),  # without contrast anyway
]


def test_old_tokens_become_context_and_their_trajectory_stays_in_the_baseline() -> None:
    harvest = harvest_groups(GROUPS, Centred(), longest=100, version=NOW, max_token_lag=2)
    first, second = harvest.samples
    assert (first.loss_mask, first.versions[2:]) == ((0, 0, 0, 1, 1, 1), (4, 5, 5, 7))
    assert second.loss_mask == (0, 0, 1, 1)
    # The mean of 1, 0 and 0.5: the sibling without tokens is one of three.
    assert (first.advantages[-1], second.advantages[-1]) == (0.5, 0.0)
    assert harvest.advantages[0, 1] == -0.5
    # Weighed after masking: five tokens are the whole group.
    assert [(sample.weight, sample.share) for sample in harvest.samples] == [(1 / 5, 3 / 5), (1 / 5, 2 / 5)]


def test_a_group_of_old_tokens_alone_is_filtered_and_the_tokens_add_up() -> None:
    harvest = harvest_groups(GROUPS, Centred(), longest=100, version=NOW, max_token_lag=2)
    assert harvest.outcomes == {0: "trained", 1: "filtered", 2: "filtered"}  # each prompt once, none failed
    counted = {name: metric.value for name, metric in harvest.metrics.items()}
    assert counted["tokens/stale"] == (1 + 2) + (2 + 1)  # what had no contrast was left out for that
    assert (counted["tokens/in_trained_groups"], counted["tokens/in_filtered_groups"]) == (8, 3 + 2)
    assert sum(sum(sample.loss_mask) for sample in harvest.samples) == 8 - 3


@pytest.mark.parametrize("limit", [None, 4, 100])
def test_a_limit_that_nothing_exceeds_leaves_all_as_it_is(limit: int | None) -> None:
    harvest = harvest_groups(GROUPS, Centred(), longest=100, version=NOW, max_token_lag=limit)
    assert harvest.outcomes == {0: "trained", 1: "trained", 2: "filtered"}
    assert harvest.metrics["tokens/stale"].value == 0
    assert sum(sum(sample.loss_mask) for sample in harvest.samples) == 8 + 3


def test_a_lag_below_zero_is_refused_and_one_that_does_nothing_is_not() -> None:
    with pytest.raises(BadInput, match="loop.max_token_lag=-1: expected 0 or more, or null"):
        LoopConfig(max_token_lag=-1)
    assert LoopConfig(max_policy_lag=1, max_token_lag=5).slots == 64
