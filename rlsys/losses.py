"""Losses: pure functions of tensors. Each is a masked sum over a denominator that the caller gives.

Because the denominator is global (say, all loss tokens of the batch), the losses of rows and of ranks simply add up,
and micro-batching, packing or the number of ranks cannot change the gradient.

Shapes: every per-token tensor has the same shape, [T] or [B, T]; masks hold 0 or 1 (or booleans). `weights`, where
given, multiply each token's loss: they are how `rlsys.reductions` makes a mean per sequence or group out of the sum.
Positions where the mask is 0 may hold anything, nan included: they are replaced before any arithmetic. A loss with an
empty mask is a zero that is still part of the graph, so that `backward` runs on every rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from rlsys.batch import apply_mask, masked_means
from rlsys.config.learner import KLKind, Level
from rlsys.metrics import Metrics, Sum, merge
from rlsys.off_policy import MAX_LOG_RATIO, log_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOutput:
    loss: torch.Tensor  # scalar, with gradient
    metrics: Metrics


def clipped_policy_loss(
    policy_logp: torch.Tensor,
    behavior_logp: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
    dual_clip: float | None = None,
    weights: torch.Tensor | None = None,
    level: Level = "token",
    cu_seqlens: torch.Tensor | None = None,
) -> LossOutput:
    """PPO's clipped objective (arXiv 1707.06347), negated: -min(ratio A, clip(ratio, 1-clip_low, 1+clip_high) A).

    policy_logp, behavior_logp: log-probability of each token under the policy being trained and under the weights
    that sampled it (in decoupled PPO the proximal policy). advantages: per token. dual_clip (> 1, arXiv 1912.09729)
    bounds the loss of a token with a negative advantage by dual_clip * |A|; without it, that loss grows with the ratio
    without end. level: whose ratio a token gets, its own or its sequence's (`rlsys.off_policy.log_ratio`).
    Metrics: `clip/low` and `clip/high` are the shares of tokens that got no gradient, by which side stopped it.
    """
    if dual_clip is not None and dual_clip <= 1:
        raise ValueError(f"dual_clip={dual_clip!r}: expected a number above 1, or None")
    keep = mask.bool()
    advantage = apply_mask(advantages.detach(), keep)
    ratio = log_ratio(policy_logp, behavior_logp, mask, level=level, cu_seqlens=cu_seqlens).exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    objective = torch.minimum(ratio * advantage, clipped * advantage)
    if dual_clip is not None:
        objective = torch.where(advantage < 0, torch.maximum(objective, dual_clip * advantage), objective)
    loss = _total(-objective, keep, weights, denominator)

    down, up = advantage < 0, advantage > 0
    measured = {
        "clip/low": down & (ratio < 1 - clip_low),
        "clip/high": up & (ratio > 1 + clip_high),
        "ratio/mean": ratio,
        "ratio/outside_0.1": (ratio < 0.9) | (ratio > 1.1),
        "kl/behavior": behavior_kl(policy_logp, behavior_logp, mask),
    }
    if dual_clip is not None:
        measured["clip/dual"] = down & (ratio > dual_clip)
    return LossOutput(loss=loss, metrics={"loss/policy": Sum(loss.item()), **masked_means(keep, measured)})


def policy_gradient_loss(
    policy_logp: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    denominator: float,
    weights: torch.Tensor | None = None,
) -> LossOutput:
    """REINFORCE: -A log p(token). SWiRL's step-wise gradient is this with A = R - b on the last action's tokens."""
    keep = mask.bool()
    loss = _total(-apply_mask(policy_logp, keep) * apply_mask(advantages.detach(), keep), keep, weights, denominator)
    return LossOutput(loss=loss, metrics={"loss/policy": Sum(loss.item())})


def behavior_kl(policy_logp: torch.Tensor, behavior_logp: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Per token: KL(behaviour || policy), since the behaviour policy sampled the tokens. A metric, without gradient."""
    drift = log_ratio(policy_logp.detach(), behavior_logp, mask)
    return kl_estimate(torch.zeros_like(drift), drift, kind="k3")


def kl_estimate(
    policy_logp: torch.Tensor, reference_logp: torch.Tensor, *, kind: KLKind, clamp: float | None = None
) -> torch.Tensor:
    """Per-token estimate of KL(policy || reference) from tokens the policy sampled (joschu.net/blog/kl-approx.html).

    With d = policy_logp - reference_logp: k1 = d (unbiased, may be negative), k2 = d^2 / 2, k3 = exp(-d) + d - 1
    (unbiased and never negative). clamp bounds each estimate to [-clamp, clamp]. Returns the shape of the inputs.
    """
    difference = policy_logp - reference_logp
    if kind == "k1":
        estimate = difference
    elif kind == "k2":
        estimate = difference.square() / 2
    elif kind == "k3":
        # Bounded before exp, not only after: the gradient of an overflow would be 0 * inf = nan.
        bounded = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        estimate = torch.expm1(-bounded) + bounded
    else:
        raise ValueError(f"kind={kind!r}: expected k1, k2 or k3")
    return estimate if clamp is None else estimate.clamp(-clamp, clamp)


def kl_loss(
    policy_logp: torch.Tensor,
    reference_logp: torch.Tensor,
    mask: torch.Tensor,
    *,
    kind: KLKind,
    coef: float,
    denominator: float,
    clamp: float | None = None,
    weights: torch.Tensor | None = None,
) -> LossOutput:
    """coef * KL(policy || reference), estimated per token (`kl_estimate`). Where the clamp holds there is no gradient.

    k1 is of no use here: the mean of its gradient over what the policy samples is zero, whatever the reference.
    """
    keep = mask.bool()
    estimate = kl_estimate(
        apply_mask(policy_logp, keep), apply_mask(reference_logp.detach(), keep), kind=kind, clamp=clamp
    )
    loss = coef * _total(estimate, keep, weights, denominator)
    return LossOutput(loss=loss, metrics={"loss/kl": Sum(loss.item())})


def entropy_bonus(
    entropy: torch.Tensor, mask: torch.Tensor, *, coef: float, denominator: float, weights: torch.Tensor | None = None
) -> LossOutput:
    """-coef * entropy of the distribution that each token was drawn from, in nats. coef: elsewhere `entropy_coeff`."""
    keep = mask.bool()
    loss = -coef * _total(apply_mask(entropy, keep), keep, weights, denominator)
    return LossOutput(loss=loss, metrics={"loss/entropy": Sum(loss.item())})


def combine_losses(*parts: LossOutput) -> LossOutput:
    """The sum of losses, with all their metrics."""
    total = parts[0].loss
    for part in parts[1:]:
        total = total + part.loss
    return LossOutput(loss=total, metrics=merge(part.metrics for part in parts))


def value_loss(
    values: torch.Tensor,
    behavior_values: torch.Tensor,
    returns: torch.Tensor,
    mask: torch.Tensor,
    *,
    clip_range: float | None,
    denominator: float,
    weights: torch.Tensor | None = None,
) -> LossOutput:
    """The critic's clipped loss: 0.5 * max((value - return)^2, (clipped - return)^2).

    values: the critic's estimates, with gradient. behavior_values: its estimates before the update; `clipped` is the
    value kept within clip_range of them (None: no clipping; elsewhere `cliprange_value`). returns: the targets.
    """
    keep = mask.bool()
    value, target = apply_mask(values, keep), apply_mask(returns.detach(), keep)
    error = (value - target).square()
    measured = {"value/error": error, "value/mean": value}
    if clip_range is not None:
        former = apply_mask(behavior_values.detach(), keep)
        clipped = former + (value - former).clamp(-clip_range, clip_range)
        clipped_error = (clipped - target).square()
        measured["value/clipped"] = clipped_error > error
        error = torch.maximum(error, clipped_error)
    loss = 0.5 * _total(error, keep, weights, denominator)
    return LossOutput(loss=loss, metrics={"loss/value": Sum(loss.item()), **masked_means(keep, measured)})


def dpo_loss(
    policy_chosen: torch.Tensor,
    policy_rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
    chosen_mask: torch.Tensor,
    rejected_mask: torch.Tensor,
    *,
    beta: float,
    denominator: float,
) -> LossOutput:
    """Direct preference optimisation (arXiv 2305.18290): -log sigmoid(beta * margin), summed over pairs.

    Token log-probabilities [T] of one pair, or [B, T] of B; chosen and rejected may differ in T. The margin is the sum
    over masked tokens of policy - reference, for the chosen answer minus for the rejected one. denominator: pairs.
    """
    chosen_keep, rejected_keep = chosen_mask.bool(), rejected_mask.bool()
    chosen = apply_mask(policy_chosen, chosen_keep) - apply_mask(reference_chosen.detach(), chosen_keep)
    rejected = apply_mask(policy_rejected, rejected_keep) - apply_mask(reference_rejected.detach(), rejected_keep)
    margin = beta * (chosen.sum(-1) - rejected.sum(-1))
    loss = F.softplus(-margin).sum() / _check_denominator(denominator)
    pairs = torch.ones_like(margin, dtype=torch.bool)
    measured = {"dpo/margin": margin, "dpo/accuracy": margin > 0}
    return LossOutput(loss=loss, metrics={"loss/dpo": Sum(loss.item()), **masked_means(pairs, measured)})


def nll_loss(
    policy_logp: torch.Tensor, mask: torch.Tensor, *, denominator: float, weights: torch.Tensor | None = None
) -> LossOutput:
    """Supervised loss: minus the log-probability of the tokens in the mask."""
    keep = mask.bool()
    loss = _total(-apply_mask(policy_logp, keep), keep, weights, denominator)
    return LossOutput(loss=loss, metrics={"loss/nll": Sum(loss.item())})


def _total(values: torch.Tensor, keep: torch.Tensor, weights: torch.Tensor | None, denominator: float) -> torch.Tensor:
    """The weighted sum of what is 0 outside the mask, over the denominator."""
    if weights is not None:
        values = values * apply_mask(weights.detach(), keep)
    return values.sum() / _check_denominator(denominator)


def _check_denominator(denominator: float) -> float:
    if not denominator > 0:
        raise ValueError(f"denominator={denominator!r}: expected a number above 0, the same for all rows of a batch")
    return denominator
