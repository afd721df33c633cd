"""One timer for many deadlines does what `asyncio.timeout` does for each."""

from __future__ import annotations

import asyncio

import pytest

from envs.services.deadlines import Deadlines
from envs.services.gate import Admission, Refused


def test_what_waits_too_long_is_ended_in_turn_and_the_rest_goes_on() -> None:
    async def play() -> None:
        deadlines = Deadlines(0.1)
        loop = asyncio.get_running_loop()
        ended: list[tuple[str, float]] = []

        async def wait(name: str, start_s: float, wait_s: float) -> None:
            await asyncio.sleep(start_s)
            begun = loop.time()
            try:
                with deadlines.begin():
                    await asyncio.sleep(wait_s)
            except TimeoutError:
                ended.append((name, loop.time() - begun))
            await asyncio.sleep(0)  # no cancellation is left over

        cases = {"a": (0.0, 9.0), "b": (0.05, 9.0), "in time": (0.02, 0.01), "later": (0.25, 9.0)}
        await asyncio.gather(*(wait(name, *times) for name, times in cases.items()))
        assert [name for name, _ in ended] == ["a", "b", "later"]
        assert all(waited >= 0.099 for _, waited in ended)

    asyncio.run(play())


def test_a_cancellation_from_elsewhere_and_an_error_pass_through() -> None:
    async def play() -> None:
        deadlines = Deadlines(5.0)

        async def wait() -> None:
            with deadlines.begin():
                await asyncio.sleep(9.0)

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(KeyError), deadlines.begin():
            raise KeyError

    asyncio.run(play())


def test_a_body_that_does_not_arrive_is_408() -> None:
    async def play() -> None:
        admission = Admission(token=None, max_body_bytes=10, deadline_s=0.05)
        with pytest.raises(Refused) as caught:
            await admission.body({"path": "/"}, asyncio.Event().wait)  # type: ignore[arg-type]
        assert caught.value.status == 408

    asyncio.run(play())
