"""From a step's groups to weighted samples: what failed, and what says nothing, is left out and counted."""

import dataclasses
import math

import pytest

from launch.stages.rl_loop import harvest_groups
from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.base import Plain
from learners.algorithms.terms import Terms
from rlsys.choices import choose
from rlsys.packing import make_batch
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
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


@dataclasses.dataclass(frozen=True)
class Centred(Plain):
    reduction: str = "group_total"

    def advantages(self, rewards):
        scored = [reward for reward in rewards if not math.isnan(reward)]
        mean = sum(scored) / max(1, len(scored))
        return [reward - mean for reward in rewards] if len(set(scored)) > 1 else None


def group(sequence: int, rewards: list[float | None], lengths: list[int]) -> Group:
    """None is a failed sibling."""
    task = Task(task_id=f"t:{sequence}", question="q")
    return Group(
        ticket=Ticket(sequence=sequence, epoch=0, task=task, attempt=0, start_version=1),
        worker="rollout:0",
        trajectories=tuple(
            Trajectory(
                task=task,
                sibling=sibling,
                turns=(Turn(context_ids=(1, 2), completion=completion(length), reply=None),),
                messages=(),
                end=EpisodeEnd.FAILED if reward is None else EpisodeEnd.ANSWERED,
                reward=Failure(kind=FailureKind.INFRA, where="rollout:0", detail="gone")
                if reward is None
                else Reward(value=reward, parts={"correct": reward}),
                timings=Timings(generate_s=0, tool_s=0, score_s=0),
            )
            for sibling, (reward, length) in enumerate(zip(rewards, lengths, strict=True))
        ),
    )


def completion(length: int) -> Completion:
    return Completion(
        token_ids=(7,) * length,
        logprobs=(-1.0,) * length,
        stop=TurnStop.EOS,
        text="",
        spans=(VersionSpan(version=1, start=0, end=length),),
    )


def test_failed_siblings_and_groups_without_signal_are_left_out_of_weights_and_shares() -> None:
    groups = [
        group(0, [1.0, None, 0.0], [3, 50, 1]),
        group(1, [0.5, 0.5, 0.5], [9, 9, 9]),
        group(2, [None, None, None], [2, 2, 2]),
        group(3, [0.0, 2.0, 4.0], [2, 0, 6]),
    ]
    harvest = harvest_groups(groups, Centred(), longest=100)
    assert harvest.outcomes == {0: "trained", 1: "filtered", 2: "failed", 3: "trained"}
    assert [harvest.metrics[f"groups/{name}"].value for name in ("trained", "filtered", "failed")] == [2, 1, 1]
    found = [(sample.advantages[-1], sample.weight, sample.share, sample.reward) for sample in harvest.samples]
    assert found == [
        (0.5, 1 / 4, 3 / 4, 1.0),
        (-0.5, 1 / 4, 1 / 4, 0.0),
        (-2.0, 1 / 8, 2 / 8, 0.0),
        (2.0, 1 / 8, 6 / 8, 4.0),
    ]
    assert sum(sample.share for sample in harvest.samples) == 2.0  # each trained group once


def test_a_step_where_all_groups_are_equal_gives_nothing_to_train_on() -> None:
    harvest = harvest_groups([group(0, [1.0, 1.0], [3, 3])], Centred(), longest=100)
    assert harvest.samples == [] and harvest.metrics["groups/filtered"].value == 1


@pytest.mark.parametrize(
    "name", [name for name in ALGORITHMS if issubclass(choose("algorithm", ALGORITHMS, name).schema, Terms)]
)
def test_a_reward_that_is_not_a_number_trains_nothing_and_moves_no_sibling(name: str) -> None:
    """Whoever let it through: its trajectory is left out as a failed one is. An infinite one ends the step."""
    algorithm = make_algorithm(choose("algorithm", ALGORITHMS, name).schema())

    def samples(*rewards: float) -> list[tuple[float, float]]:
        made = harvest_groups([group(0, list(rewards), [2] * len(rewards))], algorithm, longest=100).samples
        return [(sample.advantages[-1], sample.weight * sample.share) for sample in made]

    assert samples(1.0, math.nan, 0.0) == samples(1.0, None, 0.0) == samples(1.0, 0.0) != []
    with pytest.raises(ValueError, match="expected (a )?finite number"):
        samples(1.0, math.inf, 0.0)


def test_a_response_of_one_token_and_one_longer_than_a_row_are_rows_like_others() -> None:
    harvest = harvest_groups([group(0, [1.0, 0.0], [1, 30])], Centred(), longest=100)
    batch = make_batch(harvest.samples, 8, version=1)
    assert [(row.num_tokens, int(row.loss_mask.sum())) for row in batch.rows] == [(3, 1), (32, 30)]
    assert batch.denominators == (1.0,)  # of the one group, whichever way it is packed
    assert [row.share for row in batch.rows] == pytest.approx([1 / 31, 30 / 31])


def test_a_step_without_a_sample_makes_no_batch() -> None:
    with pytest.raises(ValueError, match="0 samples without a token to train on"):
        make_batch([], 8, version=1)
