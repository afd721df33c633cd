"""The optimizer's numbers divided over ranks: joined from any division, and cut for any other."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from learners.shards import Division, cut, join

A, B, C = [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12]
WHOLE = {name: torch.tensor(numbers, dtype=torch.float32) for name, numbers in (("a", A), ("b", B), ("c", C))}
GROUPS = [{"a": 5, "b": 5, "c": 2}]


def division(zero_stage: int, ranks: int) -> Division:
    return Division(groups=GROUPS, ranks=ranks, zero_stage=zero_stage)


def floats(*numbers: list[int]) -> list[torch.Tensor]:
    return [torch.tensor(part, dtype=torch.float32) for part in numbers]


# Twelve numbers by hand. Stages 1 and 2 pad the group to a multiple of the ranks (DeepSpeed: of twice as many), stage 3
# each parameter.
DIVIDED = {
    (2, 1): [[*A, *B, *C]],
    (2, 2): [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]],
    (1, 5): [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [0] * 4, [0] * 4],
    (1, 8): [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12], [0, 0], [0, 0]],
    (3, 1): [[*A, *B, *C]],
    (3, 2): [[1, 2, 3, 6, 7, 8, 11], [4, 5, 0, 9, 10, 0, 12]],
    (3, 3): [[1, 2, 6, 7, 11], [3, 4, 8, 9, 12], [5, 0, 10, 0, 0]],
    (3, 6): [[1, 6, 11], [2, 7, 12], [3, 8, 0], [4, 9, 0], [5, 10, 0], [0, 0, 0]],
}


@pytest.mark.parametrize(("before", "after"), list(product(DIVIDED, DIVIDED)))
def test_numbers_of_one_division_become_those_of_another(before: tuple[int, int], after: tuple[int, int]) -> None:
    old, new = division(*before), division(*after)
    parts, places = [[part] for part in floats(*DIVIDED[before])], old.places()
    for rank, expected in enumerate(floats(*DIVIDED[after])):
        result = cut(
            lambda name: join(parts, places[name], old), new, rank=rank, group=0, size=len(DIVIDED[after][rank])
        )
        assert torch.equal(result, expected)


@pytest.mark.parametrize("lean", [False, True])
def test_zeros_at_the_end_may_be_saved_or_not(lean: bool) -> None:
    """DeepSpeed saves the master weights without them and the moments with them."""
    zeros = [0] * (not lean)
    parts = floats([1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, *(3 * zeros)], 5 * zeros)
    layout = division(2, 4)
    for name, place in layout.places().items():
        assert torch.equal(join([[part] for part in parts], place, layout), WHOLE[name])


def test_each_group_has_its_own_parts_and_its_own_zeros() -> None:
    """Matrices and vectors are two groups: weight decay tells them apart."""
    groups = [{"a": 3}, {"b": 1, "c": 2}]
    parts = [floats([1, 2], [4, 5]), floats([3, 0], [6, 0])]
    old = Division(groups=groups, ranks=2, zero_stage=1)
    places = old.places()
    assert [join(parts, places[name], old).tolist() for name in "abc"] == [[1, 2, 3], [4], [5, 6]]
    new = Division(groups=groups, ranks=2, zero_stage=3)
    results = [cut(lambda name: join(parts, places[name], old), new, rank=1, group=g, size=2).tolist() for g in (0, 1)]
    assert results == [[3, 0], [0, 6]]


def test_sub_groups_of_zero_3_need_not_be_those_of_before() -> None:
    old = Division(groups=[{"a": 5, "b": 5}, {"c": 2}], ranks=2, zero_stage=3)
    parts = [floats([1, 2, 3, 6, 7, 8], [11]), floats([4, 5, 0, 9, 10, 0], [12])]
    places = old.places()
    assert all(torch.equal(join(parts, places[name], old), WHOLE[name]) for name in WHOLE)


def test_a_rank_asks_only_for_what_it_holds() -> None:
    names: list[str] = []

    def whole(name: str) -> torch.Tensor:
        names.append(name)
        return WHOLE[name]

    assert cut(whole, division(2, 4), rank=3, group=0, size=3).tolist() == [10, 11, 12]
    assert names == ["b", "c"]


def test_parts_that_are_too_short_are_an_error() -> None:
    old = division(2, 2)
    with pytest.raises(ValueError, match="1 of 2"):
        join([[part] for part in floats([1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11])], old.places()["c"], old)
    with pytest.raises(ValueError, match="5 numbers on a rank, 6 are needed"):
        cut(WHOLE.__getitem__, old, rank=0, group=0, size=5)
