"""All ranks leave an update after the same number of rows, or none of them does."""

import threading
from collections.abc import Callable

import pytest

from learners.leaving import RowGate, UpdateLeft, common_row


def begun(gate: RowGate, rows: int) -> RowGate:
    for _ in range(rows):
        gate.begin_row()
    return gate


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """It, and what it gave or raised."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except (UpdateLeft, TimeoutError) as error:
            results.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results


def go_on(gate: RowGate) -> int:
    """Through ten rows and to the step: how many it began."""
    try:
        while gate.rows[0] < 10:
            gate.begin_row()
        gate.close()
    except UpdateLeft:
        return gate.rows[0]
    return -1


def test_the_ranks_leave_after_as_many_rows_as_the_one_that_was_farthest() -> None:
    gates = [begun(RowGate(), rows) for rows in (3, 5, 0)]
    place = common_row([gate.hold(120.0) for gate in gates])
    assert place == 5
    working = [in_thread(lambda gate=gate: go_on(gate)) for gate in gates]  # each waits to be told
    for gate in gates:
        gate.resume(place)
    for thread, _ in working:
        thread.join()
    assert [results for _, results in working] == [[5], [5], [5]]


def test_none_leaves_where_one_was_past_its_step() -> None:
    ahead, behind = begun(RowGate(), 10), begun(RowGate(), 9)
    ahead.close()
    place = common_row([ahead.hold(120.0), behind.hold(120.0)])
    assert place is None
    thread, results = in_thread(lambda: go_on(behind))
    ahead.resume(place)
    behind.resume(place)
    thread.join()
    assert results == [-1]
    begun(ahead, 30)  # what follows the step is never waited for
    assert ahead.hold(120.0) is None and ahead.rows == (40, 0)


def test_an_update_is_left_before_its_first_row_and_after_its_last() -> None:
    first, last = RowGate(), begun(RowGate(), 10)
    first.resume(first.hold(120.0))
    last.resume(last.hold(120.0))
    assert go_on(first) == 0 and go_on(last) == 10


def test_a_check_never_waits() -> None:
    gate = begun(RowGate(), 2)
    assert gate.hold(120.0) == 2
    gate.check()
    gate.resume(3)
    gate.check()
    gate.begin_row()
    with pytest.raises(UpdateLeft):
        gate.check()


def test_a_rank_that_is_not_told_gives_up() -> None:
    gate = RowGate()
    gate.hold(0.0)
    with pytest.raises(TimeoutError, match="held after row 0"):
        gate.begin_row()


def test_it_knows_how_far_it_is() -> None:
    gate = RowGate()
    assert gate.rows == (0, 0)
    gate.expect(8)
    assert begun(gate, 3).rows == (3, 8)
