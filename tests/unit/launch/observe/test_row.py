"""The seconds of a step add up, and its tokens are counted in one unit."""

import time

import pytest

from launch.observe.row import Clock, StepRow, StepTime


def test_phases_and_the_rest_are_the_whole_step() -> None:
    clock = Clock()
    with clock.phase("update"):
        time.sleep(0.01)
    with clock.phase("update"):
        time.sleep(0.01)
    closed = clock.close()
    assert set(closed.phases) == {"update", "other"}
    assert closed.total >= closed.phases["update"] >= 0.02
    assert sum(closed.phases.values()) == pytest.approx(closed.total)
    assert set(clock.close().phases) == {"other"}  # the next step begins at nothing


def test_a_row_by_hand() -> None:
    spent = StepTime(phases={"update": 1.5, "other": 0.5}, total=2.0)
    row = StepRow(stage="sft", step=12, stage_step=2, trained=50, packed=200, time=spent, metrics={"loss/nll": 0.25})
    assert row.to_json() == {
        "step": 12,
        "stage": "sft",
        "stage_step": 2,
        "loss/nll": 0.25,
        "time/update": 1.5,
        "time/other": 0.5,
        "time/step": 2.0,
        "tokens/trained": 50,
        "tokens/packed": 200,
        "tokens/trained_per_s": 25.0,
        "tokens/packed_per_s": 100.0,
    }
