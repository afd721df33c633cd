"""Every task comes once per epoch, in an order that only the seed decides."""

import pytest

from rlsys.errors import BadInput
from rlsys.order import Epochs


def draw(count: int, seed: int = 0) -> list[tuple[int, int]]:
    return [Epochs(range(10), seed=seed).draw(sequence) for sequence in range(count)]


def test_each_epoch_is_a_permutation_and_epochs_differ() -> None:
    drawn = draw(20)
    assert sorted(drawn[:10]) == [(0, index) for index in range(10)]
    assert sorted(drawn[10:]) == [(1, index) for index in range(10)]
    assert [task for _, task in drawn[:10]] != [task for _, task in drawn[10:]]


def test_the_order_is_a_function_of_seed_and_sequence_alone() -> None:
    assert Epochs(range(10), seed=0).draw(13) == draw(14)[13]
    assert draw(10) == draw(10)
    assert draw(10) != draw(10, seed=1)


def test_no_tasks_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no training tasks"):
        Epochs([], seed=0)
