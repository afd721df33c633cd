"""Draws by name: as many as are asked for, the same in every process, whatever the order of the source."""

import random

from rlsys.seeds import derive, hash_order, stable_sample


def test_a_draw_is_a_part_of_a_larger_one_and_no_order_changes_it() -> None:
    items = list(range(50))
    few, more = (
        stable_sample(items, 7, lambda each: hash_order("draw", each)),
        stable_sample(items, 20, lambda each: hash_order("draw", each)),
    )
    assert (len(few), len(more)) == (7, 20) and set(few) < set(more)
    assert few == sorted(few) != items[:7]
    random.Random(0).shuffle(items)
    assert sorted(stable_sample(items, 7, lambda each: hash_order("draw", each))) == few
    assert len(stable_sample(items, 99, lambda each: hash_order("draw", each))) == 50


def test_a_seed_is_one_of_31_bits_and_differs_by_every_part() -> None:
    seeds = {derive(*parts) for parts in (("a", 1), ("a", 2), ("b", 1), ("a", 1, 0), ("a1",))}
    assert len(seeds) == 5 and all(0 <= seed < 2**31 for seed in seeds)
    assert max(derive("wide", n) for n in range(64)) >= 2**30
