"""A deadline is judged by a loop that had time to listen."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rlsys.system import deadlines
from rlsys.system.deadlines import LISTEN_S, within


def test_what_answers_in_time_is_heard_and_what_does_not_is_cancelled() -> None:
    async def answer() -> int:
        return 7

    async def scenario() -> None:
        assert await within(answer(), 60.0) == 7
        silent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await within(silent, 0.001)
        assert silent.cancelled()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("late", "waits"),
    [
        (0.05, [8.0]),  # a timer that fires on time: nobody answered
        (0.5, [8.0, 0.5]),  # the loop was busy: as long as that again
        (90.0, [8.0, LISTEN_S]),
    ],
)
def test_a_loop_that_was_held_up_listens_once_more(
    late: float, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, waited = iter([100.0, 108.0 + late]), []

    async def wait(_: Any, timeout: float) -> None:
        waited.append(timeout)

    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def scenario() -> None:
        silent: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patched, pytest.raises(TimeoutError):
            patched.setattr(asyncio, "wait", wait)
            await within(silent, 8.0)

    asyncio.run(scenario())
    assert waited == pytest.approx(waits)
