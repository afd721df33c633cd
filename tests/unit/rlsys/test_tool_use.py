"""Columns of tool use: by hand, from what environments count and from the turns."""

import pytest

from rlsys.metrics import values
from rlsys.summaries import summarize
from rlsys.tool_use import use_metrics
from rlsys.types import EpisodeEnd
from tests.made import trajectory, turn

CALL, LAST = turn((1, 2), (7, 7, 7), reply="4"), turn((1, 2, 7, 7, 7, 4), (7,))


def test_a_steps_columns() -> None:
    searched = trajectory(CALL, LAST, metrics={"calls": 1, "valid_calls": 1, "reply_tokens": 1, "tables": 2})
    lost = trajectory(CALL, CALL, LAST, metrics={"calls": 2, "repeated_calls": 1}, end=EpisodeEnd.TURN_LIMIT)
    at_once = trajectory(LAST)
    row = values(use_metrics(list(map(summarize, (searched, lost, at_once)))))
    assert (row["episode/calls"], row["episode/valid_calls"]) == (1.0, pytest.approx(1 / 3))
    assert (row["episode/repeated_calls"], row["env/tables"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert row["episode/response_tokens"] == (4 + 1 + 7 + 1) / 3
    answered = [row[f"episode/answered_by_{turn}"] for turn in (1, 2, 3)]
    assert answered == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert "episode/answered_by_4" not in row


def test_nothing_was_played() -> None:
    assert use_metrics([]) == {}
