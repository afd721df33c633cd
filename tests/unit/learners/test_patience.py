"""A call to all ranks that takes long says so; a rank that does not answer beside it ends it."""

import asyncio
import re
import time
from collections.abc import Awaitable
from itertools import accumulate
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from learners import pings as pinging
from learners.pings import LONG_S, PingMonitor, reminder
from rlsys.errors import RunFailed
from rlsys.system import supervisor
from rlsys.system.patience import first_limit_s


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinging, "LONG_S", 0.02)
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.01)


async def answering() -> str:
    return "here"


async def silent() -> None:
    await asyncio.Event().wait()


async def dead() -> None:
    raise ActorDiedError


def waited(
    work: Awaitable[Any], *pings: Any, patience: PingMonitor | None = None, what: str = "updating on v", **more: Any
) -> Any:
    async def scenario() -> Any:
        more.setdefault("first_s", pinging.LONG_S)
        return await (patience or PingMonitor(0.1)).during(asyncio.ensure_future(work), what, pings, **more)

    return asyncio.run(scenario())


def test_the_line_says_how_long_it_has_taken_and_what_is_usual() -> None:
    text = reminder("updating on version 7", 90.0, [20.0, 22.0, 21.0])
    assert text == "learner updating on version 7 has taken 90 s so far; usual are 21 s (the median of 3)"
    text = reminder("saving a checkpoint", 60.0, [])
    assert text == "learner saving a checkpoint has taken 60 s so far; it is the first of its kind"


def test_a_long_call_is_told_of_with_what_calls_of_its_kind_take(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pinging, "LONG", 0.001)  # 0.02 s, then 0.04 s ...
    patience, began = PingMonitor(60.0), time.monotonic()
    patience.durations["updating"].extend([21.0, 21.0])

    def lines(word: str) -> list[str]:
        return [record.getMessage() for record in caplog.records if word in record.getMessage()]

    async def until_told(word: str, times: int) -> None:
        while len(lines(word)) < times:
            await asyncio.sleep(0.001)

    waited(until_told("updating", 2), answering, patience=patience)
    waited(until_told("exporting", 1), patience=patience, what="exporting version 3")
    assert set(lines("updating")) == {"learner updating on v has taken 0 s so far; usual are 21 s (the median of 2)"}
    assert set(lines("exporting")) == {"learner exporting version 3 has taken 0 s so far; it is the first of its kind"}
    assert (len(patience.durations["updating"]), len(patience.durations["exporting"])) == (3, 1)
    assert 0 < patience.durations["updating"][-1] + patience.durations["exporting"][-1] <= time.monotonic() - began


@pytest.mark.parametrize(
    ("earlier", "deadline_s", "says"),
    [
        ([], 180.0, [60, 120, 240, 480]),
        ([], 1800.0, [600, 1200, 2400]),  # a real model's first update takes minutes: 745 s of 3600 for one of 7e9
        ([], 3600.0, [1200, 2400]),
        ([30.0, 50.0], 3600.0, [120, 240, 480]),
        ([1.0] * 9, 3600.0, [60, 120, 240, 480]),
    ],
)
def test_a_line_comes_after_three_times_the_usual_and_then_whenever_the_time_has_doubled(
    earlier: list[float],
    deadline_s: float,
    says: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slept, pause, over = list[float](), asyncio.sleep, asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > len(says):  # the call is done: the line is due no more
            over.set()
        await pause(0)

    monkeypatch.setattr(pinging, "LONG_S", LONG_S)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    patience = PingMonitor(60.0)
    patience.durations["updating"].extend(earlier)
    waited(over.wait(), patience=patience, first_s=first_limit_s(deadline_s))
    matches = [re.search(r" (\d+) s so far", record.getMessage()) for record in caplog.records]
    assert [int(match[1]) for match in matches if match is not None][: len(says)] == says
    assert list(accumulate(slept))[: len(says)] == says


def test_only_the_latest_calls_say_what_is_usual() -> None:
    patience = PingMonitor(60.0)
    for _ in range(25):
        assert waited(answering(), patience=patience, what="exporting version 3") == "here"
    assert len(patience.durations["exporting"]) == 20


def test_a_rank_that_does_not_answer_is_named_while_the_others_work() -> None:
    with pytest.raises(RunFailed) as caught:
        waited(silent(), answering, silent)
    assert str(caught.value) == (
        "learner updating on v: rank 1 hangs: it has not answered a ping for 0.1 s (learner.ping_timeout_s)"
    )


def test_a_rank_that_died_is_left_to_the_call_that_it_died_under() -> None:
    async def dies() -> None:
        await asyncio.sleep(0.05)
        raise ActorDiedError

    with pytest.raises(ActorDiedError):
        waited(dies(), dead, answering)


def test_a_call_is_given_up_with_its_caller() -> None:
    gone: list[bool] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            gone.append(True)

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await PingMonitor(60.0).during(asyncio.ensure_future(work()), "updating", [answering])
        assert gone == [True]  # it has ended: nothing of it goes on beside the next call

    asyncio.run(scenario())


def test_what_each_rank_answers_is_passed_on() -> None:
    heard: list[tuple[int, Any]] = []

    async def until_both() -> None:
        while {rank for rank, _ in heard} != {0, 1}:
            await asyncio.sleep(0)

    async def fourth() -> tuple[int, int]:
        return 4, 8

    waited(until_both(), answering, fourth, patience=PingMonitor(60.0), on_ping=lambda *args: heard.append(args))
    assert set(heard) == {(0, "here"), (1, (4, 8))}
