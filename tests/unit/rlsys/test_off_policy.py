import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlsys.batch import expand_to_tokens, make_row, sample_sums
from rlsys.off_policy import importance_weights, log_ratio
from rlsys.types import TokenStream
from tests.makers.made import sample

NAN = float("nan")
CU_SEQLENS = torch.tensor([0, 3, 5])
MASK = torch.tensor([0, 1, 1, 0, 1])


def tensor(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def test_sums_are_taken_per_sample_over_the_mask_and_spread_back() -> None:
    values = tensor(NAN, 1.0, 2.0, NAN, 4.0).requires_grad_()
    sums = sample_sums(values, MASK, CU_SEQLENS)
    assert sums.tolist() == [3.0, 4.0]
    assert expand_to_tokens(sums, CU_SEQLENS).tolist() == [3.0, 3.0, 3.0, 4.0, 4.0]
    (sums * tensor(1.0, 10.0)).sum().backward()
    assert values.grad.tolist() == [0.0, 1.0, 1.0, 0.0, 10.0]


def test_a_ratio_belongs_to_a_token_or_to_its_sequence() -> None:
    policy, behavior = tensor(NAN, -1.0, -2.0, NAN, -3.0), tensor(0.0, -1.5, -1.0, 0.0, -3.25)
    levels = {
        level: log_ratio(policy, behavior, MASK, level=level, cu_seqlens=CU_SEQLENS).tolist()
        for level in ("token", "sequence", "geometric")
    }
    assert levels["token"] == [0.0, 0.5, -1.0, 0.0, 0.25]
    assert levels["sequence"] == [0.0, -0.5, -0.5, 0.0, 0.25]
    assert levels["geometric"] == [0.0, -0.25, -0.25, 0.0, 0.25]


def test_a_sequence_without_a_sampled_token_has_no_ratio() -> None:
    nothing = torch.zeros(5)
    for level in ("sequence", "geometric"):
        assert log_ratio(nothing, nothing, nothing, level=level, cu_seqlens=CU_SEQLENS).tolist() == [0.0] * 5


def test_a_level_needs_its_sequences_and_a_known_name() -> None:
    with pytest.raises(ValueError, match="without cu_seqlens"):
        log_ratio(tensor(0.0), tensor(0.0), torch.ones(1), level="sequence")
    with pytest.raises(ValueError, match="expected one of token, sequence, geometric"):
        log_ratio(tensor(0.0), tensor(0.0), torch.ones(1), level="turn")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "weights", "stopped"),
    [
        ("none", [1, 1, 1, 1], [0, 0, 0, 0]),
        ("decoupled", [0.25, 1, 1.5, 8], [0, 0, 0, 0]),
        ("tis", [0.25, 1, 1.5, 2], [0, 0, 0, 1]),
        ("mis", [0, 1, 1.5, 0], [1, 0, 0, 1]),
    ],
)
def test_corrections_by_hand(kind, weights: list[float], stopped: list[int]) -> None:
    behavior = tensor(-1.0, -1.0, -1.0, -1.0)
    proximal = behavior + tensor(0.25, 1.0, 1.5, 8.0).log()
    result, bound = importance_weights(proximal, behavior, torch.ones(4), kind=kind, cap=2.0, floor=0.5)
    assert result.tolist() == pytest.approx(weights)
    assert bound.int().tolist() == stopped


def test_a_correction_of_sequences_weighs_all_their_tokens_alike() -> None:
    behavior = tensor(0.0, -1.0, -1.0, 0.0, -1.0)
    proximal = behavior + tensor(NAN, math.log(2.0), math.log(8.0), NAN, math.log(0.5))
    product, _ = importance_weights(
        proximal, behavior, MASK, kind="tis", cap=10.0, level="sequence", cu_seqlens=CU_SEQLENS
    )
    assert product.tolist() == pytest.approx([0, 10, 10, 0, 0.5])
    mean, stopped = importance_weights(
        proximal, behavior, MASK, kind="mis", cap=3.0, level="geometric", cu_seqlens=CU_SEQLENS
    )
    assert mean.tolist() == pytest.approx([0, 0, 0, 0, 0.5])
    assert stopped.tolist() == [False, True, True, False, False]


def test_weights_carry_no_gradient() -> None:
    policy = torch.zeros(2, requires_grad=True)
    weights, _ = importance_weights(policy, torch.zeros(2), torch.ones(2), kind="decoupled", cap=2.0)
    assert not weights.requires_grad


logps = st.lists(st.floats(-50, 0), min_size=5, max_size=5)


@settings(deadline=None, max_examples=50)
@given(logps, logps, st.sampled_from(["token", "sequence", "geometric"]), st.floats(0.1, 5))
def test_bounded_corrections_are_bounded_and_on_policy_ones_are_one(proximal, behavior, level, cap) -> None:
    given_T, old_T = torch.tensor(proximal), torch.tensor(behavior)
    for kind in ("tis", "mis"):
        weights, _ = importance_weights(given_T, old_T, MASK, kind=kind, cap=cap, level=level, cu_seqlens=CU_SEQLENS)
        assert (weights >= 0).all() and (weights <= cap * (1 + 1e-6)).all()
    for kind in ("none", "tis", "mis", "decoupled"):
        result, _ = importance_weights(old_T, old_T, MASK, kind=kind, cap=1.0, level=level, cu_seqlens=CU_SEQLENS)
        assert result.tolist() == MASK.tolist()


# -- versions inside one turn ------------------------------------------------------------------------------------------

MIXED = sample(
    (0, 1, 1, 0, 1, 1),
    logprobs=(-1.0, -2.0, -3.0, -4.0),
    advantages=0.5,
    versions=(4, 5, 5, 7),  # the weights changed inside the first turn and inside the second
    reward=1.0,
    streams=(TokenStream(name="repetition", values=(0.1, 0.2, 0.3, 0.4), discount=0.9),),
)


def test_each_token_is_corrected_from_the_version_that_sampled_it() -> None:
    """The spans of a turn need no treatment of their own: every token has the log-probability under its own weights."""
    row = make_row([MIXED])
    proximal = row.behavior_logprobs + torch.tensor([9.0, 0.5, 0.0, 9.0, -0.5, 0.0])
    weights, _ = importance_weights(proximal, row.behavior_logprobs, row.loss_mask, kind="decoupled", cap=2.0)
    assert weights.tolist() == pytest.approx([0, math.exp(0.5), 1, 0, math.exp(-0.5), 1])
