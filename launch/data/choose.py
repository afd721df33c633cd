"""So many of many: by a seed, in shares, or the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlsys.errors import BadInput
from rlsys.seeds import rank, some_of


def drawn(
    rows: Sequence[Mapping[str, Any]],
    take: int,
    *,
    seed: int,
    same: Callable[[Any], str],
    stratify: str | None = None,
) -> list[Any]:
    """`take` of the rows, or all where there are no more, in their order.

    A row's place in the draw is a hash of the seed and of what it is (`same`): 100 drawn are among the 1,000 drawn, the
    order of the source does not matter, and rows that are the same are drawn together. With `stratify` each value of
    that field has its share of the whole, by the largest remainders. Raises BadInput for a row without the field.
    """
    if take >= len(rows):
        return list(rows)
    if stratify is None:
        return some_of(rows, take, lambda row: rank(seed, same(row)))
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if stratify not in row:
            known = ", ".join(key for key in row if key not in ("question", "answers"))
            raise BadInput(f"--stratify {stratify}: a row without it, which has {known or 'no other field'}")
        groups.setdefault(str(row[stratify]), []).append(place)
    shares = apportioned({value: len(each) for value, each in groups.items()}, take)
    chosen = {
        place
        for value, each in groups.items()
        for place in some_of(each, shares[value], lambda place: rank(seed, same(rows[place])))
    }
    return [row for place, row in enumerate(rows) if place in chosen]


def apportioned(counts: Mapping[str, int], take: int) -> dict[str, int]:
    """Shares of `take` by the largest remainders: apportioned({"a": 5, "b": 3, "c": 2}, 4) == {"a": 2, "b": 1, "c": 1}

    Of equal remainders the earlier name goes first.
    """
    total = sum(counts.values())
    shares = {name: take * count // total for name, count in counts.items()}
    by_remainder = sorted(counts, key=lambda name: (-(take * counts[name] % total), name))
    for name in by_remainder[: take - sum(shares.values())]:
        shares[name] += 1
    return shares
