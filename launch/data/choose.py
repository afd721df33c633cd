"""So many of many: by a seed, in shares, or the first."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlsys.errors import BadInput


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
    places = sorted(range(len(rows)), key=lambda place: (_rank(seed, same(rows[place])), place))
    if stratify is None:
        chosen = set(places[:take])
    else:
        groups: dict[str, list[int]] = {}
        for place in places:
            if stratify not in rows[place]:
                known = ", ".join(key for key in rows[place] if key not in ("question", "answers"))
                raise BadInput(f"--stratify {stratify}: a row without it, which has {known or 'no other field'}")
            groups.setdefault(str(rows[place][stratify]), []).append(place)
        shares = apportioned({value: len(each) for value, each in groups.items()}, take)
        chosen = {place for value, each in groups.items() for place in each[: shares[value]]}
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


def _rank(seed: int, what: str) -> bytes:
    return hashlib.blake2b(f"{seed}\x1f{what}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
