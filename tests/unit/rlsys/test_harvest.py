"""From a step's groups to weighted references to samples. What failed or says nothing is left out and counted."""

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from envs.base import Step
from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.base import Algorithm
from learners.algorithms.terms import KLTerm
from rlsys.batch import Batch, build_batch
from rlsys.choices import choose
from rlsys.config.loop import LoopConfig
from rlsys.errors import RunFailed
from rlsys.group_rollout import run_group
from rlsys.harvest import (
    Harvest,
    check_failures,
    deviation,
    harvest_groups,
    metrics_by_env,
    refuse_unread_streams,
    trajectory_metrics,
)
from rlsys.metrics import Mean, values
from rlsys.plan import plan_batch
from rlsys.rendering import Continuation
from rlsys.rollout import TurnRequest
from rlsys.summaries import GroupRef, credit_group, refer_to
from rlsys.types import (
    Completion,
    EpisodeEnd,
    Failure,
    FailureKind,
    Group,
    Message,
    Reward,
    Task,
    TokenStream,
    ToolCall,
    ToolOffer,
    Transcript,
)
from tests.makers import made
from tests.makers.made import completion, plan, ticket, trajectory, turn
from tests.makers.made import group as group_of
from tests.refused import refused

GONE = Failure(kind=FailureKind.INFRA, where="rollout:0", detail="gone")


@dataclasses.dataclass(frozen=True)
class Centred(Algorithm):
    reduction: str = "group_total"

    def advantages(self, rewards):
        scored = [reward for reward in rewards if not math.isnan(reward)]
        mean = sum(scored) / max(1, len(scored))
        return [reward - mean for reward in rewards] if len(set(scored)) > 1 else None


def group(sequence: int, rewards: list[float | None], lengths: list[int]) -> GroupRef:
    """Siblings by their rewards, None for a failed one, all sampled by the same weights."""
    return sampled_by(sequence, *zip(rewards, ((1,) * length for length in lengths), strict=True))


def sampled_by(sequence: int, *siblings: tuple[float | None, tuple[int, ...]]) -> GroupRef:
    """Siblings as (reward, version of each token)."""
    siblings_played = (
        trajectory(
            turn((1, 2), (7,) * len(versions), version=versions),
            sibling=sibling,
            reward=GONE if reward is None else reward,
        )
        for sibling, (reward, versions) in enumerate(siblings)
    )
    return refer_to(group_of(ticket(sequence), *siblings_played, worker="rollout:0"))


def rows_of(harvest: Harvest, groups: list[GroupRef], tokens_per_row: int, version: int, **how: Any) -> Batch:
    sources = {ref.ticket.sequence: ref.source for ref in groups}
    plan = plan_batch(harvest.samples, sources, tokens_per_row, version, **how)
    return build_batch(plan, sources)


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
    assert harvest.means == {0: 0.5, 1: 0.5, 3: 2.0}
    shares = [(ref.advantage, ref.weight, ref.share, ref.num_loss_tokens) for ref in harvest.samples]
    assert shares == [
        (0.5, 1 / 4, 3 / 4, 3),
        (-0.5, 1 / 4, 1 / 4, 1),
        (-2.0, 1 / 8, 2 / 8, 2),
        (2.0, 1 / 8, 6 / 8, 6),
    ]
    assert sum(ref.share for ref in harvest.samples) == 2.0  # each trained group once


def test_a_step_where_all_groups_are_equal_gives_nothing_to_train_on() -> None:
    harvest = harvest_groups([group(0, [1.0, 1.0], [3, 3])], Centred(), longest=100)
    assert harvest.samples == [] and harvest.metrics["groups/filtered"].value == 1


@pytest.mark.parametrize(
    "name", [name for name in ALGORITHMS if issubclass(choose("algorithm", ALGORITHMS, name).schema, KLTerm)]
)
def test_a_reward_that_is_not_a_number_trains_nothing_and_moves_no_sibling(name: str) -> None:
    """Whoever let it through: its trajectory is left out as a failed one is. An infinite one ends the step."""
    algorithm = make_algorithm(choose("algorithm", ALGORITHMS, name).schema())

    def samples(*rewards: float) -> list[tuple[float, float]]:
        refs = harvest_groups([group(0, list(rewards), [2] * len(rewards))], algorithm, longest=100).samples
        return [(ref.advantage, ref.weight * ref.share) for ref in refs]

    assert samples(1.0, math.nan, 0.0) == samples(1.0, None, 0.0) == samples(1.0, 0.0) != []
    with pytest.raises(ValueError, match="expected (a )?finite number"):
        samples(1.0, math.inf, 0.0)


def cut_off(rewards: list[float | None], cut: tuple[int, ...], sequence: int = 0) -> GroupRef:
    """Siblings of two tokens each, of which a token limit cut some off."""
    whole = group(sequence, rewards, [2] * len(rewards))
    ended = (
        replace(summary, end=EpisodeEnd.TOKEN_LIMIT) if at in cut else summary
        for at, summary in enumerate(whole.summaries)
    )
    return replace(whole, summaries=tuple(ended))


@pytest.mark.parametrize(
    ("truncated", "cut", "expected"),
    [
        ("train", (1,), {0: 3.0, 1: -3.0, 2: 0.0}),
        ("mask", (1,), {0: 3.0, 2: 0.0}),  # the mean of 6, 0 and 3
        ("leave_out", (1,), {0: 1.5, 2: -1.5}),  # the mean of 6 and 3
        ("mask", (0, 1, 2), {}),
        ("leave_out", (0, 1, 2), {}),
        ("leave_out", (0, 1), {}),  # one is left, and has no other to be compared with
    ],
)
def test_what_was_cut_off_is_trained_masked_or_left_out_of_the_baseline(
    truncated: str, cut: tuple[int, ...], expected: dict[int, float]
) -> None:
    config = choose("algorithm", ALGORITHMS, "grpo").schema(normalize_std=False, truncated=truncated)
    algorithm, played = make_algorithm(config), cut_off([6.0, 0.0, 3.0], cut)
    harvest = harvest_groups([played, cut_off([None, None, None], (), 1)], algorithm, longest=100)
    assert {ref.sibling: ref.advantage for ref in harvest.samples} == pytest.approx(expected)
    assert sum(ref.share for ref in harvest.samples) == 2 * len(expected)  # tokens of the mean
    assert harvest.outcomes == {0: "trained" if expected else "filtered", 1: "failed"}
    assert (
        harvest.signals
        == {0: bool(expected), 1: None}
        == {ref.ticket.sequence: credit_group(algorithm, ref)[0] for ref in (played, cut_off([None] * 3, (), 1))}
    )
    assert harvest.metrics["tokens/truncated"].value == (2 * len(cut) if expected and truncated != "train" else 0)
    assert harvest.means[0] == 3.0 and len(harvest.rewards) == 3  # what is reported is about all of them


def test_a_response_of_one_token_and_one_longer_than_a_row_are_rows_like_others() -> None:
    groups = [group(0, [1.0, 0.0], [1, 30])]
    batch = rows_of(harvest_groups(groups, Centred(), longest=100), groups, 8, version=1)
    assert [(row.num_tokens, int(row.loss_mask.sum())) for row in batch.rows] == [(3, 1), (32, 30)]
    assert batch.denominators == (1.0,)  # of the one group, whichever way it is packed
    assert [row.share for row in batch.rows] == pytest.approx([1 / 31, 30 / 31])


def test_a_step_without_a_sample_makes_no_batch() -> None:
    with pytest.raises(ValueError, match="0 samples without a token to train on"):
        plan_batch([], {}, 8, version=1)


# -- tokens past `loop.max_token_lag` ---------------------------------------------------------------------------------

NOW = 7  # the version that is trained
GROUPS = [
    sampled_by(0, (1.0, (4, 5, 5, 7)), (0.0, (4, 4)), (0.5, (6, 7))),  # of two versions; all old; all new
    sampled_by(1, (1.0, (4, 4)), (0.0, (3,))),  # nothing of it is new enough
    sampled_by(2, (1.0, (4,)), (1.0, (4,))),  # without signal anyway
]


def test_old_tokens_become_context_and_their_trajectory_stays_in_the_baseline() -> None:
    harvest = harvest_groups(GROUPS, Centred(), longest=100, version=NOW, max_token_lag=2)
    first, second = rows_of(harvest, GROUPS, 1, NOW, max_token_lag=2).rows
    assert first.loss_mask.tolist() == [0, 0, 0, 1, 1, 1] and first.versions[2:].tolist() == [4, 5, 5, 7]
    assert second.loss_mask.tolist() == [0, 0, 1, 1]
    # The mean of 1, 0 and 0.5: the sibling without tokens is one of three.
    assert (first.advantages[-1], second.advantages[-1]) == (0.5, 0.0)
    assert harvest.advantages[0, 1] == -0.5
    # Weighed after masking: five tokens are the whole group.
    assert [(ref.weight, ref.share) for ref in harvest.samples] == [(1 / 5, 3 / 5), (1 / 5, 2 / 5)]


def test_several_environments_are_counted_apart_and_add_up() -> None:
    names = {0: "sums", 1: "words", 2: "sums"}
    groups = [group(0, [1.0, 0.0], [3, 1]), group(1, [0.5, 0.5], [9, 9]), group(2, [0.0, 4.0], [2, 6])]
    groups = [
        dataclasses.replace(ref, ticket=ticket(number, task=Task(task_id=f"{names[number]}/{number}", question="?")))
        for number, ref in enumerate(groups)
    ]
    harvest = harvest_groups(groups, Centred(), longest=100)
    row = values(metrics_by_env(groups, harvest.outcomes, ["sums", "words", "graphs"], 0))
    assert (row["by_env/sums/reward/mean"], row["by_env/words/reward/mean"]) == (1.25, 0.5)
    assert (row["by_env/sums/groups/trained"], row["by_env/words/groups/filtered"]) == (2, 1)
    assert row["by_env/graphs/episode/count"] == 0  # of which this step has no group
    whole = values(harvest.metrics)
    for key in ("tokens/generated", "episode/count", "groups/trained", "tokens/in_filtered_groups"):
        assert row[f"by_env/sums/{key}"] + row[f"by_env/words/{key}"] == whole[key]
    assert metrics_by_env(groups, harvest.outcomes, [], 0) == {}


def test_a_group_of_old_tokens_alone_is_filtered_and_the_tokens_add_up() -> None:
    harvest = harvest_groups(GROUPS, Centred(), longest=100, version=NOW, max_token_lag=2)
    assert harvest.outcomes == {0: "trained", 1: "filtered", 2: "filtered"}  # each prompt once, none failed
    counted = {name: metric.value for name, metric in harvest.metrics.items()}
    assert counted["tokens/stale"] == (1 + 2) + (2 + 1)  # what had no signal was left out for that
    assert (counted["tokens/in_trained_groups"], counted["tokens/in_filtered_groups"]) == (8, 3 + 2)
    assert sum(ref.num_loss_tokens for ref in harvest.samples) == 8 - 3


@pytest.mark.parametrize("limit", [None, 4, 100])
def test_a_limit_that_nothing_exceeds_leaves_all_as_it_is(limit: int | None) -> None:
    harvest = harvest_groups(GROUPS, Centred(), longest=100, version=NOW, max_token_lag=limit)
    assert harvest.outcomes == {0: "trained", 1: "trained", 2: "filtered"}
    assert harvest.metrics["tokens/stale"].value == 0
    assert sum(ref.num_loss_tokens for ref in harvest.samples) == 8 + 3


def test_a_lag_below_zero_is_refused_and_one_that_does_nothing_is_not() -> None:
    with refused("loop.max_token_lag", found=-1):
        LoopConfig(max_token_lag=-1)
    assert LoopConfig(max_policy_lag=1, max_token_lag=5).slots == 64


# -- what the row and the driver's state get --------------------------------------------------------------------------


def test_what_a_harvest_says_of_rewards_lags_and_failures() -> None:
    ref = sampled_by(0, (1.0, (4, 6)), (None, (5,)), (0.5, ()))
    retried = dataclasses.replace(ref.summaries[2], retried=(ref.summaries[1].reward,))
    ref = dataclasses.replace(ref, summaries=(*ref.summaries[:2], retried))
    harvest = harvest_groups([ref], Centred(), longest=100, version=7)
    assert (harvest.rewards, harvest.lags) == ([1.0, 0.5], [3, 2])  # the third has no token
    assert harvest.failures == {"infra": 1, "timeout": 0, "data": 0, "retried": 1}
    row = values(harvest.metrics)
    assert (row["reward/mean"], row["reward/max"], row["reward/min"]) == (0.75, 1.0, 0.5)
    assert row["reward/std"] == 0.25  # of 1.0 and 0.5
    assert (row["lag/mean"], row["lag/max"], row["lag/mixed_versions"]) == (2.5, 3.0, 0.5)
    assert (row["failures/infra"], row["failures/retried"], row["episode/answered"]) == (1.0, 1.0, pytest.approx(2 / 3))
    with pytest.raises(RunFailed, match=r"1 of 3 trajectories of this step failed .*: infra in rollout:0: gone"):
        check_failures([ref], 0.3)
    check_failures([ref], 0.34)


def test_rewards_per_token_that_nobody_would_read_end_the_run() -> None:
    ref = sampled_by(0, (1.0, (4, 6)), (None, (5,)))
    stream = TokenStream(name="hedging", values=(0.0, -0.1), discount=0.9)
    scored = dataclasses.replace(ref.summaries[0], reward=Reward(value=1.0, parts={"a": 1.0}, streams=(stream,)))
    streamed = dataclasses.replace(ref, summaries=(scored, *ref.summaries[1:]))
    assert trajectory_metrics(scored)["reward/stream/hedging"] == Mean(-0.1)
    refuse_unread_streams([ref, streamed], read=True)
    refuse_unread_streams([ref], read=False)
    with pytest.raises(RunFailed, match="the token stream 'hedging', and the algorithm reads none"):
        refuse_unread_streams([ref, streamed], read=False)


class Counts:
    """A world's episode: two calls, of which the first fails, then the answer; numbers come with each step."""

    stop_strings = ()

    def __init__(self, task: Task) -> None:
        self.errors = [1.0, 0.0] if task.answers else [0.0, 0.0]

    def first_messages(self) -> tuple[Message, ...]:
        return (Message(role="user", content="q"),)

    async def step(self, text: str, *, turns_left: int) -> Step:
        if not self.errors:
            return Step(end=EpisodeEnd.ANSWERED, metrics={"seen": 3})
        return Step(reply=Message(role="user", content="go on"), metrics={"errors": self.errors.pop(0), "seen": 1})


class Ids:
    def under(self, template_args: Mapping[str, Any]) -> "Ids":
        return self

    def prompt_ids(self, messages: Sequence[Message], offer: ToolOffer | None = None) -> tuple[int, ...]:
        return (1,)

    def extend(self, context: Any, completion: Any, messages: Any, replies: Any, *_: Any) -> Continuation:
        return Continuation(context_ids=(*context, *completion.token_ids, 2), replies=replies, num_reply_tokens=1)

    def read_calls(self, text: str, offer: ToolOffer) -> tuple[ToolCall, ...]:
        return ()


def played(sequence: int, answers: tuple[str, ...] = (), make_env: Any = Counts) -> Group:
    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return completion((7,))

    async def score(transcript: Transcript) -> Reward:
        return Reward(value=1.0, parts={})

    task = Task(task_id=f"t:{sequence}", question="q", answers=answers)
    player, source = made.player(Ids(), generate), made.Source(make_env, 4, score)
    return asyncio.run(run_group(player, source, ticket(sequence, task=task), plan()))


def test_a_number_of_an_environment_is_a_column_of_the_row() -> None:
    groups = [refer_to(played(0, ("5",))), refer_to(played(1))]
    groups.append(group(2, [1.0], [1]))  # of an environment that counts nothing
    assert groups[0].summaries[0].metrics == {"errors": 1.0, "seen": 5, "reply_tokens": 2}
    row = values(harvest_groups(groups, Centred(), longest=100).metrics)
    assert (row["env/errors"], row["env/seen"]) == (pytest.approx(1 / 3), pytest.approx(10 / 3))


def test_an_environments_number_that_is_none_is_its_failure() -> None:
    class Broken(Counts):
        async def step(self, text: str, *, turns_left: int) -> Step:
            return Step(end=EpisodeEnd.ANSWERED, metrics={"errors": math.nan})

    reward = played(0, make_env=Broken).trajectories[0].reward
    assert isinstance(reward, Failure) and (reward.kind, reward.where) == (FailureKind.DATA, "environment")
    assert "finite metrics" in reward.detail


@pytest.mark.parametrize("largest", [3.4028234663852886e38, 1e155, 1.7e308])
def test_the_deviation_of_rewards_never_raises(largest: float) -> None:
    assert deviation([largest, 0.0]) == pytest.approx(largest / 2) or math.isinf(deviation([largest, 0.0]))


def test_an_algorithm_that_returns_too_few_advantages_is_an_error() -> None:
    class Short(Centred):
        def advantages(self, rewards):
            return super().advantages(rewards)[1:]

    with pytest.raises(ValueError, match="shorter"):
        harvest_groups([group(0, [1.0, 0.0], [1, 1])], Short(), longest=4)
