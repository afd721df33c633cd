"""A batch that was planned by numbers alone is, once built, the batch of the samples themselves."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import Batch, build_batch, make_row, padding_row
from rlsys.plan import BatchPlan, plan_batch, shard_plan
from rlsys.reductions import weigh
from rlsys.samples import SampleRef, mask_stale, sample_refs, sample_trajectory
from rlsys.summaries import GroupRef, refer_to
from rlsys.types import Group, Reward, Sample, TokenStream, Trajectory
from tests.makers import made
from tests.makers.made import group, make_batch, ticket, trajectory, turn


def sample(length: int, start: int = 0) -> Sample:
    """A prompt of one token, then sampled ones. Token ids count up from `start`."""
    return made.sample((0,) + (1,) * (length - 1), token_ids=range(start, start + length), advantages=0.5)


def samples_of(lengths: list[int]) -> list[Sample]:
    return [sample(length, start=1000 * index) for index, length in enumerate(lengths)]


def test_a_row_restarts_positions_at_every_sample() -> None:
    row = make_row([sample(3), sample(2, start=10)])
    assert row.token_ids.tolist() == [0, 1, 2, 10, 11]
    assert row.position_ids.tolist() == [0, 1, 2, 0, 1]
    assert row.cu_seqlens.tolist() == [0, 3, 5]
    assert row.loss_mask.tolist() == [0, 1, 1, 0, 1]
    assert row.versions.tolist() == [-1, 3, 3, -1, 3]
    dtypes = [
        row.token_ids.dtype,
        row.position_ids.dtype,
        row.cu_seqlens.dtype,
        row.loss_mask.dtype,
        row.versions.dtype,
    ]
    assert dtypes == [torch.int64, torch.int64, torch.int32, torch.float32, torch.int64]
    assert row.behavior_logprobs.dtype == row.advantages.dtype == torch.float32


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "no samples"),
        (
            [sample(2), made.sample(())],
            "sample 1 .* empty",
        ),
        ([replace(sample(2), versions=(-1,))], "1 versions for 2 tokens"),
        ([replace(sample(2), loss_mask=(1, 1))], "first token is in the loss"),
    ],
)
def test_a_row_of_bad_samples_is_refused(samples: list[Sample], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_row(samples)


def test_a_demonstration_has_no_rewards() -> None:
    assert make_row([sample(3)]).rewards is None and make_row([sample(3)]).discounts == ()


def test_a_row_weighs_its_tokens_and_adds_up_its_shares() -> None:
    row = make_row([replace(sample(3), weight=0.5, share=0.25), sample(2)])
    assert row.weights.tolist() == [0, 0.5, 0.5, 0, 1] and row.weights.dtype == torch.float32
    assert row.share == 1.25  # a sample that says nothing counts its loss tokens
    assert make_batch([sample(5), sample(3)], 100, version=0).denominators == (6.0,)


VERSION, ADVANTAGE = 5, 0.5

# Turns: whether the context was rewritten, tokens added to it, and the version of each token that was sampled.
turns = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.lists(st.integers(1, VERSION), max_size=4)), max_size=5)
groups_of_turns = st.lists(st.lists(turns, min_size=1, max_size=3), min_size=1, max_size=4)


def episode(sibling: int, shape: list[tuple[bool, int, list[int]]]) -> Trajectory:
    spoken, seen, number = [], [], sibling * 1000
    for rewritten, added, versions in shape:
        new = list(range(number + 1, number + 1 + added + (rewritten or not seen)))
        sampled = list(range(number + 500, number + 500 + len(versions)))
        context = new if rewritten or not seen else [*seen, *new]
        spoken.append(turn(context, sampled, version=sorted(versions)))
        seen, number = [*context, *sampled], number + 20
    num_sampled = sum(len(versions) for _, _, versions in shape)
    stream = TokenStream(name="s", values=tuple(0.1 * at for at in range(num_sampled)), discount=0.9)
    return trajectory(*spoken, sibling=sibling, reward=Reward(value=sibling / 2, parts={}, streams=(stream,)))


def samples_in(found: list[Group], max_token_lag: int | None) -> list[list[list[Sample]]]:
    options: dict[str, Any] = {"version": VERSION, "max_token_lag": max_token_lag}
    return [
        [
            [
                rest
                for piece in sample_trajectory(sibling, ADVANTAGE)
                if (rest := mask_stale(piece, **options)) is not None
            ]
            for sibling in group.trajectories
        ]
        for group in found
    ]


def refs_to(found: list[GroupRef], max_token_lag: int | None) -> list[list[list[SampleRef]]]:
    options: dict[str, Any] = {"advantage": ADVANTAGE, "version": VERSION, "max_token_lag": max_token_lag}
    return [
        [sample_refs(summary, group_id=group.ticket.sequence, **options)[0] for summary in group.summaries]
        for group in found
    ]


def plan_of(refs: list[SampleRef], groups: list[GroupRef], tokens_per_row: int, **how: Any) -> BatchPlan:
    sources = {ref.ticket.sequence: ref.source for ref in groups}
    discounts = groups[0].summaries[0].reward.discounts  # type: ignore[union-attr]
    return plan_batch(refs, sources, tokens_per_row, VERSION, discounts=discounts, **how)


def same(ours: Batch, theirs: Batch) -> None:
    assert replace(ours, rows=()) == replace(theirs, rows=())
    for row, other in zip(ours.rows, theirs.rows, strict=True):
        for field in fields(row):
            a, b = getattr(row, field.name), getattr(other, field.name)
            assert torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b


@settings(deadline=None, max_examples=60)
@given(
    groups_of_turns,
    st.sampled_from([None, 0, 2]),
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 3),
    st.booleans(),
)
def test_rows_are_those_that_the_samples_would_have_made(
    shapes: list[list[list[tuple[bool, int, list[int]]]]],
    max_lag: int | None,
    row: int,
    minibatches: int,
    ranks: int,
    in_order: bool,
) -> None:
    groups = [
        group(ticket(sequence), *(episode(sibling, shape) for sibling, shape in enumerate(siblings)))
        for sequence, siblings in enumerate(shapes)
    ]
    known = [refer_to(entry) for entry in groups]
    samples = weigh(samples_in(groups, max_lag), "sequence_mean")
    refs = weigh(refs_to(known, max_lag), "sequence_mean")
    expected = [(item.num_tokens, item.num_loss_tokens, item.weight, item.share) for item in samples]
    assert [(ref.num_tokens, ref.num_loss_tokens, ref.weight, ref.share) for ref in refs] == expected
    if not samples:
        return
    whole = make_batch(samples, row, VERSION, minibatches=minibatches, in_order=in_order)
    plan = plan_of(refs, known, row, minibatches=minibatches, max_token_lag=max_lag, in_order=in_order)
    assert (plan.num_tokens, plan.denominators) == (whole.num_tokens, whole.denominators)
    same(build_batch(plan, plan.sources), whole)
    shards = made.make_shards(samples, row, VERSION, ranks, minibatches=minibatches, in_order=in_order)
    for part, rows in zip(shard_plan(plan, ranks), shards, strict=True):
        same(build_batch(part, part.sources), rows)
        assert part.sources.keys() == {ref.group_id for batch in part.micro_batches for ref in batch.samples}


def test_tokens_that_were_not_planned_are_refused() -> None:
    known = refer_to(group(ticket(3), trajectory(turn((1, 2), (3, 4)))))
    plan = plan_of(refs_to([known], None)[0][0], [known], 8)
    other = group(ticket(3), trajectory(turn((1, 2), (3,))))
    with pytest.raises(ValueError, match=r"the tokens of \(3, 0\) are not those that were planned"):
        build_batch(plan, {3: other})


def test_a_padding_row_weighs_nothing_and_has_the_streams_of_its_minibatch() -> None:
    row = padding_row(3, (1.0, 0.9))
    assert (row.minibatch, row.share, row.discounts) == (3, 0.0, (1.0, 0.9))
    assert row.rewards is not None and row.rewards.shape == (2, len(row.token_ids)) and not row.rewards.any()
    assert not row.loss_mask.any() and not row.weights.any()
    assert padding_row(0, ()).rewards is None
