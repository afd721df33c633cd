"""From reward streams to token-level advantages, on the learner: for PPO and REINFORCE++.

Shapes: M streams (the trajectory's value first), T tokens of a row. A sample is one episode, its actions are its
sampled tokens: what the environment said takes no time, earns nothing and is discounted by nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from learners.algorithms.base import Moments
from learners.algorithms.terms import KLTerm
from rlsys.advantages import multi_discount_gae, penalize_kl, standardize
from rlsys.batch import MicroBatch, apply_mask
from rlsys.losses import kl_estimate


def as_values(row: MicroBatch) -> MicroBatch:
    """The row with each sample's reward replaced by the advantage that the driver found, on its last sampled token."""
    if row.rewards is None:
        return row
    values_T = torch.zeros_like(row.advantages)
    for start, end in pairwise(row.cu_seqlens.tolist()):
        sampled = row.loss_mask[start:end].nonzero().squeeze(1)
        if len(sampled):
            last = start + int(sampled[-1])
            values_T[last] = row.advantages[last]
    return replace(row, rewards=torch.cat([values_T.unsqueeze(0), row.rewards[1:]]))


def token_rewards(row: MicroBatch, terms: KLTerm, *, bound: float | None) -> torch.Tensor:
    """[M, T]: the row's rewards, the value at most `bound` from 0, less the KL penalty of each sampled token, where
    that is no term of the loss (elsewhere `use_kl_in_reward`, `kl_penalty`).

    The penalty compares the reference with the proximal policy where a pass was made for it, else with the recorded
    log-probabilities of the behaviour policy. Raises ValueError for a row of demonstrations.
    """
    if row.rewards is None:
        raise ValueError("a row without rewards: expected trajectories, not demonstrations")
    rewards_MT = row.rewards
    if bound is not None:
        rewards_MT = torch.cat([rewards_MT[:1].clamp(-bound, bound), rewards_MT[1:]])
    if terms.kl_coef == 0 or terms.kl_in_loss:
        return rewards_MT
    if row.reference_logprobs is None:
        raise ValueError("a row without reference_logprobs: expected the reference model's pass, for algorithm.kl_coef")
    policy_T = row.behavior_logprobs if row.proximal_logprobs is None else row.proximal_logprobs
    keep = row.loss_mask.bool()
    reference_T = apply_mask(row.reference_logprobs, keep)
    kl_T = kl_estimate(apply_mask(policy_T, keep), reference_T, kind=terms.kl_kind, clamp=terms.kl_clamp)
    return penalize_kl(rewards_MT, kl_T, coef=terms.kl_coef)


def estimate(row: MicroBatch, rewards_MT: torch.Tensor, *, discount: float, lam: float) -> MicroBatch:
    """The row with advantages and returns, 0 where nothing was sampled. Without row.values both are the returns.

    discount: of the value; the other streams have their own. Raises ValueError for lam below 1 with several streams.
    """
    values_T = torch.zeros_like(row.behavior_logprobs) if row.values is None else row.values
    advantages_T, returns_T = torch.zeros_like(values_T), torch.zeros_like(values_T)
    discounts = (discount, *row.discounts[1:])
    for start, end in pairwise(row.cu_seqlens.tolist()):
        sampled = start + row.loss_mask[start:end].nonzero().squeeze(1)
        advantages_T[sampled], returns_T[sampled] = multi_discount_gae(
            rewards_MT[:, sampled], values_T[sampled], discounts=discounts, lam=lam
        )
    return replace(row, advantages=advantages_T, returns=returns_T)


def normalize(rows: Sequence[MicroBatch], moments: Moments) -> list[MicroBatch]:
    """Advantages with mean 0 and standard deviation 1 over the sampled tokens of the whole batch, on all ranks."""
    mean, std, _ = moments([row.advantages for row in rows], [row.loss_mask for row in rows])
    return [replace(row, advantages=standardize(row.advantages, row.loss_mask, mean=mean, std=std)) for row in rows]
