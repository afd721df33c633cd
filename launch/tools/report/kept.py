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

SHARES = {"evaluation": 0.5, "failure": 0.25, "highest reward": 0.05, "lowest reward": 0.05, "paid but wrong": 0.15}
SPREAD = "spread over the steps"


class EpisodeListing(Protocol):
    """What `launch.run_dir.episodes.Episodes` tells of the episodes of a run without reading them."""

    @property
    def columns(self) -> Mapping[str, Column]: ...

    @property
    def texts(self) -> Mapping[str, Sequence[str]]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Room:
    """For the trajectories of a page: so many of them, or so many bytes."""

    most: float
    in_bytes: bool = False

    def sizes(self, episodes: EpisodeListing) -> Column:
        """[N]: what each trajectory takes of it."""
        return episodes.columns["length"] * OF_PAGE if self.in_bytes else np.ones(len(episodes))


# Bytes of a page for a byte of trajectories/: ids and log-probabilities are packed to half, and base64 makes 4/3 of
# it. Text alone is packed to a fifth, so pages of it are smaller than their room.
OF_PAGE = 0.7


@dataclass(frozen=True, slots=True)
class SelectedRows:
    """rows: those that are kept, in their order. reasons: how many of them each reason kept."""

    rows: Sequence[int]
    total: int
    reasons: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _GroupColumns:
    """[G] each: the siblings of a task, and of an evaluation the samples of one."""

    of_row: Column  # [N]
    count: Column
    size: Column  # of the room
    step: Column
    play: Column
    file: Column
    highest: Column
    lowest: Column
    failed: Column
    paid_but_wrong: Column


def select_rows(episodes: EpisodeListing, room: Room | None) -> SelectedRows:
    """Rows for which there is room (None: for all), whole groups: of each reason up to its share, the rest evenly over
    the steps. Where there is room for something, there is for one group."""
    total, sizes = len(episodes), room.sizes(episodes) if room is not None else np.zeros(len(episodes))
    if room is None or sizes.sum() <= room.most:
        return SelectedRows(range(total), total, {"of runs that are here whole": total} if total else {})
    groups = _group_episodes(episodes.columns, sizes, wrong_answer_threshold(episodes))
    is_kept = np.zeros(len(groups.size), bool)
    reasons: Counter[str] = Counter()

    def select_groups(candidates: Iterable[int], reason: str, most: float) -> float:
        """Returns how much of the room is left."""
        for group in candidates:
            if most < groups.size[group] or is_kept[group]:
                continue
            is_kept[group] = True
            reasons[reason] += int(groups.count[group])
            most -= groups.size[group]
        return most

    remaining = room.most
    for reason, candidates in _candidates_by_reason(groups).items():
        share = SHARES[reason] * room.most
        remaining -= share - select_groups(candidates, reason, share)
    remaining = select_groups(_spread_over_steps(groups, np.flatnonzero(groups.play == NONE)), SPREAD, remaining)
    select_groups(_spread_over_steps(groups, np.flatnonzero(~is_kept)), SPREAD, remaining)  # where training left room
    if not is_kept.any() and room.most > 0:
        select_groups([int(groups.size.argmin())], SPREAD, np.inf)
    return SelectedRows(np.flatnonzero(is_kept[groups.of_row]).tolist(), total, dict(reasons))


def wrong_answer_threshold(episodes: EpisodeListing) -> float:
    """The reward above which a wrong answer is paid like a right one: half of what right ones of training usually get.

    Not what a wrong answer in the right form gets. 0 where none was right, or where right ones usually get nothing.
    """
    columns = episodes.columns
    right = columns["reward"][(columns["play"] == NONE) & (columns["correct"] == 1) & np.isfinite(columns["reward"])]
    return max(round(float(np.median(right)) / 2, 6), 0.0) if len(right) else 0.0


def _group_episodes(columns: Mapping[str, Column], sizes: Column, paid: float) -> _GroupColumns:
    keys = columns["file"].astype(np.int64) * 2**32 + columns["sequence"]
    _, first, of_row, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    reward = columns["reward"]
    highest, lowest = np.full(len(count), -np.inf), np.full(len(count), np.inf)
    np.fmax.at(highest, of_row, reward)
    np.fmin.at(lowest, of_row, reward)
    failed, wrong = np.zeros(len(count), bool), np.zeros(len(count), bool)
    np.logical_or.at(failed, of_row, columns["failure"] != NONE)
    np.logical_or.at(wrong, of_row, (reward > paid) & (columns["correct"] == 0))
    at_first = {name: columns[name][first] for name in ("step", "play", "file")}
    return _GroupColumns(
        of_row=of_row,
        count=count,
        size=np.bincount(of_row, sizes, len(count)),
        highest=highest,
        lowest=lowest,
        failed=failed,
        paid_but_wrong=wrong,
        **at_first,
    )


def _candidates_by_reason(groups: _GroupColumns) -> dict[str, Sequence[int]]:
    """By reason, the groups in the order in which they are taken."""
    graded = np.flatnonzero((groups.highest >= groups.lowest) & (groups.play == NONE))
    by_highest, by_lowest = (graded[np.argsort(key[graded], kind="stable")] for key in (-groups.highest, groups.lowest))
    return {
        "evaluation": _spread_over_steps(groups, _in_last_evaluation(groups)),
        "failure": _spread_over_steps(groups, np.flatnonzero(groups.failed)),
        "highest reward": by_highest.tolist(),
        "lowest reward": by_lowest.tolist(),
        "paid but wrong": _spread_over_steps(groups, np.flatnonzero(groups.paid_but_wrong)),
    }


def _in_last_evaluation(groups: _GroupColumns) -> Column:
    """Of each kind of decoding the evaluation after the most steps; of several there, the one that is last."""
    last_groups = []
    for play in np.unique(groups.play[groups.play != NONE]):
        of_play = np.flatnonzero(groups.play == play)
        newest = of_play[groups.step[of_play] == groups.step[of_play].max()]
        last_groups.append(newest[groups.file[newest] == groups.file[newest].max()])
    return np.concatenate(last_groups) if last_groups else np.zeros(0, np.int64)


def _spread_over_steps(groups: _GroupColumns, candidates: Column) -> list[int]:
    """In an order of which every beginning is spread over all steps: one of each step, then a second of each, ..."""
    steps, at, counts = np.unique(groups.step[candidates], return_inverse=True, return_counts=True)
    by_step = np.argsort(at, kind="stable")
    begins = np.repeat(np.cumsum(counts) - counts, counts)
    turn = np.empty(len(candidates), np.int64)
    turn[by_step] = np.arange(len(candidates)) - begins
    order: list[int] = candidates[np.lexsort((bisection_order(len(steps))[at], turn))].tolist()
    return order


def bisection_order(count: int) -> Column:
    """The turn of each place where halves are split again and again: bisection_order(4) is [0, 2, 1, 3]."""
    bits = max(count - 1, 0).bit_length()
    places = np.arange(count)
    mirrored = sum(((places >> bit) & 1) << (bits - 1 - bit) for bit in range(bits)) + np.zeros(count, np.int64)
    return np.argsort(np.argsort(mirrored, kind="stable"), kind="stable")


def parse_room(text: str) -> Room | None:
    """None: for all of them."""
    if text in ("all", "none"):
        return None if text == "all" else Room(0)
    number, is_size = text.removesuffix("MB"), text.endswith("MB")
    if not number.isdigit():
        raise BadInput(key="--trajectories", found=text, expected="a number, a size such as 20MB, all or none")
    return Room(int(number) * 1e6, in_bytes=True) if is_size else Room(int(number))
