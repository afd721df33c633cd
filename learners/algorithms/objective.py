"""The parts that losses of policy-gradient algorithms are made of: an objective, and what is added to it.

logp_T, entropy_T: [T] under the policy being trained, 0 where the loss mask is 0. Each result is the row's part of a
sum over `denominator` (`learners.algorithms.base.Algorithm.loss`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from learners.algorithms.terms import PolicyGradientConfig, kl_of
from rlsys.config.learner import Level
from rlsys.metrics import Metrics

if TYPE_CHECKING:
    import torch

    from rlsys.batch import MicroBatch
    from rlsys.losses import LossOutput


def clipped(
    config: PolicyGradientConfig,
    logp_T: torch.Tensor,
    row: MicroBatch,
    denominator: float,
    *,
    low: float,
    high: float,
    dual: float | None = None,
    level: Level = "token",
) -> LossOutput:
    """PPO's clipped objective. With a correction it is decoupled PPO: the ratio is to the proximal policy, and a weight
    leads from the behaviour policy to that.

    low, high: where the ratio is no longer followed, as distances from 1. dual: bound on the loss of a negative
    advantage, as a multiple of it. level: whose ratio a token gets.
    """
    from rlsys import losses  # torch behind it

    old_T = row.behavior_logprobs
    if config.is_correction != "none":
        old_T = logp_T.detach() if row.proximal_logprobs is None else row.proximal_logprobs
    weights_T, metrics = _correct(config, old_T, row)
    policy = losses.clipped_policy_loss(
        logp_T,
        old_T,
        row.advantages,
        row.loss_mask,
        clip_low=low,
        clip_high=high,
        denominator=denominator,
        dual_clip=dual,
        weights=weights_T,
        level=level,
        cu_seqlens=row.cu_seqlens,
    )
    return losses.LossOutput(loss=policy.loss, metrics={**policy.metrics, **metrics})


def reinforce(config: PolicyGradientConfig, logp_T: torch.Tensor, row: MicroBatch, denominator: float) -> LossOutput:
    """REINFORCE. There is no ratio: a correction weighs by the policy of this step, not the first."""
    from rlsys import losses  # torch behind it

    weights_T, metrics = _correct(config, logp_T.detach(), row)
    policy = losses.policy_gradient_loss(
        logp_T, row.advantages, row.loss_mask, denominator=denominator, weights=weights_T
    )
    return losses.LossOutput(loss=policy.loss, metrics={**policy.metrics, **metrics})


def _correct(config: PolicyGradientConfig, proximal_T: torch.Tensor, row: MicroBatch) -> tuple[torch.Tensor, Metrics]:
    """The weights of the row times those of the correction, and its metrics."""
    if config.is_correction == "none":
        return row.weights, {}
    from rlsys import batch, off_policy  # torch behind these two

    correction_T, stopped_T = off_policy.importance_weights(
        proximal_T,
        row.behavior_logprobs,
        row.loss_mask,
        kind=config.is_correction,
        cap=config.is_cap,
        floor=config.is_floor,
        level=config.is_level,
        cu_seqlens=row.cu_seqlens,
    )
    measured = {"correction/weight": correction_T, "correction/stopped": stopped_T}
    return row.weights * correction_T, batch.masked_means(row.loss_mask.bool(), measured)


def add_terms(
    config: PolicyGradientConfig,
    policy: LossOutput,
    logp_T: torch.Tensor,
    entropy_T: torch.Tensor,
    row: MicroBatch,
    denominator: float,
) -> LossOutput:
    """The objective with the KL penalty (elsewhere `use_kl_loss`) and the entropy bonus of the config, and what is
    measured of every policy."""
    from rlsys import batch, losses  # torch behind these two

    keep = row.loss_mask.bool()
    behavior_T = losses.behavior_kl(
        logp_T, row.behavior_logprobs, keep
    )  # the policy's loss may have seen the proximal one
    means = batch.masked_means(keep, {"entropy/mean": entropy_T, "kl/behavior": behavior_T})
    parts = [losses.LossOutput(loss=policy.loss, metrics={**policy.metrics, **means})]
    compared = kl_of(config)
    if compared is not None and compared.kl_in_loss:
        if row.reference_logprobs is None:
            raise ValueError(
                "a row without reference_logprobs: expected the reference model's pass, for algorithm.kl_coef"
            )
        parts.append(
            losses.kl_loss(
                logp_T,
                row.reference_logprobs,
                keep,
                kind=compared.kl_kind,
                coef=compared.kl_coef,
                denominator=denominator,
                clamp=compared.kl_clamp,
                weights=row.weights,
            )
        )
    if config.entropy_coef > 0:
        parts.append(
            losses.entropy_bonus(
                entropy_T, keep, coef=config.entropy_coef, denominator=denominator, weights=row.weights
            )
        )
    return losses.combine_losses(*parts)
