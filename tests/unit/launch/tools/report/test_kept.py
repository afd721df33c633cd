"""Which trajectories a page holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from launch.commands.report import advise_smaller
from launch.tools.report.kept import (
    OF_PAGE,
    SPREAD,
    Room,
    SelectedRows,
    bisection_order,
    parse_room,
    select_rows,
    wrong_answer_threshold,
)
from launch.tools.report.page import KEEP
from tests.refused import refused

NAN = float("nan")


@dataclass(frozen=True)
class Table:
    columns: dict[str, Any]
    texts: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.columns["step"])


def table(rows: list[dict[str, Any]]) -> Table:
    """Training of 2 siblings a group by default; -1 is unknown."""
    whole = {"file": 0, "sequence": 0, "step": 1, "play": -1, "failure": -1, "correct": -1, "reward": 0.5, "length": 1}
    columns = {name: np.array([{**whole, **row}[name] for row in rows]) for name in whole}
    return Table(columns, {})


def group(step: int, *rewards: float, sequence: int = 0, **more: Any) -> list[dict[str, Any]]:
    return [{"step": step, "file": step, "sequence": sequence, "reward": reward, **more} for reward in rewards]


def test_all_are_kept_where_there_is_room() -> None:
    choice = select_rows(table(group(1, 0.0, 1.0)), Room(2))
    assert (list(choice.rows), choice.total, choice.reasons) == ([0, 1], 2, {"of runs that are here whole": 2})
    assert list(select_rows(table(group(1, 0.0, 1.0)), None).rows) == [0, 1]
    assert select_rows(table([]), Room(10)).total == 0


def test_room_in_bytes_counts_what_a_trajectory_takes_of_the_page() -> None:
    """20 groups of 4 lines of 111,000 bytes are 310,800 of a page each: three of them fit into a megabyte."""
    rows = [row | {"length": 111_000} for step in range(20) for row in group(step, *[0.1 * step] * 4)]

    def choice(most: float) -> SelectedRows:
        return select_rows(table(rows), Room(most, in_bytes=True))

    assert OF_PAGE * 4 * 111_000 == 310_800
    assert len(choice(1e6).rows) == 3 * 4 and {row // 4 for row in choice(1e6).rows} <= set(range(20))
    assert len(choice(20 * 310_800).rows) == len(rows)
    assert len(choice(300_000).rows) == 4 and len(choice(0).rows) == 0  # one at least, unless none is wanted
    short = [row | {"length": 1_000 if row["step"] % 2 else 111_000} for row in rows]
    assert len(select_rows(table(short), Room(1e6, in_bytes=True)).rows) > 10 * 4  # all of the small ones


def test_a_room_is_a_number_or_a_size() -> None:
    assert [parse_room(text) for text in ("all", "none", "25", "20MB")] == [
        None, Room(0), Room(25), Room(20e6, in_bytes=True)
    ]  # fmt: skip
    for wrong in ("20 MB", "-3", "MB", "many"):
        with refused("--trajectories", found=wrong):
            parse_room(wrong)


@pytest.mark.parametrize("keep", [0, 1, 7, 20, 39])
def test_groups_stay_whole_and_the_limit_holds(keep: int) -> None:
    rows = [row for step in range(10) for row in group(step, *[0.1 * step] * 4)]
    choice = select_rows(table(rows), Room(keep))
    least = 4 if keep else 0  # one group at least, unless none is wanted
    assert len(choice.rows) == max(keep // 4 * 4, least) == sum(choice.reasons.values())
    assert {row // 4 for row in choice.rows} == {row // 4 for row in choice.rows if row % 4 == 3}


def test_what_somebody_will_look_for_comes_first() -> None:
    """Of 100 groups of 2, the one that failed, was paid for nothing, and got most and least, are among 20 rows."""
    rows = [row for step in range(100) for row in group(step, 0.5, 0.5)]
    rows[20]["failure"] = 3
    rows[41] |= {"reward": 0.9, "correct": 0}
    rows[60]["reward"], rows[80]["reward"] = 2.0, -1.0
    choice = select_rows(table(rows), Room(40))
    assert {20, 21, 40, 41, 60, 61, 80, 81} <= set(choice.rows)
    assert choice.reasons["failure"] == 2 and choice.reasons["paid but wrong"] == 2
    assert choice.reasons["highest reward"] == choice.reasons["lowest reward"] == 2


def test_a_wrong_answer_is_paid_where_it_gets_what_right_ones_do() -> None:
    def above(right: list[float], wrong: float = 0.1) -> float:
        rows = [row | {"correct": 1} for reward in right for row in group(0, reward)]
        return wrong_answer_threshold(table(rows + [row | {"correct": 0} for row in group(1, wrong)]))

    assert above([1.1, 1.1, 1.0, NAN]) == above([1.1, 1.1, 1.0], wrong=9.0) == 0.55  # and 0.1 is for the form alone
    assert above([]) == above([0.0]) == above([-1.0]) == 0.0
    evaluated = [row | {"correct": 1, "play": 0} for row in group(0, 1.0)]
    assert wrong_answer_threshold(table(evaluated)) == 0.0


def test_the_rest_is_spread_over_the_steps() -> None:
    rows = [row for step in range(64) for row in group(step, NAN)]
    choice = select_rows(table(rows), Room(8))
    assert choice.reasons == {SPREAD: 8}
    assert list(choice.rows) == list(range(0, 64, 8))


def test_of_an_evaluation_the_last_is_kept() -> None:
    """Play 0 was played before and after: the one after more steps; of the same step, the file that comes last."""
    before = [row for n in range(5) for row in group(0, 0.0, sequence=n, play=0, file=0)]
    after = [row for n in range(5) for row in group(9, 1.0, sequence=n, play=0, file=20)]
    training = [row for step in range(1, 9) for row in group(step, 0.5)]
    choice = select_rows(table([*before, *training, *after]), Room(10))
    assert choice.reasons["evaluation"] == 5
    assert set(range(13, 18)) <= set(choice.rows)


def test_halves_are_split_again_and_again() -> None:
    assert bisection_order(0).tolist() == []
    assert bisection_order(4).tolist() == [0, 2, 1, 3]
    assert bisection_order(5).tolist() == [0, 3, 2, 4, 1]


def test_a_large_page_is_advised_a_room_that_is_smaller_than_its_own() -> None:
    for more in ("all", "21MB", "100000"):
        assert KEEP in advise_smaller(parse_room(more))
    for no_more in (KEEP, "5MB"):
        assert KEEP not in advise_smaller(parse_room(no_more))
