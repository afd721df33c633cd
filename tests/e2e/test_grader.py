"""envs.rewards.maths.grader: real processes, real hangs. An answer that cannot be graded is wrong; a gold one that
cannot be, or a grader that breaks, is a typed failure. Nothing else pays for it."""

import asyncio
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from envs.rewards.maths.grader import PATIENCE, WORKER, GoldUngradable, Grader, GraderFailed, GraderTimeout
from rlsys.rollout import EpisodeBroken
from rlsys.types import FailureKind

T = TypeVar("T")

HANGS = "9^{9^{9^9}}"
ROOT = ("\\sqrt{8}", "2\\sqrt{2}")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    """Its deadline is far above what a right answer takes on this machine at this moment: what hangs meets it."""
    with Grader(workers=1, deadline_s=60) as first:
        assert first.grade_blocking(*ROOT)  # imports
        began = time.monotonic()
        assert first.grade_blocking("\\sqrt{18}", "3\\sqrt{2}")
        took_s = time.monotonic() - began
    with Grader(workers=2, deadline_s=max(1.2, 30 * took_s)) as grader:
        yield grader


def was_idle(outcome: object) -> bool:
    """Whether it is a timeout whose worker got too little of the processor to be blamed."""
    if not isinstance(outcome, GraderTimeout):
        return False
    waited_s, worked_s = map(float, re.findall(r"([\d.]+) s", str(outcome))[:2])
    return worked_s < waited_s / PATIENCE


def when_at_work(grade: Callable[[], T]) -> T:
    """What the grader says once this machine gives its workers time: a timeout says nothing about the answer."""
    while True:
        try:
            return grade()
        except GraderTimeout as timeout:
            assert was_idle(timeout)


def test_what_is_plain_needs_no_process() -> None:
    with Grader() as grader:
        assert grader.grade_blocking("1/2", "0.5") and not grader.grade_blocking("50", "0.5")
        assert grader.processes() == []


def test_algebra_from_two_loops_and_a_thread(grader: Grader) -> None:
    assert asyncio.run(grader.grade(*ROOT))
    assert not asyncio.run(grader.grade("\\sqrt{8}", "3\\sqrt{2}"))
    grades: list[bool] = []
    thread = threading.Thread(target=lambda: grades.append(grader.grade_blocking("(x+1)^2", "x^2+2x+1")))
    thread.start()
    thread.join(60)
    assert grades == [True]


def test_a_worker_that_answered_lives_on_when_its_alarm_would_have_rung() -> None:
    command = [sys.executable, "-I", str(WORKER), "512", "5"]  # seconds: on a loaded machine an answer takes one
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        assert worker.stdout.readline() == '"ready"\n'
        print('["2^2", "4"]', file=worker.stdin, flush=True)
        assert worker.stdout.readline() == "true\n"
        with pytest.raises(subprocess.TimeoutExpired):
            worker.wait(6)
        worker.stdin.close()
        assert worker.wait(60) == 0


@pytest.mark.parametrize("answer", [HANGS, "(10^9)!", "\\sqrt{(10^{9})!}"])
def test_an_answer_that_cannot_be_graded_is_wrong_and_counted(grader: Grader, answer: str) -> None:
    hopeless, respawns, timeouts = grader.hopeless, grader.respawns, grader.timeouts
    assert when_at_work(lambda: asyncio.run(grader.grade(answer, "17"))) is False
    assert grader.hopeless == hopeless + 1
    assert grader.respawns == respawns + 1 or grader.timeouts > timeouts
    respawns = grader.respawns
    assert grader.stats().errors["hopeless"] == grader.hopeless and grader.stats().calls == grader.asked
    assert asyncio.run(grader.grade(answer, "17")) is False  # known: not asked again
    assert grader.respawns == respawns


def test_a_hang_costs_its_own_answer_and_a_respawn(grader: Grader) -> None:
    async def all_at_once() -> list[object]:
        pairs = [(f"{k}\\sqrt{{2}}", f"\\sqrt{{{2 * k * k}}}") for k in range(2, 14)]
        pairs.insert(3, (HANGS, "18"))
        return await asyncio.gather(*(grader.grade(*pair) for pair in pairs), return_exceptions=True)

    before, verdicts = grader.respawns, asyncio.run(all_at_once())
    hang = verdicts.pop(3)
    assert hang is False or was_idle(hang)
    assert verdicts == [True] * 12
    assert grader.respawns == before + 1 and len(grader.processes()) == 2


@pytest.mark.parametrize("gold", [HANGS, f"({HANGS}, 2)", f"x = {HANGS}"])
def test_a_gold_answer_that_cannot_be_graded_is_a_failure_of_the_data(grader: Grader, gold: str) -> None:
    hopeless = grader.hopeless
    with pytest.raises(GoldUngradable) as failed:
        when_at_work(lambda: grader.grade_blocking("(\\sqrt{8}, 2)" if "(" in gold else "\\sqrt{8}", gold))
    assert isinstance(failed.value, EpisodeBroken) and grader.hopeless == hopeless
    assert (failed.value.failure.kind, failed.value.failure.where) == (FailureKind.DATA, "grader")
    assert "9^{9^{9^9}}" in failed.value.failure.detail


def test_a_worker_that_is_not_at_work_is_a_timeout_and_says_nothing_about_the_answer() -> None:
    with Grader(workers=1, deadline_s=1.2) as grader:
        assert grader.grade_blocking(*ROOT)
        (worker,) = grader.processes()
        worker.send_signal(signal.SIGSTOP)
        with pytest.raises(GraderTimeout, match="0.0 s of them at work") as failed:
            grader.grade_blocking("\\sqrt{18}", "3\\sqrt{2}")
        assert (failed.value.failure.kind, failed.value.failure.where) == (FailureKind.TIMEOUT, "grader")
        assert (grader.timeouts, grader.hopeless) == (1, 0)
        assert grader.grade_blocking("\\sqrt{18}", "3\\sqrt{2}")


def test_another_gold_that_matches_makes_up_for_one_that_hangs(grader: Grader) -> None:
    assert asyncio.run(grader.grade_any("\\sqrt{8}", [HANGS, "2\\sqrt{2}"]))
    assert asyncio.run(grader.grade_any("2", [HANGS, "2"]))
    with pytest.raises(GoldUngradable):
        when_at_work(lambda: asyncio.run(grader.grade_any("\\sqrt{8}", [HANGS, "3\\sqrt{2}"])))


def test_a_worker_that_dies_is_a_failure_of_the_infrastructure(grader: Grader) -> None:
    for process in grader.processes():
        process.kill()
        process.wait()
    for _ in range(2):
        with pytest.raises(GraderFailed) as failed:
            grader.grade_blocking("\\sqrt{18}", "3\\sqrt{3}")
        assert failed.value.failure.kind is FailureKind.INFRA
    assert not grader.grade_blocking("\\sqrt{18}", "3\\sqrt{3}")


def test_an_answer_that_takes_too_much_memory_is_wrong() -> None:
    with Grader(workers=1, deadline_s=20, memory_mb=100) as grader:
        assert grader.grade_blocking(*ROOT)
        assert grader.grade_blocking("2^{600000000}", "17") is False
        assert (grader.hopeless, grader.timeouts, grader.respawns) == (1, 0, 1)
        assert grader.grade_blocking("\\sqrt{18}", "3\\sqrt{2}")
        with pytest.raises(GoldUngradable, match="more than 100 MB of memory while grading"):
            grader.grade_blocking("x + 1", "2^{600000000} + x")
