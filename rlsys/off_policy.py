"""Tokens that other weights have sampled: ratios of probabilities, and the weights that correct for them.

Three policies are distinguished. The behaviour policy sampled the tokens: an engine, with its numerics, and weights
that may be several versions old; where a turn spans versions, each token has the log-probability under its own. The
proximal policy is the learner's before the update's first step. The policy is the one being trained.

Shapes: [T] of a packed row, mask of 0 and 1; a sequence is one sample of the row (cu_seqlens [S+1]), its masked tokens.
"""

from __future__ import annotations

from typing import get_args

import torch

from rlsys.batch import apply_mask, expand_to_tokens, sample_sums
from rlsys.config.learner import Correction, Level

MAX_LOG_RATIO = 20.0  # exp(20) is 5e8: beyond it float32 soon overflows, and inf * 0 would be nan


def log_ratio(
    policy_logp: torch.Tensor,
    behavior_logp: torch.Tensor,
    mask: torch.Tensor,
    *,
    level: Level = "token",
    cu_seqlens: torch.Tensor | None = None,
) -> torch.Tensor:
    """log(policy / behaviour) at each token, 0 outside the mask, kept within MAX_LOG_RATIO; gradient to policy_logp.

    token      of the token itself
    sequence   of the token's whole sequence: the sum over its tokens, ReSearch's printed form (equation 1)
    geometric  that sum divided by the number of tokens: GSPO (arXiv 2507.18071)
    """
    keep = mask.bool()
    difference = apply_mask(policy_logp, keep) - apply_mask(behavior_logp.detach(), keep)
    if level == "token":
        return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if level not in get_args(Level):
        raise ValueError(f"level={level!r}: expected one of {', '.join(get_args(Level))}")
    if cu_seqlens is None:
        raise ValueError(f"level={level!r} without cu_seqlens: expected where each sequence of the row begins")
    totals = sample_sums(difference, keep, cu_seqlens)
    if level == "geometric":
        totals = totals / sample_sums(torch.ones_like(difference), keep, cu_seqlens).clamp(min=1)
    return apply_mask(expand_to_tokens(totals.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO), cu_seqlens), keep)


def importance_weights(
    proximal_logp: torch.Tensor,
    behavior_logp: torch.Tensor,
    mask: torch.Tensor,
    *,
    kind: Correction,
    cap: float,
    floor: float = 0.0,
    level: Level = "token",
    cu_seqlens: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights, stopped), both shaped as the input and without gradient.

    weights: factors on the tokens' losses, with which tokens that the behaviour policy sampled stand for tokens of the
    proximal policy (elsewhere `rollout_is`). stopped: true where a bound (cap or floor) changed the factor.

    With w = proximal / behaviour, of the token or of its sequence (`level`):

    none       1
    decoupled  w (decoupled PPO: arXiv 2110.00641; AReaL, arXiv 2505.24298)
    tis        min(w, cap): truncated importance sampling (elsewhere `tis_imp_ratio_cap`), biased, of bounded variance
    mis        w where floor <= w <= cap, else 0: masked importance sampling

    Weights outside the mask are 0.
    """
    if kind not in get_args(Correction):
        raise ValueError(f"kind={kind!r}: expected one of {', '.join(get_args(Correction))}")
    keep = mask.bool()
    ratio = log_ratio(proximal_logp.detach(), behavior_logp, mask, level=level, cu_seqlens=cu_seqlens).exp()
    stopped = torch.zeros_like(keep)
    if kind == "none":
        ratio = torch.ones_like(ratio)
    elif kind == "tis":
        stopped = keep & (ratio > cap)
        ratio = ratio.clamp(max=cap)
    elif kind == "mis":
        stopped = keep & ((ratio > cap) | (ratio < floor))
        ratio = apply_mask(ratio, ~stopped)
    return apply_mask(ratio, keep), stopped
