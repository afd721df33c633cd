import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import make_row
from rlsys.reductions import weigh
from rlsys.samples import mask_stale, sample_trajectory
from rlsys.types import Reward, TokenStream, Trajectory, Turn, VersionSpan
from tests.makers import made
from tests.makers.made import completion, trajectory, turn


def test_turns_that_extend_each_other_become_one_token_exact_sample() -> None:
    first, last = turn((1, 2), (3, 4), version=(6, 7)), turn((1, 2, 3, 4, 5), (6,), version=7, logprobs=(-9.0,))
    (merged,) = sample_trajectory(trajectory(first, last), 0.5)
    assert merged.token_ids.tolist() == [1, 2, 3, 4, 5, 6] and merged.token_ids.dtype == np.int32
    assert merged.loss_mask.tolist() == [0, 0, 1, 1, 0, 1] and merged.loss_mask.dtype == np.bool_
    assert merged.behavior_logprobs.tolist() == [0.0, 0.0, -1.0, -2.0, 0.0, -9.0]
    assert merged.advantages.tolist() == [0.0, 0.0, 0.5, 0.5, 0.0, 0.5]
    assert merged.versions.tolist() == [-1, -1, 6, 7, -1, 7]
    assert (merged.reward, merged.weight, merged.share, merged.first_turn) == (1.0, 1.0, None, 1)


def test_a_turn_holds_what_it_adds_and_arrays_leave_a_pickle_as_buffers() -> None:
    turns = trajectory(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 5), (6,)), turn((1, 2, 3), (7,))).turns
    assert [(part.added_ids.tolist(), part.starts_sample) for part in turns] == [
        ([1, 2], True),
        ([5], False),
        ([1, 2, 3], True),
    ]
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(turns[0], protocol=5, buffer_callback=buffers.append)
    assert [len(buffer.raw()) for buffer in buffers] == [8, 8, 8]  # 4 bytes a token: ids seen, ids sampled, logprobs


def rewarded(played: Trajectory, values: tuple[float, ...]) -> Trajectory:
    stream = TokenStream(name="repetition", values=values, discount=0.99)
    return replace(played, reward=Reward(value=2.0, parts={"correct": 2.0}, streams=(stream,)))


def test_each_sample_has_the_value_on_its_last_sampled_token_and_its_part_of_the_streams() -> None:
    played = trajectory(turn((1, 2), (3, 4)), turn((1, 2, 3, 4, 5), (6,)), turn((9,), (7, 8)), sibling=2)
    first, second = sample_trajectory(rewarded(played, (0.0, -0.1, -0.2, -0.3, 0.0)), 0.5)
    row = make_row([first, second])
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 9, 7, 8]
    torch.testing.assert_close(
        row.rewards,
        torch.tensor([[0, 0, 0, 0, 0, 2.0, 0, 0, 2.0], [0, 0, 0, -0.1, 0, -0.2, 0, -0.3, 0]]),
    )
    assert row.discounts == (1.0, 0.99)
    (alone,) = sample_trajectory(trajectory(turn((1,), (2,))), 1.0)
    assert make_row([alone]).rewards.tolist() == [[0.0, 1.0]]
    with pytest.raises(ValueError, match="different reward streams"):
        make_row([first, alone])
    with pytest.raises(ValueError, match=r"stream 'repetition' of trajectory 2 .* 2 values for 5 sampled tokens"):
        sample_trajectory(rewarded(played, (0.0, 0.0)), 0.5)


@pytest.mark.parametrize("context", [(1, 2, 9, 4, 5), (1, 2, 3), (8,)])
def test_a_rewritten_context_starts_a_new_sample(context: tuple[int, ...]) -> None:
    first, second = sample_trajectory(trajectory(turn((1, 2), (3, 4)), turn(context, (6,))), -1.0)
    assert first.token_ids.tolist() == [1, 2, 3, 4] and first.loss_mask.tolist() == [0, 0, 1, 1]
    assert second.token_ids.tolist() == [*context, 6] and second.loss_mask.tolist() == [0] * len(context) + [1]


def test_nothing_sampled_gives_no_sample_and_no_trailing_tokens() -> None:
    assert sample_trajectory(trajectory(), 1.0) == []
    assert sample_trajectory(trajectory(turn((1, 2), ())), 1.0) == []
    (only,) = sample_trajectory(trajectory(turn((1,), (2,)), turn((1, 2, 3, 4), ())), 1.0)
    assert only.token_ids.tolist() == [1, 2]


@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_failed_sibling_cannot_be_trained(advantage: float) -> None:
    with pytest.raises(ValueError, match="trajectory 2 of task 't:1'"):
        sample_trajectory(trajectory(turn((1,), (2,)), sibling=2), advantage)


WHOLE = completion((2, 3))


@pytest.mark.parametrize(
    ("context", "sampled", "message"),
    [
        ((), WHOLE, "turn 0 .* empty context"),
        ((1,), replace(WHOLE, spans=(VersionSpan(version=1, start=0, end=1),)), "cover 1 of 2 tokens"),
        ((1,), replace(WHOLE, spans=(VersionSpan(version=1, start=1, end=2),)), "expected it to start at 0"),
    ],
)
def test_a_turn_that_breaks_the_contract_is_named(context, sampled, message) -> None:
    with pytest.raises(ValueError, match=message):
        spoken = Turn(added_ids=made.ints(context), starts_sample=True, completion=sampled, reply=None)
        sample_trajectory(trajectory(spoken), 1.0)


def test_a_version_that_sampled_nothing_changes_nothing() -> None:
    spans = (VersionSpan(version=1, start=0, end=0), VersionSpan(version=2, start=0, end=2))
    spoken = Turn(added_ids=made.ints((1,)), starts_sample=True, completion=replace(WHOLE, spans=spans), reply=None)
    (sample,) = sample_trajectory(trajectory(spoken), 1.0)
    assert sample.versions.tolist() == [-1, 2, 2]


def test_missing_logprobs_are_named() -> None:
    with pytest.raises(ValueError, match="1 logprobs for 2 tokens"):
        sample_trajectory(trajectory(turn((1,), (2, 3), logprobs=(-1.0,))), 1.0)


turns_of_an_episode = st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.integers(0, 4)), max_size=6)


@settings(deadline=None)  # a busy machine is no counterexample
@given(turns_of_an_episode)
def test_every_sampled_token_is_in_exactly_one_sample(shape: list[tuple[bool, int, int]]) -> None:
    turns, history, fresh = [], [], iter(range(1, 1000))
    for rewritten, num_context, num_sampled in shape:
        reply = [next(fresh) for _ in range(num_context)]
        context = [next(fresh), *reply] if rewritten or not history else [*history, *reply]
        token_ids = [next(fresh) for _ in range(num_sampled)]
        turns.append(turn(context, token_ids))
        history = context + token_ids
    samples = sample_trajectory(trajectory(*turns), 0.5)
    trained = [token for s in samples for token, mask in zip(s.token_ids, s.loss_mask, strict=True) if mask]
    assert trained == [token for part in turns for token in part.completion.token_ids]
    assert all(s.loss_mask[0] == 0 and s.loss_mask[-1] == 1 for s in samples)


MIXED = made.sample(
    (0, 1, 1, 0, 1, 1),
    logprobs=(-1.0, -2.0, -3.0, -4.0),
    advantages=0.5,
    versions=(4, 5, 5, 7),  # the weights changed inside the first turn and inside the second
    reward=1.0,
    streams=(TokenStream(name="repetition", values=(0.1, 0.2, 0.3, 0.4), discount=0.9),),
)


def test_stale_tokens_of_a_turn_become_context_and_its_newer_ones_stay() -> None:
    sample = mask_stale(MIXED, version=7, max_token_lag=2)
    assert sample is not None
    assert sample.loss_mask.tolist() == [0, 0, 1, 0, 1, 1]
    assert sample.advantages.tolist() == [0.0, 0.0, 0.5, 0.0, 0.5, 0.5]
    assert sample.streams[0].values == (0.2, 0.3, 0.4)
    assert sample.token_ids is MIXED.token_ids  # still seen by the tokens after them
    (weighed,) = weigh([[[sample]]], "sequence_mean")
    row = make_row([weighed])
    assert row.weights.tolist() == pytest.approx([0, 0, 1 / 3, 0, 1 / 3, 1 / 3]) and row.share == 1.0
    assert row.rewards is not None
    assert row.rewards.tolist() == [[0, 0, 0, 0, 0, 1], pytest.approx([0, 0, 0.2, 0, 0.3, 0.4])]


def test_a_limit_that_nothing_exceeds_changes_nothing_and_one_that_all_exceed_leaves_nothing() -> None:
    assert mask_stale(MIXED, version=7, max_token_lag=3) is MIXED
    assert mask_stale(MIXED, version=8, max_token_lag=0) is None
