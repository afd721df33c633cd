"""How much credit each trajectory, or each token, gets. Pure functions: tensors (or lists) in, tensors out.

Shapes: G siblings of one task, M reward streams, T tokens. Work is done in float64; results have the input's dtype
(torch's default for lists and integers). Arguments that do not fit raise ValueError.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlsys.batch import apply_mask

Numbers = torch.Tensor | Sequence[float]


def group_advantages(rewards_G: Numbers, *, normalize_std: bool = True, eps: float = 1e-6) -> torch.Tensor:
    """GRPO's advantage: (reward - mean) / (std + eps), with the sample standard deviation (ddof 1).

    rewards_G: [G]; `nan` marks a failed sibling: it is left out of mean and std and stays `nan`.
    normalize_std=False leaves the division out (Dr. GRPO; elsewhere `norm_adv_by_std_in_grpo`, `scale_rewards`).
    Returns [G]; zeros where no comparison is possible: all scored rewards equal, or fewer than two scored.

        group_advantages([1, 0, 0, 0, 1]) -> [1.0954, -0.7303, -0.7303, -0.7303, 1.0954]
    """
    rewards, scored = _rewards_and_scored_mask(rewards_G)
    values = rewards[scored]
    if _are_all_equal(values):
        return _cast_like(rewards_G, rewards.masked_fill(scored, 0.0))
    centred = values - values.mean()
    if normalize_std:
        centred = centred / (values.std(correction=1) + eps)
    return _cast_like(rewards_G, rewards.masked_scatter(scored, centred))


def leave_one_out(rewards_G: Numbers) -> torch.Tensor:
    """RLOO's advantage: reward minus the mean of the other siblings.

    rewards_G: [G], `nan` as in `group_advantages`. Returns [G]; zeros when all are equal or fewer than two scored.

        leave_one_out([1, 0, 0]) -> [1.0, -0.5, -0.5]
    """
    rewards, scored = _rewards_and_scored_mask(rewards_G)
    values = rewards[scored]
    if _are_all_equal(values):
        return _cast_like(rewards_G, rewards.masked_fill(scored, 0.0))
    baseline = (values.sum() - values) / (values.numel() - 1)
    return _cast_like(rewards_G, rewards.masked_scatter(scored, values - baseline))


def multi_discount_gae(
    rewards_MT: torch.Tensor | Sequence[Sequence[float]],
    values_T: Numbers,
    *,
    discounts: Sequence[float],
    lam: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generalised advantage estimation where each reward stream has its own discount (arXiv 2502.03373, section 3).

    rewards_MT: [M, T] rewards of M streams at the sampled tokens; a sparse reward sits on the last one.
    values_T: [T] the critic's values; after token T-1 the episode is over (value 0). discounts: [M]. T may be 0: rows
    that only make up for another rank's have no sampled token.
    One stream is ordinary GAE. More than one require lam=1: there is one critic, so an intermediate value cannot be
    discounted by each stream's own factor; with lam=1 it cancels and the advantage is the sum of the streams' returns
    minus the value. Returns (advantages_T, returns_T), both [T] and without gradient.
    """
    rewards, estimates = _as_float64(rewards_MT), _as_float64(values_T)
    if rewards.dim() != 2 or estimates.dim() != 1 or rewards.shape[1] != estimates.shape[0]:
        raise ValueError(
            f"rewards {tuple(rewards.shape)} and values {tuple(estimates.shape)}: expected [M, T] rewards, [T] values"
        )
    num_streams = rewards.shape[0]
    if num_streams == 0 or len(discounts) != num_streams:
        raise ValueError(f"{len(discounts)} discounts for {num_streams} reward streams: expected one for each")
    for name, number in [*(("discount", discount) for discount in discounts), ("lam", lam)]:
        if not 0.0 <= number <= 1.0:
            raise ValueError(f"{name}={number!r}: expected a number from 0 to 1")
    if num_streams > 1 and lam != 1.0:
        raise ValueError(f"lam={lam!r} with {num_streams} reward streams: more than one stream requires lam=1")

    # Plain floats: a loop over T tensor scalars would spend its time in dispatch.
    values = estimates.tolist()
    if lam == 1.0:
        streams = rewards.tolist()
        totals = [_discounted_sums(stream, discount) for stream, discount in zip(streams, discounts, strict=True)]
        returns = [sum(column) for column in zip(*totals, strict=True)]
        advantages = [ret - value for ret, value in zip(returns, values, strict=True)]
    else:
        (stream,), (discount,) = rewards.tolist(), discounts
        next_values = [*values, 0.0][1:]  # as many as values, also where there are none
        errors = [r + discount * after - v for r, v, after in zip(stream, values, next_values, strict=True)]
        advantages = _discounted_sums(errors, discount * lam)
        returns = [advantage + value for advantage, value in zip(advantages, values, strict=True)]
    return _cast_like(values_T, _as_float64(advantages)), _cast_like(values_T, _as_float64(returns))


def penalize_kl(rewards_MT: torch.Tensor, kl_T: torch.Tensor, *, coef: float) -> torch.Tensor:
    """The KL penalty in the reward: coef * kl_T / M is taken from each of the M streams (arXiv 2502.03373).

    Divided by M, the streams together pay the penalty once. Taken from each, it is discounted as that stream is. kl_T:
    the per-token estimate, usually k1. Returns [M, T].
    """
    num_streams = rewards_MT.shape[0]
    if num_streams == 0:
        raise ValueError("no reward streams: expected at least one to take the KL penalty from")
    return rewards_MT - coef * kl_T.detach() / num_streams


def standardize(advantages: torch.Tensor, mask: torch.Tensor, *, mean: float, std: float) -> torch.Tensor:
    """(advantage - mean) / std over the mask, 0 elsewhere. mean, std: of all masked tokens of the whole batch.

    Zeros where all advantages are equal: what is left of their differences is rounding.
    """
    keep = mask.bool()
    if std <= 1e-7 * max(1.0, abs(mean)):
        return torch.zeros_like(advantages)
    return apply_mask((advantages - mean) / std, keep)


def _discounted_sums(rewards: Sequence[float], discount: float) -> list[float]:
    """G_t = r_t + discount * G_{t+1}, for every t."""
    sums, running = [], 0.0
    for reward in reversed(rewards):
        running = reward + discount * running
        sums.append(running)
    return sums[::-1]


def _as_float64(numbers: Numbers | Sequence[Sequence[float]]) -> torch.Tensor:
    return torch.as_tensor(numbers, dtype=torch.float64).detach()


def _cast_like(original: Numbers, result: torch.Tensor) -> torch.Tensor:
    """`result` in the dtype and on the device of what was given."""
    if not isinstance(original, torch.Tensor):
        return result.to(torch.get_default_dtype())
    return result.to(original.device, original.dtype if original.is_floating_point() else torch.get_default_dtype())


def _rewards_and_scored_mask(rewards_G: Numbers) -> tuple[torch.Tensor, torch.Tensor]:
    """The rewards in float64, and which of them are scores."""
    rewards = _as_float64(rewards_G)
    if rewards.dim() != 1:
        raise ValueError(f"rewards of shape {tuple(rewards.shape)}: expected one reward per sibling, [G]")
    if rewards.isinf().any():
        raise ValueError(f"rewards {rewards.tolist()}: expected finite numbers, or nan for a failed sibling")
    return rewards, ~rewards.isnan()


def _are_all_equal(values: torch.Tensor) -> bool:
    """True when there is nothing to compare. Equal means equal to rounding: 0.1 + 0.2 is no better than 0.3."""
    if values.numel() < 2:
        return True
    return float(values.max() - values.min()) <= 1e-9 * max(1.0, float(values.abs().max()))
