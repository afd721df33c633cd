import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import masked_means
from rlsys.losses import (
    behavior_kl,
    clipped_policy_loss,
    combine_losses,
    dpo_loss,
    entropy_bonus,
    kl_estimate,
    kl_loss,
    nll_loss,
    policy_gradient_loss,
    value_loss,
)
from rlsys.metrics import Mean, values

NAN, INF = float("nan"), float("inf")


def tensor(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def clipped(ratios: list[float], advantages: list[float], **options):
    policy = tensor(*ratios).log().requires_grad_()
    behavior = torch.zeros_like(policy).detach()
    arguments = {"clip_low": 0.2, "clip_high": 0.28, "denominator": 1.0, **options}
    return policy, clipped_policy_loss(policy, behavior, tensor(*advantages), torch.ones(len(ratios)), **arguments)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        # the gradient of -ratio * A with respect to the log-probability is -ratio * A; a clipped token has none
        (1.0, 2.0, -2.0, -2.0),
        (1.2, 1.0, -1.2, -1.2),  # inside: the upper side is the wider one
        (1.5, 1.0, -1.28, 0.0),
        (0.5, 1.0, -0.5, -0.5),  # a good token that became rarer is always pulled back
        (0.5, -1.0, 0.8, 0.0),
        (1.5, -1.0, 1.5, 1.5),  # a bad token that became likelier is always pushed down
    ],
)
def test_policy_loss_by_hand(ratio: float, advantage: float, loss: float, gradient: float) -> None:
    policy, out = clipped([ratio], [advantage])
    out.loss.backward()
    assert out.loss.item() == pytest.approx(loss)
    assert policy.grad.item() == pytest.approx(gradient)


def test_dual_clip_bounds_the_loss_of_negative_advantages_only() -> None:
    assert clipped([5.0], [-1.0])[1].loss.item() == pytest.approx(5.0)
    policy, out = clipped([5.0, 2.0, 0.1], [-1.0, -1.0, 2.0], dual_clip=3.0)
    out.loss.backward()
    assert out.loss.item() == pytest.approx(3.0 + 2.0 - 0.2)
    assert policy.grad.tolist() == pytest.approx([0.0, 2.0, -0.2])
    assert out.metrics["clip/dual"] == Mean(1.0, 3)


def test_policy_metrics_are_shares_of_masked_tokens() -> None:
    _, out = clipped([1.0, 1.05, 1.5, 0.5], [1.0, 1.0, 1.0, -1.0], denominator=4.0)
    metrics = values(out.metrics)
    assert metrics["clip/high"] == 0.25 and metrics["clip/low"] == 0.25
    assert metrics["ratio/outside_0.1"] == 0.5
    assert metrics["ratio/mean"] == pytest.approx(4.05 / 4)
    expected = sum(ratio - 1 - math.log(ratio) for ratio in (1.0, 1.05, 1.5, 0.5)) / 4
    assert metrics["kl/behavior"] == pytest.approx(expected)
    assert metrics["loss/policy"] == pytest.approx(-(1.0 + 1.05 + 1.28 - 0.8) / 4)


def test_a_token_without_advantage_has_no_gradient_for_a_bound_to_stop() -> None:
    metrics = values(clipped([1.5, 0.5], [0.0, 0.0])[1].metrics)
    assert metrics["clip/low"] == metrics["clip/high"] == 0


@pytest.mark.parametrize("poison", [NAN, INF, -INF])
def test_masked_positions_never_reach_loss_gradient_or_metrics(poison: float) -> None:
    policy = tensor(poison, -1.0).requires_grad_()
    mask = torch.tensor([0, 1])
    behavior, advantages = tensor(poison, -1.0), tensor(poison, 3.0)
    out = clipped_policy_loss(policy, behavior, advantages, mask, clip_low=0.2, clip_high=0.2, denominator=1.0)
    out.loss.backward()
    assert out.loss.item() == -3.0 and policy.grad.tolist() == [0.0, -3.0]
    assert all(math.isfinite(value) for value in values(out.metrics).values())

    policy.grad = None
    nll_loss(policy, mask, denominator=2.0).loss.backward()
    assert policy.grad.tolist() == [0.0, -0.5]

    policy.grad = None
    value = value_loss(policy, behavior, advantages, mask, clip_range=0.2, denominator=1.0)
    value.loss.backward()
    assert value.loss.item() == 0.5 * 16 and policy.grad.tolist() == [0.0, -4.0]
    assert all(math.isfinite(number) for number in values(value.metrics).values())

    policy.grad = None
    dpo_loss(policy, policy, behavior, behavior, mask, mask, beta=0.1, denominator=1.0).loss.backward()
    assert policy.grad.tolist() == [0.0, 0.0]


def test_a_runaway_ratio_stays_finite() -> None:
    policy = torch.tensor([0.0, 0.0], requires_grad=True)
    behavior, advantages = torch.tensor([-1e4, 1e4]), torch.tensor([0.0, -1.0])
    out = clipped_policy_loss(policy, behavior, advantages, torch.ones(2), clip_low=0.2, clip_high=0.2, denominator=1.0)
    out.loss.backward()
    assert out.loss.isfinite() and policy.grad.isfinite().all()


def test_an_empty_mask_gives_a_zero_that_backward_runs_through() -> None:
    policy, nothing = torch.zeros(3, requires_grad=True), torch.zeros(3)
    losses = [
        clipped_policy_loss(policy, nothing, nothing, nothing, clip_low=0.2, clip_high=0.2, denominator=5.0),
        value_loss(policy, nothing, nothing, nothing, clip_range=0.2, denominator=5.0),
        nll_loss(policy, nothing, denominator=5.0),
    ]
    for out in losses:
        policy.grad = None
        out.loss.backward()
        assert out.loss.item() == 0 and policy.grad.tolist() == [0.0, 0.0, 0.0]
        assert set(values(out.metrics)) <= {"loss/policy", "loss/value", "loss/nll"}


def test_a_token_mean_weighs_tokens_and_not_sequences() -> None:
    negative_logp = torch.tensor([[2.0, 2, 2, 2, 2, 6, 5, 3, 2, 4], [10.0, 3, 1, 1, 1, 1, 1, 1, 1, 1]])
    mask = torch.tensor([[1] * 5 + [0] * 5, [1] + [0] * 9])
    assert nll_loss(-negative_logp, mask, denominator=6).loss.item() == pytest.approx(3.3333, abs=1e-4)
    per_sequence = [nll_loss(-negative_logp[row], mask[row], denominator=2 * mask[row].sum().item()) for row in (0, 1)]
    assert sum(out.loss.item() for out in per_sequence) == pytest.approx(6.0)


@pytest.mark.parametrize("denominator", [0, -1, NAN])
def test_a_denominator_that_is_not_positive_is_refused(denominator: float) -> None:
    with pytest.raises(ValueError, match="denominator"):
        nll_loss(torch.zeros(1), torch.ones(1), denominator=denominator)


def test_kl_estimates_by_hand() -> None:
    policy, reference = tensor(math.log(0.5), math.log(0.25)), tensor(math.log(0.25), math.log(0.5))
    log2 = math.log(2)
    assert kl_estimate(policy, reference, kind="k1").tolist() == pytest.approx([log2, -log2])
    assert kl_estimate(policy, reference, kind="k2").tolist() == pytest.approx([log2**2 / 2, log2**2 / 2])
    # k3 = reference/policy - 1 + log(policy/reference)
    assert kl_estimate(policy, reference, kind="k3").tolist() == pytest.approx([0.5 - 1 + log2, 2 - 1 - log2])


def test_k3_is_never_negative_and_zero_without_a_difference() -> None:
    difference = torch.linspace(-8, 8, 101, dtype=torch.float64)
    estimate = kl_estimate(difference, torch.zeros_like(difference), kind="k3")
    assert (estimate >= 0).all() and estimate[50].item() == 0


@pytest.mark.parametrize("distance", [-200.0, 200.0])
def test_k3_clamps_and_keeps_a_finite_gradient_far_away(distance: float) -> None:
    policy = torch.tensor([distance], requires_grad=True)
    estimate = kl_estimate(policy, torch.zeros(1), kind="k3", clamp=10.0)
    estimate.sum().backward()
    assert estimate.item() == 10.0 and policy.grad.isfinite().all()


def test_k1_clamps_on_both_sides() -> None:
    assert kl_estimate(tensor(-30.0, 3.0, 30.0), tensor(0, 0, 0), kind="k1", clamp=10.0).tolist() == [-10, 3, 10]


def test_an_unknown_kl_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="k1, k2 or k3"):
        kl_estimate(tensor(0.0), tensor(0.0), kind="k4")  # type: ignore[arg-type]


def test_value_loss_takes_the_larger_error() -> None:
    # value 1.0, former 0.5: clipped to 0.7. Target 1.0: errors 0 and 0.09. Target 0.5: errors 0.25 and 0.04.
    options = {"clip_range": 0.2, "denominator": 2.0}
    out = value_loss(tensor(1.0, 1.0), tensor(0.5, 0.5), tensor(1.0, 0.5), torch.ones(2), **options)
    assert out.loss.item() == pytest.approx(0.5 * (0.09 + 0.25) / 2)
    assert values(out.metrics)["value/clipped"] == 0.5
    assert values(out.metrics)["value/error"] == pytest.approx(0.125)


def test_value_loss_without_clipping_is_half_the_squared_error() -> None:
    out = value_loss(tensor(3.0), tensor(0.0), tensor(1.0), torch.ones(1), clip_range=None, denominator=1.0)
    assert out.loss.item() == 2.0 and "value/clipped" not in out.metrics


def test_dpo_without_a_margin_is_log_two() -> None:
    logp, mask = tensor(-1.0, -2.0), torch.ones(2)
    out = dpo_loss(logp, logp, logp, logp, mask, mask, beta=0.1, denominator=1.0)
    assert out.loss.item() == pytest.approx(math.log(2))


def test_dpo_by_hand_over_two_pairs() -> None:
    chosen = torch.tensor([[-1.0, -1.0, 99.0], [-2.0, -2.0, -2.0]])
    rejected = torch.tensor([[-3.0, 99.0], [-1.0, -1.0]])
    chosen_mask, rejected_mask = torch.tensor([[1, 1, 0], [1, 1, 1]]), torch.tensor([[1, 0], [1, 1]])
    reference_chosen, reference_rejected = torch.full((2, 3), -2.0), torch.full((2, 2), -2.0)
    # pair 0: chosen +2, rejected -1, margin 0.5 * 3; pair 1: chosen 0, rejected +2, margin 0.5 * -2
    out = dpo_loss(
        chosen, rejected, reference_chosen, reference_rejected, chosen_mask, rejected_mask, beta=0.5, denominator=2.0
    )
    expected = (math.log(1 + math.exp(-1.5)) + math.log(1 + math.exp(1.0))) / 2
    assert out.loss.item() == pytest.approx(expected, rel=1e-6)
    assert values(out.metrics)["dpo/accuracy"] == 0.5
    assert values(out.metrics)["dpo/margin"] == pytest.approx(0.25)


def test_masked_means_of_booleans_are_shares_and_of_nothing_are_absent() -> None:
    keep = torch.tensor([True, True, False])
    assert masked_means(keep, {"share": torch.tensor([True, False, True])}) == {"share": Mean(1.0, 2)}
    assert masked_means(torch.zeros(3, dtype=torch.bool), {"share": torch.ones(3)}) == {}


def test_weights_multiply_each_tokens_loss() -> None:
    policy = tensor(-1.0, -2.0, NAN).requires_grad_()
    advantages, mask, weights = tensor(3.0, 5.0, NAN), torch.tensor([1, 1, 0]), tensor(0.5, 0.25, NAN)
    options = {"denominator": 2.0, "weights": weights}

    def gradient(out) -> list[float]:
        policy.grad = None
        out.loss.backward()
        return policy.grad.tolist()

    behavior = policy.detach()
    clip = clipped_policy_loss(policy, behavior, advantages, mask, clip_low=0.2, clip_high=0.2, **options)
    assert clip.loss.item() == -(0.5 * 3 + 0.25 * 5) / 2
    assert gradient(clip) == [-0.75, -0.625, 0.0]
    plain = policy_gradient_loss(policy, advantages, mask, **options)
    assert plain.loss.item() == (0.5 * 3 * 1 + 0.25 * 5 * 2) / 2
    assert gradient(plain) == [-0.75, -0.625, 0.0]
    assert gradient(nll_loss(policy, mask, **options)) == [-0.25, -0.125, 0.0]
    critic = value_loss(policy, behavior, tensor(0.0, 0.0, NAN), mask, clip_range=None, **options)
    assert critic.loss.item() == 0.5 * (0.5 * 1 + 0.25 * 4) / 2
    assert gradient(entropy_bonus(policy, mask, coef=0.1, **options)) == pytest.approx([-0.025, -0.0125, 0.0])
    k2 = kl_loss(policy, tensor(-2.0, -2.0, NAN), mask, kind="k2", coef=0.1, **options)
    assert k2.loss.item() == pytest.approx(0.1 * 0.5 * 0.5 / 2)
    assert gradient(k2) == pytest.approx([0.025, 0.0, 0.0])


def test_the_step_wise_policy_gradient_of_swirl_by_hand() -> None:
    # R = 1, b = 0.25, an action of three tokens: -(R - b) * (-0.5 - 1 - 1.5)
    mask = torch.tensor([0, 0, 1, 1, 1])
    logp = tensor(0.0, -9.0, -0.5, -1.0, -1.5)
    out = policy_gradient_loss(logp, torch.full_like(logp, 0.75), mask, denominator=1.0)
    assert out.loss.item() == pytest.approx(0.75 * 3.0)


def sequence_clipped(level, advantages: torch.Tensor, clip: float):
    """Two sequences with token ratios 1.2, 1.1 and 0.8; sequence_mean weights."""
    policy = tensor(0.0, math.log(1.2), math.log(1.1), 0.0, math.log(0.8)).requires_grad_()
    mask, weights = torch.tensor([0, 1, 1, 0, 1]), tensor(0.0, 0.5, 0.5, 0.0, 1.0)
    out = clipped_policy_loss(
        policy,
        torch.zeros_like(policy),
        advantages,
        mask,
        clip_low=clip,
        clip_high=clip,
        denominator=2.0,
        weights=weights,
        level=level,
        cu_seqlens=torch.tensor([0, 3, 5]),
    )
    out.loss.backward()
    return out, policy.grad.tolist()


def test_the_sequence_ratio_as_research_prints_it() -> None:
    # mean over two sequences of rho A: (1.32 * 1 + 0.8 * -1) / 2; d/dlogp = -rho A / 2 for every token
    out, gradient = sequence_clipped("sequence", tensor(0, 1, 1, 0, -1), clip=0.5)
    assert out.loss.item() == pytest.approx(-(1.32 - 0.8) / 2)
    assert gradient == pytest.approx([0, -0.66, -0.66, 0, 0.4])
    out, gradient = sequence_clipped("sequence", tensor(0, 1, 1, 0, -1), clip=0.25)
    assert out.loss.item() == pytest.approx(-(1.25 - 0.8) / 2)
    assert gradient == pytest.approx([0, 0, 0, 0, 0.4])  # the whole sequence is clipped


def test_the_ratio_of_gspo_is_the_geometric_mean() -> None:
    mean = math.sqrt(1.32)
    out, gradient = sequence_clipped("geometric", tensor(0, 1, 1, 0, -1), clip=0.5)
    assert out.loss.item() == pytest.approx(-(mean - 0.8) / 2)
    assert gradient == pytest.approx([0, -mean / 4, -mean / 4, 0, 0.4])
    assert values(out.metrics)["ratio/mean"] == pytest.approx((2 * mean + 0.8) / 3)


def test_behavior_kl_has_no_gradient_and_is_zero_on_policy() -> None:
    policy = tensor(-1.0, NAN).requires_grad_()
    drift = behavior_kl(policy, tensor(-1.0, 0.0), torch.tensor([1, 0]))
    assert drift.tolist() == [0.0, 0.0] and not drift.requires_grad


def test_combined_losses_add_up_with_all_their_metrics() -> None:
    policy, mask = tensor(-1.0), torch.ones(1)
    parts = nll_loss(policy, mask, denominator=1.0), entropy_bonus(policy, mask, coef=2.0, denominator=1.0)
    out = combine_losses(*parts)
    assert out.loss.item() == 3.0
    assert values(out.metrics) == {"loss/nll": 1.0, "loss/entropy": 2.0}


differences = st.lists(st.floats(-60, 60), min_size=1, max_size=8)


@settings(deadline=None, max_examples=50)
@given(differences, st.one_of(st.none(), st.floats(0.1, 20)))
def test_k3_is_never_negative_and_its_gradient_is_finite(numbers: list[float], clamp: float | None) -> None:
    policy = torch.tensor(numbers, requires_grad=True)
    estimate = kl_estimate(policy, torch.zeros_like(policy), kind="k3", clamp=clamp)
    estimate.sum().backward()
    assert (estimate >= 0).all() and policy.grad.isfinite().all()
    assert clamp is None or (estimate <= clamp * (1 + 1e-6)).all()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-30, 0), min_size=1, max_size=8), st.floats(-3, 3))
def test_on_policy_the_clipped_gradient_is_the_policy_gradient(numbers: list[float], advantage: float) -> None:
    policy, ones = torch.tensor(numbers, requires_grad=True), torch.ones(len(numbers))
    advantages = torch.full_like(ones, advantage)
    out = clipped_policy_loss(policy, policy.detach(), advantages, ones, clip_low=0.2, clip_high=0.2, denominator=3.0)
    out.loss.backward()
    clipped_gradient, policy.grad = policy.grad, None
    policy_gradient_loss(policy, advantages, ones, denominator=3.0).loss.backward()
    torch.testing.assert_close(clipped_gradient, policy.grad, rtol=1e-6, atol=1e-30)
    assert values(out.metrics)["ratio/mean"] == 1.0
