"""How token losses become one number: a masked, weighted sum over a denominator that all rows and ranks share.

Each sample gets a weight (of each of its sampled tokens) and a share (what it adds to the denominator), so that

    loss = sum over samples of weight * (sum of its token losses) / (sum of all shares)

is the reduction that the name says, however samples are packed, split or spread over ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar, get_args

from rlsys.samples import SampleRef
from rlsys.types import Sample

S = TypeVar("S", Sample, SampleRef)
Reduction = Literal["token_mean", "sequence_mean", "group_total", "constant", "sequence_sum"]


def sample_weight(
    reduction: Reduction, *, sample_tokens: int, trajectory_tokens: int, group_tokens: int, length: int | None = None
) -> tuple[float, float]:
    """(weight, share) of one sample, from the tokens in the loss: its own, its trajectory's, its group's.

    token_mean     the mean over all tokens of the batch (DAPO, arXiv 2503.14476; ReSearch as run)
    sequence_mean  the mean within each trajectory, then over trajectories (Long CoT, GRPO as printed)
    group_total    the mean within each group, then over groups (ICRL, equation 3)
    constant       the sum over `length`, the longest response there can be, then the mean over trajectories (Dr. GRPO)
    sequence_sum   the sum within each trajectory, then the mean over trajectories (SWiRL, per action)

    A trajectory or group of several samples counts once: each sample has the part of its share that it has of its
    tokens. One without a token to train on counts nowhere. Raises ValueError for an unknown name, or
    "constant" without a length.
    """
    of_trajectory = sample_tokens / trajectory_tokens
    if reduction == "token_mean":
        return 1.0, float(sample_tokens)
    if reduction == "sequence_mean":
        return 1.0 / trajectory_tokens, of_trajectory
    if reduction == "group_total":
        return 1.0 / group_tokens, sample_tokens / group_tokens
    if reduction == "sequence_sum":
        return 1.0, of_trajectory
    if reduction == "constant":
        if length is None or length < 1:
            raise ValueError(f"length={length!r}: expected the longest possible response for a constant denominator")
        return 1.0 / length, of_trajectory
    raise ValueError(f"reduction={reduction!r}: expected one of {', '.join(get_args(Reduction))}")


def weigh(groups: Sequence[Sequence[Sequence[S]]], reduction: Reduction, *, length: int | None = None) -> list[S]:
    """The samples of a step, in order, with the weights and shares of `reduction`.

    groups: per group, per trajectory, the samples of it. length: of "constant", tokens.
    """
    weighed: list[S] = []
    for group in groups:
        tokens = [[sample.num_loss_tokens for sample in trajectory] for trajectory in group]
        group_tokens = sum(map(sum, tokens))
        for trajectory, counts in zip(group, tokens, strict=True):
            for sample, count in zip(trajectory, counts, strict=True):
                weight, share = sample_weight(
                    reduction,
                    sample_tokens=count,
                    trajectory_tokens=max(1, sum(counts)),
                    group_tokens=max(1, group_tokens),
                    length=length,
                )
                weighed.append(replace(sample, weight=weight, share=share))
    return weighed
