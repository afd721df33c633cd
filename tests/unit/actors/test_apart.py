"""Where suspects play: one after the other, in a process that is kept while one of them waits, and then ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.env_worker_pool import EnvWorkerPool
from tests.fakes.local_worlds import LocalProcess
from tests.unit.actors.test_env_worker_pool import SPEC


class Slow(LocalProcess):
    """Takes its time to stop."""

    def __init__(self, spec: Any, lost: Any) -> None:
        super().__init__(spec, lost)
        self.heard: list[Any] = []
        self.stopped = False

    def ask(self, asker: Any, method: str, *arguments: Any) -> asyncio.Future[Any]:
        self.heard.append((method, *arguments))
        return asyncio.get_running_loop().create_future()

    async def stop(self) -> None:
        await asyncio.sleep(0.01)
        self.stopped = True


@pytest.fixture
def worlds() -> EnvWorkerPool:
    return EnvWorkerPool(SPEC, Slow)  # type: ignore[arg-type]


def test_suspects_play_one_after_the_other_in_one_process_and_it_ends_with_the_last(worlds: EnvWorkerPool) -> None:
    async def story() -> None:
        worlds.connect({"judge": "http://here"})
        first = await worlds.apart()
        process: Any = first.start()
        assert process.heard == [("connect", {"judge": "http://here"})]
        worlds.connect({"judge": "http://there"})
        assert process.heard[1:] == [("connect", {"judge": "http://there"})]
        next_one, given_up = (asyncio.create_task(worlds.apart()) for _ in range(2))
        await asyncio.sleep(0)
        assert not next_one.done()
        given_up.cancel()
        worlds.leave()
        assert await next_one is first and first.start() is process and not process.stopped
        worlds.leave()
        while not process.stopped:  # the last one has left: nothing is kept for others
            await asyncio.sleep(0)
        await worlds.stop()
        await first.stop()

        again = await worlds.apart()
        assert again.start() is not process and again.lost is worlds.lost

    asyncio.run(asyncio.wait_for(story(), 60))


def test_a_process_that_rests_is_waited_for_at_the_end(worlds: EnvWorkerPool) -> None:
    async def story() -> None:
        process: Any = worlds.start()
        assert worlds.start() is process and process.heard == []  # no services: nothing to hear of
        worlds.rest()
        worlds.rest()
        assert worlds.start() is not process
        await worlds.stop()
        assert process.stopped

    asyncio.run(asyncio.wait_for(story(), 60))
