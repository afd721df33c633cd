"""The seconds of a step add up, and its tokens are counted in one unit."""

import asyncio
import time

import pytest

from launch.driver.observe.row import Clock, EventLoopLag, StepRow, StepTime


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


def test_a_block_is_measured_and_told_once() -> None:
    async def blocked() -> tuple[dict[str, float], dict[str, float]]:
        lag = EventLoopLag()
        assert lag.row() == {}
        watching = asyncio.create_task(lag.watch())
        await asyncio.sleep(0.03)
        time.sleep(0.2)
        await asyncio.sleep(0.03)
        first = lag.row()
        watching.cancel()
        return first, lag.row()

    first, second = asyncio.run(blocked())
    assert first["driver/longest_block_s"] > 0.15 and second == {}
