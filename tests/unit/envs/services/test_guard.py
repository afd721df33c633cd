"""envs.services.guard: deadlines, retries, circuit, cache and sharing, on a clock that jumps over every wait."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.services.guard import Guard, GuardConfig, ToolBusy, ToolFailed, ToolRefused
from envs.services.stats import LATENCY_BOUNDS_MS, ToolStats, latency_bucket, merge
from rlsys.rollout import EpisodeBroken
from rlsys.types import FailureKind
from tests.refused import refused


class JumpingLoop(asyncio.SelectorEventLoop):
    """Its clock starts at 0 and jumps to the next timer instead of waiting for it. For coroutines whose I/O, if any, is
    with each other."""

    def __init__(self) -> None:
        loop = self
        self.now = 0.0
        self.passes = 0  # without a wait, in a row

        class Selector(selectors.SelectSelector):
            def select(self, timeout: float | None = None) -> list[Any]:
                if events := super().select(0):
                    return events
                if timeout is None:
                    raise AssertionError("everything waits and no timer is set: a deadlock")
                loop.passes = 0 if timeout > 0 else loop.passes + 1
                # A timer may run by the clock's resolution too early: who then waits again needs a clock that moves on.
                loop.now += 1e-9 if loop.passes > 1000 else max(timeout, 0)
                return super().select(0)

        super().__init__(Selector())

    def time(self) -> float:
        return self.now


def play(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main)


def now() -> float:
    return asyncio.get_running_loop().time()


class Tool:
    """Answers n with 10 n after `seconds`; `answer` decides otherwise by the number of the call."""

    def __init__(self, seconds: float = 1.0, answer: Callable[[int], BaseException | None] = lambda call: None) -> None:
        self.seconds = seconds
        self.answer = answer
        self.started: list[float] = []
        self.running = self.most = 0

    async def __call__(self, query: int) -> int:
        self.started.append(now())
        number = len(self.started)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.seconds)
            if error := self.answer(number):
                raise error
            return query * 10
        finally:
            self.running -= 1


def failing(count: int | None = None, error: BaseException | None = None) -> Callable[[int], BaseException | None]:
    """The first `count` calls fail, or all."""
    raised = error or ConnectionError("refused")
    return lambda call: raised if count is None or call <= count else None


async def outcome(call: Awaitable[int]) -> int | FailureKind:
    try:
        return await call
    except ToolFailed as failed:
        return failed.failure.kind


def test_identical_queries_are_asked_once_at_once_and_later() -> None:
    async def main() -> None:
        tool = Tool()
        guard = Guard("t", tool, GuardConfig())
        assert await asyncio.gather(guard(1), guard(1), guard(2)) == [10, 10, 20]
        assert await guard(1) == 10
        assert len(tool.started) == 2
        stats = guard.stats()
        assert (stats.calls, stats.cache_hits, stats.shared, stats.hit_rate) == (4, 1, 1, 0.5)

    play(main())


def test_the_cache_forgets_the_least_recently_used_and_can_be_off() -> None:
    async def main() -> None:
        tool = Tool()
        guard = Guard("t", tool, GuardConfig(cache_size=2))
        for query in (1, 2, 1, 3, 1, 2):
            await guard(query)
        assert len(tool.started) == 4  # 1, 2, 3, and 2 again
        none = Guard("t", Tool(), GuardConfig(cache_size=0))
        assert [await none(1), await none(1)] == [10, 10]
        assert none.stats().cache_hits == 0

    play(main())


def test_a_key_says_which_queries_are_the_same() -> None:
    async def main() -> None:
        guard: Guard[dict[str, int], int] = Guard("t", lambda q: Tool()(q["n"]), GuardConfig(), key=lambda q: q["n"])
        assert await guard({"n": 1, "extra": 1}) == await guard({"n": 1}) == 10
        assert guard.stats().cache_hits == 1

    play(main())


def test_no_more_than_max_concurrent_run_and_the_queue_is_counted() -> None:
    async def main() -> None:
        tool = Tool()
        guard = Guard("t", tool, GuardConfig(max_concurrent=3))
        calls = [asyncio.create_task(guard(n)) for n in range(10)]
        await asyncio.sleep(0.5)
        assert (guard.stats().in_flight, guard.stats().queued) == (3, 7)
        assert await asyncio.gather(*calls) == [n * 10 for n in range(10)]
        assert tool.most == 3 and now() == pytest.approx(4.0)
        assert (guard.stats().in_flight, guard.stats().queued) == (0, 0)

    play(main())


def test_a_full_queue_fails_with_a_type_when_patience_ends() -> None:
    async def main() -> None:
        guard = Guard("t", Tool(seconds=9), GuardConfig(deadline_s=10, attempts=2, max_concurrent=1))
        results = await asyncio.gather(*(outcome(guard(n)) for n in range(4)))
        assert results == [0, 10, 20, FailureKind.TIMEOUT]  # the fourth would have started after 27 s, patience is 20 s

    play(main())


def test_failures_are_retried_and_the_waits_double() -> None:
    async def main() -> None:
        tool = Tool(seconds=0, answer=failing(3))
        guard = Guard("t", tool, GuardConfig(attempts=4, backoff_s=1.0))
        assert await guard(7) == 70
        waits = [b - a for a, b in zip(tool.started, tool.started[1:], strict=False)]
        for wait, middle in zip(waits, (1, 2, 4), strict=True):
            assert 0.5 * middle <= wait <= 1.5 * middle
        assert guard.stats().retries == 3
        again = Tool(seconds=0, answer=failing(3))
        await Guard("t", again, GuardConfig(attempts=4, backoff_s=1.0))(7)
        assert again.started == pytest.approx([start - tool.started[0] + again.started[0] for start in tool.started])

    play(main())


def test_calls_that_fail_together_come_back_apart() -> None:
    async def main() -> None:
        tool = Tool(seconds=0, answer=failing(20))
        await asyncio.gather(*map(Guard("t", tool, GuardConfig(breaker_failures=100)), range(20)))
        assert len({*tool.started[20:]}) == 20

    play(main())


def test_a_call_that_cancels_itself_is_a_failure_and_no_cancellation_of_the_caller() -> None:
    async def main() -> None:
        tool = Tool(answer=failing(1, asyncio.CancelledError()))
        assert await Guard("t", tool, GuardConfig())(1) == 10
        with pytest.raises(ToolFailed, match="the tool cancelled the call"):
            await Guard("t", Tool(answer=failing(error=asyncio.CancelledError())), GuardConfig())(1)

    play(main())


@pytest.mark.parametrize(
    ("error", "kind", "detail"),
    [
        (ToolRefused("query too long"), FailureKind.DATA, "query too long"),
        (ConnectionError("refused"), FailureKind.INFRA, "ConnectionError: refused"),
        (TimeoutError(), FailureKind.TIMEOUT, "no answer within 30 s, 3 times"),
    ],
)
def test_a_failure_has_a_type_and_ends_an_episode(error: Exception, kind: FailureKind, detail: str) -> None:
    async def main() -> None:
        guard = Guard("search", Tool(answer=failing(error=error)), GuardConfig())
        with pytest.raises(EpisodeBroken) as caught:
            await guard(1)
        assert isinstance(caught.value, ToolFailed)
        failure = caught.value.failure
        assert (failure.kind, failure.where, failure.detail) == (kind, "search", detail)
        assert guard.stats().errors == {str(kind): 1}

    play(main())


def test_what_retry_on_leaves_out_and_refusals_are_asked_once() -> None:
    async def main() -> None:
        for error, retry_on in ((ToolRefused("no"), (Exception,)), (ValueError("lie"), (OSError,))):
            tool = Tool(answer=failing(error=error))
            with pytest.raises(ToolFailed):
                await Guard("t", tool, GuardConfig(), retry_on=retry_on)(1)
            assert len(tool.started) == 1

    play(main())


def test_refusals_never_open_the_circuit_and_failures_are_not_cached() -> None:
    async def main() -> None:
        guard = Guard("t", Tool(seconds=0, answer=failing(20, ToolRefused("no"))), GuardConfig(breaker_failures=2))
        assert [await outcome(guard(1)) for _ in range(21)] == [FailureKind.DATA] * 20 + [10]
        assert guard.stats().breaker_opened == 0

    play(main())


def test_a_busy_tool_is_left_alone_as_long_as_it_asks() -> None:
    async def main() -> None:
        tool = Tool(seconds=0, answer=failing(1, ToolBusy("429", after_s=12)))
        assert await Guard("t", tool, GuardConfig())(1) == 10
        assert tool.started[1] - tool.started[0] == pytest.approx(12)
        endless = Tool(seconds=0, answer=failing(1, ToolBusy("429", after_s=1e9)))
        assert await Guard("t", endless, GuardConfig(deadline_s=5))(1) == 10
        assert endless.started[1] - endless.started[0] == pytest.approx(5)  # never longer than a deadline

    play(main())


def test_a_hung_call_costs_only_itself() -> None:
    async def main() -> None:
        async def tool(query: int) -> int:
            await (asyncio.Event().wait() if query == 0 else asyncio.sleep(1))
            return query

        guard = Guard("t", tool, GuardConfig(deadline_s=5, attempts=2, breaker_failures=3))
        hung = asyncio.create_task(outcome(guard(0)))
        assert await asyncio.gather(*(guard(n) for n in range(1, 50))) == list(range(1, 50))
        assert now() == pytest.approx(1)
        assert await hung is FailureKind.TIMEOUT
        assert now() <= 2 * 5 + 1.5 * 0.5 + 0.01

    play(main())


def test_cancelling_one_caller_leaves_the_others_and_the_last_ends_the_call() -> None:
    async def main() -> None:
        tool = Tool()
        guard = Guard("t", tool, GuardConfig(max_concurrent=1))
        first, second = asyncio.create_task(guard(1)), asyncio.create_task(guard(1))
        await asyncio.sleep(0.5)
        first.cancel()
        assert await second == 10 and first.cancelled() and len(tool.started) == 1
        alone = asyncio.create_task(guard(2))
        await asyncio.sleep(0.5)
        alone.cancel()
        await asyncio.sleep(0)
        assert await guard(2) == 20  # a new call: nobody joins a cancelled one
        assert tool.running == 0 and len(tool.started) == 3
        assert (guard.stats().in_flight, guard.stats().queued) == (0, 0)

    play(main())


CIRCUIT = GuardConfig(deadline_s=30, attempts=2, backoff_s=0.5, breaker_failures=5, breaker_s=10, max_concurrent=8)


def test_an_outage_is_waited_out_by_trials_and_nobody_stampedes() -> None:
    async def main() -> None:
        tool = Tool(seconds=0.1)
        tool.answer = lambda call: ConnectionError("down") if tool.started[call - 1] < 25 else None
        guard = Guard("t", tool, CIRCUIT)
        results = await asyncio.gather(*(outcome(guard(n)) for n in range(100)))
        during = [start for start in tool.started if 1 <= start < 25]
        assert during == pytest.approx([10, 20], abs=0.5)  # one trial every 10 s
        assert sum(result is FailureKind.INFRA for result in results) <= 3  # both attempts of a call can fall into it
        assert tool.most <= 8
        stats = guard.stats()
        assert (stats.breaker_opened, stats.breaker_open) == (1, False)

    play(main())


def test_with_the_circuit_open_waiting_has_an_end() -> None:
    async def main() -> None:
        guard = Guard("t", Tool(seconds=0, answer=failing()), CIRCUIT)
        results = await asyncio.gather(*(outcome(guard(n)) for n in range(30)))
        assert {*results} <= {FailureKind.INFRA, FailureKind.TIMEOUT}
        assert now() <= CIRCUIT.patience_s + CIRCUIT.attempts * CIRCUIT.deadline_s
        assert guard.stats().breaker_open

    play(main())


def test_the_details_of_an_open_circuit_are_told() -> None:
    async def main() -> None:
        guard = Guard("t", Tool(seconds=0, answer=failing()), GuardConfig(attempts=1, deadline_s=3, breaker_s=100))
        await asyncio.gather(*(outcome(guard(n)) for n in range(5)))
        with pytest.raises(ToolFailed, match="circuit open after 5 failures in a row, waited 3 s"):
            await guard(9)
        assert now() == pytest.approx(3)

    play(main())


def test_why_a_tool_answers_nobody_is_told_while_it_does() -> None:
    async def main() -> None:
        outages: list[str] = []
        guard = Guard("t", Tool(seconds=1, answer=failing(count=5)), GuardConfig(attempts=1, breaker_s=9, cache_size=0))
        for _ in range(4):
            await outcome(guard(1))
            outages.append(guard.stats().outage)
        await outcome(guard(1))
        outages.append(guard.stats().outage)
        assert await guard(1) == 10
        assert [*outages, guard.stats().outage] == [""] * 4 + ["ConnectionError: refused", ""]
        slow = Guard("t", Tool(seconds=99), GuardConfig(attempts=1, deadline_s=2, breaker_failures=1))
        await outcome(slow(1))
        assert merge([ToolStats(), slow.stats(), ToolStats(outage="other")]).outage == "no answer within 2 s"

    play(main())


def test_a_cancelled_trial_hands_the_trial_on() -> None:
    async def main() -> None:
        tool = Tool(seconds=1, answer=failing(5))
        guard = Guard("t", tool, GuardConfig(attempts=1, breaker_s=10, cache_size=0))
        await asyncio.gather(*(outcome(guard(n)) for n in range(5)))
        trial, other = asyncio.create_task(guard(6)), asyncio.create_task(guard(7))
        await asyncio.sleep(10.5)
        assert guard.stats().in_flight == 1
        trial.cancel()
        assert await other == 70
        assert not guard.stats().breaker_open

    play(main())


def test_a_late_answer_from_before_the_outage_closes_the_circuit() -> None:
    async def main() -> None:
        async def tool(query: int) -> int:
            await asyncio.sleep(query)
            if query < 5:
                raise ConnectionError
            return query

        guard = Guard("t", tool, GuardConfig(attempts=1, breaker_s=100, cache_size=0))
        slow = asyncio.create_task(guard(20))
        await asyncio.gather(*(outcome(guard(n)) for n in range(5)))
        assert guard.stats().breaker_open
        assert await slow == 20
        assert not guard.stats().breaker_open

    play(main())


JUDGE = GuardConfig(deadline_s=30, attempts=2, backoff_s=0.5, breaker_failures=5, breaker_s=10, cache_size=0)


def test_a_judge_that_answers_nobody_is_waited_for_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tool = Tool(seconds=0.1)
        tool.answer = lambda call: ConnectionError("down") if tool.started[call - 1] < 100 else None
        guard = Guard("judge", tool, JUDGE, outage_s=240)
        calls = [asyncio.create_task(guard(n)) for n in range(20)]
        await asyncio.sleep(50)
        assert guard.stats().outage == "ConnectionError: down" and guard.stats().errors == {}
        assert await asyncio.gather(*calls) == [n * 10 for n in range(20)]
        assert 100 <= now() <= 120
        assert guard.stats().outage == ""

    play(main())
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "the judge does not answer",
        "the judge answers again",
    ]


def test_an_outage_ends_with_a_type_on_time_also_while_an_attempt_hangs() -> None:
    async def main() -> None:
        for answer, seconds, reason in (
            (failing(), 1, "ConnectionError: refused"),
            (failing(), 99, "no answer within 30 s"),
            (failing(), 1000, "no answer within 30 s"),
        ):
            began = now()
            tool = Tool(seconds, answer)
            guard = Guard("judge", tool, JUDGE, outage_s=50)
            with pytest.raises(ToolFailed, match=f"no answer to anybody for 50 s: {reason}") as caught:
                await guard(1)
            assert caught.value.failure.kind is FailureKind.INFRA and now() - began == pytest.approx(50)
            assert guard.stats().errors == {"infra": 1}
            await asyncio.sleep(0)
            assert tool.running == 0  # nothing goes on behind it

    play(main())


def test_one_question_alone_opens_the_circuit_of_a_judge_that_is_dead() -> None:
    async def main() -> None:
        tool = Tool(seconds=0, answer=failing())
        guard = Guard("judge", tool, GuardConfig(cache_size=0), outage_s=3)  # 3 attempts a round, open after 5 failures
        assert await outcome(guard(1)) is FailureKind.INFRA
        stats = guard.stats()
        assert (len(tool.started), stats.breaker_open, stats.retries) == (5, True, 4)

    play(main())


def test_every_answer_puts_the_end_of_an_outage_off_and_a_question_that_fails_beside_it_fails_alone() -> None:
    async def main() -> None:
        async def tool(query: int) -> int:
            await asyncio.sleep(1)
            if query == 0:
                raise ConnectionError("poison")
            return query

        guard = Guard("judge", tool, JUDGE, outage_s=5)

        async def others() -> None:
            for n in range(1, 40):
                await guard(n)

        going = asyncio.create_task(others())
        with pytest.raises(ToolFailed, match="poison"):
            await guard(0)
        assert now() < 5
        slow = Guard("judge", Tool(seconds=29), JUDGE, outage_s=30)
        first, queued = asyncio.create_task(slow(1)), asyncio.create_task(slow(2))
        assert await asyncio.gather(first, queued) == [10, 20]
        await going

    play(main())


def test_what_one_is_told_by_a_busy_judge_holds_for_all_and_is_no_fault_of_a_question() -> None:
    async def main() -> None:
        tool = Tool(seconds=0, answer=failing(1, ToolBusy("429", after_s=12)))
        guard = Guard("judge", tool, JUDGE, outage_s=240, spacing_s=1)
        assert await asyncio.gather(*map(guard, range(3))) == [0, 10, 20]
        assert tool.started == pytest.approx([0, 12, 13, 14])
        busy = Tool(seconds=0, answer=lambda call: ToolBusy("503", after_s=1) if call % 3 else None)
        patient = Guard("judge", busy, JUDGE, outage_s=240)
        assert sorted(await asyncio.gather(*map(patient, range(4)))) == [0, 10, 20, 30]

    play(main())


def test_calls_to_a_judge_queue_in_one_pool_without_an_end_while_it_answers() -> None:
    async def main() -> None:
        tool = Tool(seconds=20)
        config = GuardConfig(deadline_s=30, attempts=1, max_concurrent=2, cache_size=0)
        guard = Guard("judge", tool, config, outage_s=25)
        assert await asyncio.gather(*map(guard, range(20))) == [n * 10 for n in range(20)]
        assert tool.most == 2 and now() == pytest.approx(200)  # a tool's call would have failed after 30 s

    play(main())


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.floats(0, 20), st.booleans()), min_size=1, max_size=30),
    st.lists(st.sampled_from(["ok", "fail", "hang", "refuse"]), min_size=1, max_size=12),
    st.integers(1, 4),
)
def test_whatever_happens_every_call_ends_and_nothing_is_left(
    calls: list[tuple[int, float, bool]], fates: list[str], most: int
) -> None:
    async def main() -> None:
        running = peak = count = 0

        async def tool(query: int) -> int:
            nonlocal running, peak, count
            fate = fates[count % len(fates)]
            count += 1
            running += 1
            peak = max(peak, running)
            try:
                await (asyncio.Event().wait() if fate == "hang" else asyncio.sleep(0.3))
                if fate != "ok":
                    raise ToolRefused("no") if fate == "refuse" else ConnectionError("down")
                return query
            finally:
                running -= 1

        config = GuardConfig(deadline_s=2, attempts=2, breaker_failures=2, breaker_s=3, max_concurrent=most)
        guard = Guard("t", tool, config)

        async def caller(query: int, start: float, impatient: bool) -> None:
            await asyncio.sleep(start)
            try:
                async with asyncio.timeout(1.0 if impatient else None):
                    assert await outcome(guard(query)) in (query, *FailureKind)
            except TimeoutError:
                assert impatient

        await asyncio.gather(*(caller(*call) for call in calls))
        assert now() <= 20 + config.patience_s + 2 * config.deadline_s + 2
        assert running == 0 and peak <= most
        stats = guard.stats()
        assert (stats.queued, stats.in_flight) == (0, 0)
        assert stats.calls == len(calls)

    play(main())


def test_stats_add_up() -> None:
    buckets = [latency_bucket(seconds) for seconds in (0.00005, 0.0001, 0.001, 0.5, 99, 1000)]
    assert buckets == [0, 0, 4, 15, 24, 25]
    first = ToolStats(calls=4, cache_hits=1, errors={"infra": 1}, latency=tuple(int(n == 4) for n in range(26)))
    second = ToolStats(calls=6, shared=2, errors={"infra": 1, "data": 2}, breaker_open=True, latency=first.latency)
    total = merge([first, second])
    assert (total.calls, total.hit_rate, total.errors, total.breaker_open) == (10, 0.3, {"infra": 2, "data": 2}, True)
    assert total.latency[4] == 2
    assert total.percentile(0.5) == LATENCY_BOUNDS_MS[4] == pytest.approx(1.0)
    assert total.row()["errors_data"] == 2 and total.row()["latency_p99_ms"] == pytest.approx(1.0)
    assert merge([]) == ToolStats()
    assert math.isnan(ToolStats().percentile(0.5)) and math.isnan(ToolStats().hit_rate)
    assert all(math.isfinite(value) for value in ToolStats().row().values())


def test_percentiles_are_rounded_up_to_a_bound() -> None:
    latency = [0] * 26
    latency[0], latency[10], latency[25] = 50, 49, 1
    stats = ToolStats(latency=tuple(latency))
    assert stats.percentile(0.5) == LATENCY_BOUNDS_MS[0]
    assert stats.percentile(0.51) == stats.percentile(0.99) == LATENCY_BOUNDS_MS[10]
    assert stats.percentile(1.0) == math.inf


def test_a_bad_setting_is_named() -> None:
    with refused("guard.attempts", found=0):
        GuardConfig(attempts=0)
