"""How far engine and learner disagree on tokens that both should give the same log-probability.

A mean over all tokens hides what grows with the context or from turn to turn, such as rounding, or the cache of older
weights that running requests keep (`loop.running_kv`): the gap is given by depth, by turn and for mixed versions too.
Shapes: T tokens of a packed row, N of them compared, B bins.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlsys.batch import MicroBatch
from rlsys.metrics import Max, Mean, Metrics

DEPTHS = tuple(1024 << power for power in range(7))  # where a bin ends, in tokens before the one that is compared
TURNS = 8  # later ones share a bin
_THOUSANDS = [f"{depth // 1024}k" for depth in DEPTHS]
DEPTH_NAMES = [f"{start}_{end}" for start, end in zip(["0", *_THOUSANDS], [*_THOUSANDS, "up"], strict=True)]
TURN_NAMES = [*map(str, range(1, TURNS + 1)), f"{TURNS + 1}_up"]


def mismatch_metrics(logp_T: torch.Tensor, row: MicroBatch, version: int) -> Metrics:
    """Over the tokens that exactly `version` sampled. Empty when the row has no such token.

    logp_T: [T] the learner's log-probabilities under weights `version`.
    """
    keep_T = row.loss_mask.bool() & (row.versions == version)
    if not bool(keep_T.any()):
        return {}
    gap_N = (logp_T.detach() - row.behavior_logprobs)[keep_T].double()
    ratio_N = gap_N.exp()
    gap_N = gap_N.abs()
    depth_N = torch.bucketize(row.position_ids[keep_T], row.position_ids.new_tensor(DEPTHS), right=True)
    turn_N = turns(row)[keep_T].clamp(max=TURNS + 1) - 1
    mixed_N = _has_older_tokens(row, version)[keep_T].long()
    return {
        "mismatch/mean": Mean(gap_N.sum().item(), gap_N.numel()),
        "mismatch/max": Max(gap_N.max().item()),
        "mismatch/outside_0.1": Mean(float(((ratio_N < 0.9) | (ratio_N > 1.1)).sum()), gap_N.numel()),
        **_mean_by_bin(gap_N, depth_N, [f"depth_{name}" for name in DEPTH_NAMES]),
        **_mean_by_bin(gap_N, turn_N, [f"turn_{name}" for name in TURN_NAMES]),
        **_mean_by_bin(gap_N, mixed_N, ["one_version", "mixed_versions"]),
    }


def turns(row: MicroBatch) -> torch.Tensor:
    """[T]: which message of its trajectory a sampled token belongs to, from 1. Anything where nothing was sampled."""
    sampled_T = row.versions >= 0
    begins_T = sampled_T.clone()
    begins_T[1:] &= ~sampled_T[:-1]  # a sample's first token is never sampled, so no message runs into the next one
    begun_T = begins_T.cumsum(0)
    sample_T = _sample_numbers(row)
    return begun_T - begun_T[row.cu_seqlens[:-1].long()][sample_T] + row.first_turns[sample_T] - 1


def _has_older_tokens(row: MicroBatch, version: int) -> torch.Tensor:
    """[T]: whether the token's sample has tokens of older weights too."""
    older_T = (row.versions >= 0) & (row.versions < version)
    older_S = torch.zeros_like(row.first_turns).index_add(0, _sample_numbers(row), older_T.long())
    return older_S[_sample_numbers(row)] > 0


def _sample_numbers(row: MicroBatch) -> torch.Tensor:
    """[T]: the number of each token's sample in the row."""
    lengths_S = row.cu_seqlens.diff().long()
    return torch.repeat_interleave(torch.arange(len(lengths_S), device=lengths_S.device), lengths_S)


def _mean_by_bin(gap_N: torch.Tensor, bin_N: torch.Tensor, names: Sequence[str]) -> Metrics:
    """The mean of each bin that has a token."""
    member_BN = bin_N == torch.arange(len(names), device=bin_N.device)[:, None]
    sums = torch.where(member_BN, gap_N, 0.0).sum(-1).tolist()
    counts = member_BN.sum(-1).tolist()
    bins = zip(names, sums, counts, strict=True)
    return {f"mismatch/{name}": Mean(total, count) for name, total, count in bins if count}
