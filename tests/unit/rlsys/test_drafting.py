"""A batch that was planned by numbers alone is, once built, the batch of the samples themselves."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import Batch
from rlsys.drafting import build_batch, draft_batch, split_draft
from rlsys.off_policy import mask_stale
from rlsys.outlines import Draft, Played, drafts, outlines, played
from rlsys.packing import make_batch, sample_trajectory, split_rows
from rlsys.reductions import weigh
from rlsys.types import Group, Reward, Sample, TokenStream, Trajectory
from tests.made import group, ticket, trajectory, turn

VERSION, ADVANTAGE = 5, 0.5

# Turns: whether the context was rewritten, tokens added to it, and the version of each token that was sampled.
turns = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.lists(st.integers(1, VERSION), max_size=4)), max_size=5)
groups_of_turns = st.lists(st.lists(turns, min_size=1, max_size=3), min_size=1, max_size=4)


def episode(sibling: int, shape: list[tuple[bool, int, list[int]]]) -> Trajectory:
    said, seen, number = [], [], sibling * 1000
    for rewritten, added, versions in shape:
        new = list(range(number + 1, number + 1 + added + (rewritten or not seen)))
        sampled = list(range(number + 500, number + 500 + len(versions)))
        context = new if rewritten or not seen else [*seen, *new]
        said.append(turn(context, sampled, version=sorted(versions)))
        seen, number = [*context, *sampled], number + 20
    num_sampled = sum(len(versions) for _, _, versions in shape)
    stream = TokenStream(name="s", values=tuple(0.1 * at for at in range(num_sampled)), discount=0.9)
    return trajectory(*said, sibling=sibling, reward=Reward(value=sibling / 2, parts={}, streams=(stream,)))


def samples_of(found: list[Group], max_token_lag: int | None) -> list[list[list[Sample]]]:
    def fresh(sample: Sample) -> Sample | None:
        return sample if max_token_lag is None else mask_stale(sample, version=VERSION, max_token_lag=max_token_lag)

    return [
        [
            [kept for each in sample_trajectory(one, ADVANTAGE) if (kept := fresh(each)) is not None]
            for one in group.trajectories
        ]
        for group in found
    ]


def drafts_of(found: list[Played], max_token_lag: int | None) -> list[list[list[Draft]]]:
    given: dict[str, Any] = {"advantage": ADVANTAGE, "version": VERSION, "max_token_lag": max_token_lag}
    return [[drafts(one, sequence=group.ticket.sequence, **given)[0] for one in group.outlines] for group in found]


def same(ours: Batch, theirs: Batch) -> None:
    assert replace(ours, rows=()) == replace(theirs, rows=())
    for one, other in zip(ours.rows, theirs.rows, strict=True):
        for field in fields(one):
            a, b = getattr(one, field.name), getattr(other, field.name)
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
    found = [
        group(ticket(sequence), *(episode(sibling, shape) for sibling, shape in enumerate(siblings)))
        for sequence, siblings in enumerate(shapes)
    ]
    known = [played(each) for each in found]
    samples = weigh(samples_of(found, max_lag), "sequence_mean")
    drafted = weigh(drafts_of(known, max_lag), "sequence_mean")
    told = [(each.num_tokens, each.num_loss_tokens, each.weight, each.share) for each in samples]
    assert [(each.num_tokens, each.num_loss_tokens, each.weight, each.share) for each in drafted] == told
    if not samples:
        return
    whole = make_batch(samples, row, VERSION, minibatches=minibatches, in_order=in_order)
    draft = draft_batch(drafted, known, row, VERSION, minibatches=minibatches, max_token_lag=max_lag, in_order=in_order)
    assert (draft.num_tokens, draft.denominators) == (whole.num_tokens, whole.denominators)
    same(build_batch(draft, draft.sources), whole)
    for part, rows in zip(split_draft(draft, ranks), split_rows(whole, ranks), strict=True):
        same(build_batch(part, part.sources), rows)
        assert part.sources.keys() == {each.sequence for row in part.rows for each in row.drafts}


def test_tokens_that_were_not_drafted_are_refused() -> None:
    known = played(group(ticket(3), trajectory(turn((1, 2), (3, 4)))))
    draft = draft_batch(drafts_of([known], None)[0][0], [known], 8, VERSION)
    other = group(ticket(3), trajectory(turn((1, 2), (3,))))
    with pytest.raises(ValueError, match=r"the tokens of \(3, 0\) are not those that were drafted"):
        build_batch(draft, {3: other})


def test_an_outline_has_neither_tokens_nor_text() -> None:
    judged = Reward(
        value=1.0, parts={"a": 1.0}, streams=(TokenStream(name="s", values=(0.5, 0.5), discount=0.9),),
        judgements=("x" * 1000,),
    )  # fmt: skip
    (seen,) = outlines(group(ticket(0), trajectory(turn((1, 2), (3, 4), text="four", version=(1, 2)), reward=judged)))
    assert seen.reward == Reward(
        value=1.0, parts={"a": 1.0}, streams=(TokenStream(name="s", values=(1.0,), discount=0.9),)
    )
    assert (seen.num_sampled, seen.oldest_version, seen.versions) == (2, 1, {1, 2})
    assert (seen.turns.tolist(), seen.spans.tolist()) == ([[1, 2, 2]], [[0, 1, 1], [0, 2, 1]])
    assert "four" not in repr(seen)
