"""Turns at the sandbox: programs that loop delay themselves, and a queue that moves is no failure."""

import asyncio

import pytest

from envs.tools.python_tool import EpisodePython, Turns
from envs.tools.sandbox import Execution, Outcome, SandboxConfig


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Queue:
    """Callers of one `Turns`; each holds its place until it is told to end."""

    def __init__(self, places: int, stalled_s: float = 60.0) -> None:
        self.turns = Turns(places, stalled_s)
        self.served: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def join(self, name: str, used_s: float) -> None:
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._hold(name, used_s))
        await settle()

    async def _hold(self, name: str, used_s: float) -> None:
        async with self.turns.turn(used_s):
            self.served.append(name)
            await self.ends[name].wait()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await settle()


def test_who_has_used_least_goes_first_and_equals_in_the_order_of_their_coming() -> None:
    async def use() -> None:
        queue = Queue(places=1)
        await queue.join("looping 0", 0.0)
        for number in range(1, 4):
            await queue.join(f"looping {number}", 5.0)
        await queue.join("honest", 0.1)
        assert queue.turns.waiting == 4
        for name in ("looping 0", "honest", "looping 1", "looping 2"):
            await queue.end(name)
        assert queue.served == ["looping 0", "honest", "looping 1", "looping 2", "looping 3"]
        await queue.end("looping 3")

    asyncio.run(use())


def test_who_used_much_waits_no_longer_than_that_while_others_come_again() -> None:
    async def use() -> None:
        now = 0.0
        asyncio.get_running_loop().time = lambda: now  # type: ignore[method-assign]
        queue = Queue(places=1)
        await queue.join("a 0", 0.0)
        await queue.join("used much", 5.0)
        await queue.join("b 0", 0.0)
        for turn in range(1, 9):
            now += 1.0
            holds = queue.served[-1]
            if holds == "used much":
                break
            await queue.end(holds)
            await queue.join(f"{holds[0]} {turn}", 0.0)
        assert 4.0 <= now <= 8.0 and queue.served[-1] == "used much"
        for task in queue.tasks.values():
            task.cancel()
        await settle()

    asyncio.run(use())


def test_no_more_than_the_places_at_once_and_none_is_lost_when_callers_give_up() -> None:
    async def use() -> None:
        queue = Queue(places=2)
        for name in "abcd":
            await queue.join(name, 0.0)
        assert queue.served == ["a", "b"]
        queue.tasks["c"].cancel()  # while it waits
        queue.tasks["a"].cancel()  # while it holds a place
        await settle()
        assert queue.served == ["a", "b", "d"]
        queue.ends["b"].set()
        await asyncio.sleep(0)
        for name in ("e", "f"):
            await queue.join(name, 0.0)
        assert queue.served == ["a", "b", "d", "e"]
        queue.ends["d"].set()
        queue.tasks["f"].cancel()  # in the same moment as its place comes free
        await queue.join("g", 0.0)
        assert queue.served == ["a", "b", "d", "e", "g"]

    asyncio.run(use())


def test_a_caller_gives_up_only_when_nothing_ends() -> None:
    async def use() -> None:
        moving = Queue(places=1, stalled_s=0.2)
        for number in range(8):
            await moving.join(f"{number}", 0.0)
        for number in range(8):  # the last waits for much longer than `stalled_s`
            await asyncio.sleep(0.1)
            await moving.end(f"{number}")
        await asyncio.gather(*moving.tasks.values())

        stuck = Queue(places=1, stalled_s=0.05)
        await stuck.join("never ends", 0.0)
        await stuck.join("waits", 0.0)
        with pytest.raises(TimeoutError):
            await stuck.tasks["waits"]

    asyncio.run(use())


def test_an_episode_that_has_used_its_share_gets_a_result_and_runs_nothing_more() -> None:
    ran: list[tuple[str, float]] = []

    async def run(code: str, used_s: float) -> Execution:
        ran.append((code, used_s))
        return Execution(text="TimeoutError", outcome=Outcome.TIMEOUT, seconds=5.0)

    async def use() -> None:
        python = EpisodePython(run, share_s=10.0)
        outcomes = [(await python.run("while 1: pass")).outcome for _ in range(4)]
        assert outcomes == [Outcome.TIMEOUT] * 4
        assert ran == [("while 1: pass", 0.0), ("while 1: pass", 5.0)]

    asyncio.run(use())


def test_the_share_follows_the_deadline_and_the_workers_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SandboxConfig(timeout_s=2.0).episode_share_s == 24.0
    assert SandboxConfig(timeout_s=2.0, episode_s=7.0).episode_share_s == 7.0
    for cores, workers in ((1, 2), (8, 2), (32, 8), (256, 16)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        assert SandboxConfig().num_workers == workers
    assert SandboxConfig(workers=5).num_workers == 5
