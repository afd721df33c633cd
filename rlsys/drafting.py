"""A batch by the drafts of its samples: packed, dealt to ranks and counted before anybody has fetched a token.

The driver plans; each rank fetches the groups that its rows need and builds them. The rows are those that
`rlsys.packing.make_batch` would have made of the samples themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rlsys.batch import Batch, Row
from rlsys.off_policy import mask_stale
from rlsys.outlines import Draft, Played
from rlsys.packing import deal, denominators, make_row, padding_row, plan_rows, row_cost, sample_trajectory
from rlsys.types import Group, Reward, Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class RowDraft:
    drafts: tuple[Draft, ...]  # none: a row without weight
    minibatch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDraft:
    """A `Batch`, or one rank's part of it, whose tokens are elsewhere."""

    rows: tuple[RowDraft, ...]
    num_samples: int
    num_loss_tokens: int
    version: int
    denominators: tuple[float, ...]
    max_token_lag: int | None
    discounts: tuple[float, ...]  # [M] of the reward streams, of the value first
    sources: Mapping[int, Any] = field(repr=False)  # where each group lies, by sequence

    @property
    def num_tokens(self) -> int:
        return sum(draft.num_tokens for row in self.rows for draft in row.drafts)


def draft_batch(
    drafts: Sequence[Draft],
    groups: Sequence[Played],
    tokens_per_row: int,
    version: int,
    *,
    minibatches: int = 1,
    max_token_lag: int | None = None,
    in_order: bool = False,
) -> BatchDraft:
    """Everything one update trains on; arguments and order as in `make_batch`. groups: among them those of `drafts`."""
    planned = plan_rows(drafts, tokens_per_row, minibatches=minibatches, in_order=in_order)
    rewards = (each.reward for group in groups for each in group.outlines)
    streams = next((reward.streams for reward in rewards if isinstance(reward, Reward)), ())
    return BatchDraft(
        rows=tuple(RowDraft(drafts=tuple(row), minibatch=index) for index, rows in enumerate(planned) for row in rows),
        num_samples=len(drafts),
        num_loss_tokens=sum(draft.num_loss_tokens for draft in drafts),
        version=version,
        denominators=denominators(planned),
        max_token_lag=max_token_lag,
        discounts=(1.0, *(stream.discount for stream in streams)),
        sources={group.ticket.sequence: group.source for group in groups},
    )


def split_draft(batch: BatchDraft, world_size: int) -> list[BatchDraft]:
    """One part per rank, dealt as `rlsys.packing.split_rows` deals rows, with the sources that it needs."""
    ranks: list[list[RowDraft]] = [[] for _ in range(world_size)]
    for minibatch in range(len(batch.denominators)):
        rows = [row for row in batch.rows if row.minibatch == minibatch]
        dealt = deal([row_cost([draft.num_tokens for draft in row.drafts]) for row in rows], world_size)
        nothing = RowDraft(drafts=(), minibatch=minibatch)
        for mine, indexes in zip(ranks, dealt, strict=True):
            mine += [rows[index] for index in indexes] + [nothing] * (max(map(len, dealt)) - len(indexes))
    needed = [{draft.sequence for row in rows for draft in row.drafts} for rows in ranks]
    return [
        replace(batch, rows=tuple(rows), sources={each: batch.sources[each] for each in sorted(sequences)})
        for rows, sequences in zip(ranks, needed, strict=True)
    ]


def build_batch(batch: BatchDraft, groups: Mapping[int, Group]) -> Batch:
    """The rows themselves. groups: what lies at `batch.sources`. Raises ValueError for what was not drafted so."""
    siblings = {(sequence, each.sibling): each for sequence, group in groups.items() for each in group.trajectories}
    whole: dict[tuple[int, int], list[Sample]] = {}

    def sample(draft: Draft) -> Sample:
        place = draft.sequence, draft.sibling
        if place not in whole:
            whole[place] = sample_trajectory(siblings[place], draft.advantage)
        made: Sample | None = whole[place][draft.number]
        if made is not None and batch.max_token_lag is not None:
            made = mask_stale(made, version=batch.version, max_token_lag=batch.max_token_lag)
        if made is None or (made.num_tokens, made.num_loss_tokens) != (draft.num_tokens, draft.num_loss_tokens):
            raise ValueError(f"the tokens of {place} are not those that were drafted: {draft}")
        return replace(made, weight=draft.weight, share=draft.share)

    def row(draft: RowDraft) -> Row:
        if not draft.drafts:
            return padding_row(draft.minibatch, batch.discounts)
        return make_row([sample(each) for each in draft.drafts], draft.minibatch)

    return Batch(
        rows=tuple(map(row, batch.rows)),
        num_samples=batch.num_samples,
        num_loss_tokens=batch.num_loss_tokens,
        version=batch.version,
        denominators=batch.denominators,
    )
