"""Moments by hand, alone and over ranks."""

import math

import pytest
import torch

from learners.algorithms.base import Algorithm, moments

TENSORS = [torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.tensor([10.0])]
MASKS = [torch.tensor([1, 0, 1]), torch.tensor([True])]


def test_an_algorithm_that_says_nothing_is_one_step_of_the_policy_alone() -> None:
    plain = Algorithm()
    assert (plain.epochs, plain.minibatches, plain.reduction, plain.needs) == (1, 1, "token_mean", frozenset())
    assert plain.entropy_coef == 0.0 and not plain.reads_streams and plain.credit([], moments) == []


def test_moments_are_of_what_the_masks_keep() -> None:
    mean, std, count = moments(TENSORS, MASKS)
    assert (count, type(count)) == (3, int) and mean == pytest.approx(14 / 3)
    assert std == pytest.approx(math.sqrt(((1 - 14 / 3) ** 2 + (3 - 14 / 3) ** 2 + (10 - 14 / 3) ** 2) / 3))


def test_of_nothing_they_are_zero() -> None:
    assert moments([], []) == moments([torch.ones(2)], [torch.zeros(2)]) == (0.0, 0.0, 0)
    mean, std, count = moments([torch.tensor([4.0])], [torch.ones(1)])
    assert (mean, std, count) == (4.0, 0.0, 1)


def test_two_ranks_have_the_moments_of_all_rows() -> None:
    of_another = iter([[20.0, 2.0], [2 * (10.0 - 34 / 5) ** 2]])  # twice a 10: what the second rank adds

    def add_up(numbers: list[float]) -> list[float]:
        return [ours + theirs for ours, theirs in zip(numbers, next(of_another), strict=True)]

    shared = moments(TENSORS, MASKS, add_up)
    ten = torch.full((2,), 10.0)
    assert shared == pytest.approx(moments([*TENSORS, ten], [*MASKS, torch.ones(2)]))
