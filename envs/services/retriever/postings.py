"""The best passages of many queries from one inverted index: compiled, and without Python's lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba  # type: ignore[import-untyped]
import numpy as np
from numba import float32, int32, int64, types

Array = np.ndarray[Any, Any]


def compile_kernel(signature: Any) -> Callable[[Any], Any]:
    """For one signature, at import; kept on disk where there is a place and room to keep it."""

    def decorate(function: Any) -> Any:
        options = {"nogil": True, "boundscheck": True}
        try:
            return numba.njit(signature, cache=True, **options)(function)
        except (RuntimeError, OSError):  # no folder that this user may write to; a full disk
            return numba.njit(signature, **options)(function)

    return decorate


def read_only(item: Any) -> Any:
    """An array in memory fits it, too."""
    return types.Array(item, 1, "C", readonly=True)


@compile_kernel(
    types.Tuple((int64[:, ::1], float32[:, ::1], int64[::1]))(
        *map(read_only, (int64, int64, int64, int32, float32)), int64, int64
    )
)
def rank(
    words: Array, ends: Array, starts: Array, documents: Array, weights: Array, num_documents: int, k: int
) -> tuple[Array, Array, Array]:
    """Rows and scores `[num_queries, k]`, best first, equal scores in the corpus's order; and how many of each count.

    `words` are those of all queries, one query after the other; `ends[query]` is where a query's stop. A word's
    postings are `documents[starts[word] : starts[word + 1]]` with their `weights`. A query costs what its
    postings do, and a call one row of zeros over the corpus. Raises IndexError for postings beyond the corpus.
    """
    rows = np.zeros((len(ends), k), np.int64)
    scores = np.zeros((len(ends), k), np.float32)
    counts = np.zeros(len(ends), np.int64)
    total = np.zeros(num_documents, np.float32)  # of one query; zero again after it
    met = np.empty(num_documents + 1, np.int32)  # the first `num_met` are the rows where it is not
    first = 0
    for query in range(len(ends)):
        num_met = 0
        for place in range(first, ends[query]):
            for posting in range(starts[words[place]], starts[words[place] + 1]):
                row, weight = documents[posting], weights[posting]
                before = total[row]
                total[row] = before + weight
                met[num_met] = row
                num_met += (before == 0.0) & (weight > 0.0)  # no branch, which the processor would guess wrongly
        first = ends[query]
        num_kept = 0
        worst = float32(0.0)  # of those kept
        for number in range(num_met):
            row = met[number]
            score = total[row]
            total[row] = 0.0
            if num_kept == k and score < worst:
                continue
            rank = num_kept  # it moves up while it is better than the one above
            while rank > 0 and (
                score > scores[query, rank - 1] or (score == scores[query, rank - 1] and row < rows[query, rank - 1])
            ):
                rank -= 1
            if rank < k:
                num_kept = min(num_kept + 1, k)
                for below in range(num_kept - 1, rank, -1):
                    rows[query, below], scores[query, below] = rows[query, below - 1], scores[query, below - 1]
                rows[query, rank], scores[query, rank] = row, score
                worst = scores[query, num_kept - 1]
        counts[query] = num_kept
    return rows, scores, counts
