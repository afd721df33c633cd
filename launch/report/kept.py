"""Which trajectories of a run a page holds: whole groups, first those that a reader will look for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rlsys.errors import BadInput

Column = npt.NDArray[Any]
NONE = -1  # in columns of numbers: unknown

PAID = 0.5  # reward above which an episode that a grader calls wrong is worth a look
SHARES = {"evaluation": 0.5, "failure": 0.25, "highest reward": 0.05, "lowest reward": 0.05, "paid but wrong": 0.15}
SPREAD = "spread over the steps"


class Listed(Protocol):
    """What `launch.reading.episodes.Episodes` tells of the episodes of a run without reading them."""

    @property
    def columns(self) -> Mapping[str, Column]: ...

    @property
    def texts(self) -> Mapping[str, Sequence[str]]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """rows: those that are kept, in their order. reasons: how many of them each reason kept."""

    rows: Sequence[int]
    total: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Groups:
    """[G] each: the siblings of a task, and of an evaluation the samples of one."""

    of_row: Column  # [N]
    size: Column
    step: Column
    play: Column
    file: Column
    highest: Column
    lowest: Column
    failed: Column
    paid_but_wrong: Column


def choose(episodes: Listed, keep: int | None) -> Kept:
    """At most `keep` rows (None: all), whole groups: of each reason up to its share, the rest evenly over the steps."""
    total = len(episodes)
    if keep is None or total <= keep:
        return Kept(range(total), total, {"of runs that are here whole": total} if total else {})
    groups = _group(episodes.columns)
    taken = np.zeros(len(groups.size), bool)
    reasons: Counter[str] = Counter()

    def take(candidates: Iterable[int], reason: str, most: int) -> None:
        for group in candidates:
            size = int(groups.size[group])
            if most < size:
                continue
            if not taken[group]:
                taken[group] = True
                reasons[reason] += size
                most -= size

    for reason, candidates in _candidates(groups).items():
        take(candidates, reason, round(SHARES[reason] * keep))
    training = np.flatnonzero(groups.play == NONE)
    take(_evenly(groups, training), SPREAD, keep - reasons.total())
    take(_evenly(groups, np.flatnonzero(~taken)), SPREAD, keep - reasons.total())  # where training left room
    return Kept(np.flatnonzero(taken[groups.of_row]).tolist(), total, dict(reasons))


def _group(columns: Mapping[str, Column]) -> _Groups:
    keys = columns["file"].astype(np.int64) * 2**32 + columns["sequence"]
    _, first, of_row, size = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    reward = columns["reward"]
    highest, lowest = np.full(len(size), -np.inf), np.full(len(size), np.inf)
    np.fmax.at(highest, of_row, reward)
    np.fmin.at(lowest, of_row, reward)
    failed, wrong = np.zeros(len(size), bool), np.zeros(len(size), bool)
    np.logical_or.at(failed, of_row, columns["failure"] != NONE)
    np.logical_or.at(wrong, of_row, (reward > PAID) & (columns["correct"] == 0))
    at_first = {name: columns[name][first] for name in ("step", "play", "file")}
    return _Groups(
        of_row=of_row, size=size, highest=highest, lowest=lowest, failed=failed, paid_but_wrong=wrong, **at_first
    )


def _candidates(groups: _Groups) -> dict[str, Sequence[int]]:
    """By reason, the groups in the order in which they are taken."""
    graded = np.flatnonzero((groups.highest >= groups.lowest) & (groups.play == NONE))
    by_highest, by_lowest = (graded[np.argsort(own[graded], kind="stable")] for own in (-groups.highest, groups.lowest))
    return {
        "evaluation": _evenly(groups, _last_plays(groups)),
        "failure": _evenly(groups, np.flatnonzero(groups.failed)),
        "highest reward": by_highest.tolist(),
        "lowest reward": by_lowest.tolist(),
        "paid but wrong": _evenly(groups, np.flatnonzero(groups.paid_but_wrong)),
    }


def _last_plays(groups: _Groups) -> Column:
    """Of each kind of decoding the evaluation after the most steps; of several there, the one that is last."""
    found = []
    for play in np.unique(groups.play[groups.play != NONE]):
        own = np.flatnonzero(groups.play == play)
        newest = own[groups.step[own] == groups.step[own].max()]
        found.append(newest[groups.file[newest] == groups.file[newest].max()])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _evenly(groups: _Groups, chosen: Column) -> list[int]:
    """In an order of which every beginning is spread over all steps: one of each step, then a second of each, ..."""
    steps, at, counts = np.unique(groups.step[chosen], return_inverse=True, return_counts=True)
    by_step = np.argsort(at, kind="stable")
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    turn = np.empty(len(chosen), np.int64)
    turn[by_step] = np.arange(len(chosen)) - begins
    return chosen[np.lexsort((bisection_order(len(steps))[at], turn))].tolist()


def bisection_order(count: int) -> Column:
    """The turn of each place where halves are split again and again: bisection_order(4) is [0, 2, 1, 3]."""
    bits = max(count - 1, 0).bit_length()
    places = np.arange(count)
    mirrored = sum(((places >> bit) & 1) << (bits - 1 - bit) for bit in range(bits)) + np.zeros(count, np.int64)
    return np.argsort(np.argsort(mirrored, kind="stable"), kind="stable")


def count_kept(given: str) -> int | None:
    """None: all of them."""
    if given in ("all", "none"):
        return None if given == "all" else 0
    if not given.isdigit():
        raise BadInput(key="--trajectories", found=given, expected="a number, all or none")
    return int(given)
