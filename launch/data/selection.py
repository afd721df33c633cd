"""Which rows a file gets: without questions that an evaluation has, the same or nearly the same twice; and so many of
them, by a seed, in shares, or the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.data.records import Progress, Row
from rlsys.errors import BadInput
from rlsys.seeds import hash_order, stable_sample

PERMUTATIONS = 128  # as in Long CoT's search for phrases
SHINGLE = 3  # words
BATCH = 1_000  # texts whose words are in memory at once


@dataclass(frozen=True, slots=True)
class Dropped:
    row: Row
    why: str  # in_evaluation | repeated | near
    of: str  # the file that has it


def drop_duplicates(
    rows: Sequence[Row], *, same: Callable[[Row], str], twin: Callable[[Row], str], held: Mapping[str, str]
) -> tuple[list[Row], list[Dropped]]:
    """The rows without those that `held` has (what is the same: its file), and without the second of two twins."""
    selected: list[Row] = []
    dropped: list[Dropped] = []
    twins: set[str] = set()
    for row in rows:
        key, itself = same(row), twin(row)
        if key in held:
            dropped.append(Dropped(row, "in_evaluation", held[key]))
        elif itself in twins:
            dropped.append(Dropped(row, "repeated", "this file"))
        else:
            twins.add(itself)
            selected.append(row)
    return selected, dropped


def drop_near_duplicates(
    rows: Sequence[Row],
    *,
    text: Callable[[Row], str],
    held: Iterable[tuple[str, str]],
    threshold: float,
    show: Progress,
) -> tuple[list[Row], list[Dropped]]:
    """The rows without those whose words are nearly those of a held text, or of an earlier row.

    held: (text, its file); threshold: of the Jaccard index of word triples, as MinHash estimates it.
    """
    from datasketch import MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=PERMUTATIONS)
    sketches: list[Any] = []
    files: list[str] = []

    def add(sketch: Any, file: str) -> None:
        index.insert(len(sketches), sketch, check_duplication=False)
        sketches.append(sketch)
        files.append(file)

    held = list(held)
    for (_, file), sketch in zip(
        held, _make_sketches([words for words, _ in held], "held-out words", show), strict=True
    ):
        add(sketch, file)
    selected: list[Row] = []
    dropped: list[Dropped] = []
    for row, sketch in zip(rows, _make_sketches([text(row) for row in rows], "near-duplicates", show), strict=True):
        matches = sorted(place for place in index.query(sketch) if sketch.jaccard(sketches[place]) >= threshold)
        if matches:
            dropped.append(Dropped(row, "near", files[matches[0]]))
        else:
            selected.append(row)
            add(sketch, "this file")
    return selected, dropped


def shingles(text: str) -> list[bytes]:
    """Its word triples; the words themselves where there are fewer."""
    words = re.sub(r"\W+", " ", text.lower()).split()
    triples = (" ".join(words[at : at + SHINGLE]) for at in range(len(words) - SHINGLE + 1))
    return [shingle.encode("utf-8", "surrogatepass") for shingle in (triples if len(words) >= SHINGLE else words)]


def _make_sketches(texts: Sequence[str], label: str, show: Progress) -> Iterable[Any]:
    from datasketch import MinHash

    for start in range(0, len(texts), BATCH):
        show(label, start, len(texts))
        yield from MinHash.generator(map(shingles, texts[start : start + BATCH]), num_perm=PERMUTATIONS)
    show(label, len(texts), len(texts))


def draw_rows(
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
        return stable_sample(rows, take, lambda row: hash_order(seed, same(row)))
    groups: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        if stratify not in row:
            names = ", ".join(key for key in row if key not in ("question", "answers"))
            raise BadInput(f"a row without it, which has {names or 'no other field'}", key="--stratify", found=stratify)
        groups.setdefault(str(row[stratify]), []).append(place)
    shares = apportion({value: len(places) for value, places in groups.items()}, take)
    drawn_places = {
        place
        for value, places in groups.items()
        for place in stable_sample(places, shares[value], lambda place: hash_order(seed, same(rows[place])))
    }
    return [row for place, row in enumerate(rows) if place in drawn_places]


def apportion(counts: Mapping[str, int], take: int) -> dict[str, int]:
    """Shares of `take` by the largest remainders: apportion({"a": 5, "b": 3, "c": 2}, 4) == {"a": 2, "b": 1, "c": 1}

    Of equal remainders the earlier name goes first.
    """
    total = sum(counts.values())
    shares = {name: take * count // total for name, count in counts.items()}
    by_remainder = sorted(counts, key=lambda name: (-(take * counts[name] % total), name))
    for name in by_remainder[: take - sum(shares.values())]:
        shares[name] += 1
    return shares
