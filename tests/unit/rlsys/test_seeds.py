"""Draws by name: as many as are asked for, the same in every process, whatever the order of the source."""

import random

import pytest

from rlsys.errors import BadInput
from rlsys.seeds import Epochs, derive_seed, hash_order, stable_sample


def test_a_draw_is_a_part_of_a_larger_one_and_no_order_changes_it() -> None:
    items = list(range(50))
    few, more = (
        stable_sample(items, 7, lambda item: hash_order("draw", item)),
        stable_sample(items, 20, lambda item: hash_order("draw", item)),
    )
    assert (len(few), len(more)) == (7, 20) and set(few) < set(more)
    assert few == sorted(few) != items[:7]
    random.Random(0).shuffle(items)
    assert sorted(stable_sample(items, 7, lambda item: hash_order("draw", item))) == few
    assert len(stable_sample(items, 99, lambda item: hash_order("draw", item))) == 50


def test_a_seed_is_one_of_31_bits_and_differs_by_every_part() -> None:
    seeds = {derive_seed(*parts) for parts in (("a", 1), ("a", 2), ("b", 1), ("a", 1, 0), ("a1",))}
    assert len(seeds) == 5 and all(0 <= seed < 2**31 for seed in seeds)
    assert max(derive_seed("wide", n) for n in range(64)) >= 2**30


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
