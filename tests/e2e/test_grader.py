"""envs.rewards.maths.grader: real processes, real hangs. An ungradable answer costs itself and nothing else."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from envs.rewards.maths.grader import Grader, GraderFailed, GraderTimeout
from rlsys.rollout import EpisodeBroken
from rlsys.types import FailureKind

HANGS = "9^{9^{9^9}}"
ROOT = ("\\sqrt{8}", "2\\sqrt{2}")


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(workers=2, deadline_s=1.2) as grader:
        yield grader


def test_what_is_plain_needs_no_process() -> None:
    with Grader() as grader:
        assert grader.grade_blocking("1/2", "0.5") and not grader.grade_blocking("50", "0.5")
        assert grader.processes() == []


def test_algebra_from_two_loops_and_a_thread(grader: Grader) -> None:
    assert asyncio.run(grader.grade(*ROOT))
    assert not asyncio.run(grader.grade("\\sqrt{8}", "3\\sqrt{2}"))
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(grader.grade_blocking("(x+1)^2", "x^2+2x+1")))
    thread.start()
    thread.join(30)
    assert seen == [True]


def test_a_hang_costs_its_own_answer_and_a_respawn(grader: Grader) -> None:
    async def all_at_once() -> list[object]:
        pairs = [(f"{k}\\sqrt{{2}}", f"\\sqrt{{{2 * k * k}}}") for k in range(2, 14)]
        pairs.insert(3, (HANGS, "17"))
        return await asyncio.gather(*(grader.grade(*pair) for pair in pairs), return_exceptions=True)

    before, verdicts = grader.respawns, asyncio.run(all_at_once())
    timeout = verdicts.pop(3)
    assert isinstance(timeout, GraderTimeout) and isinstance(timeout, EpisodeBroken)
    assert (timeout.failure.kind, timeout.failure.where) == (FailureKind.TIMEOUT, "grader")
    assert "9^{9^{9^9}}" in timeout.failure.detail
    assert verdicts == [True] * 12
    assert grader.respawns == before + 1 and len(grader.processes()) == 2


def test_another_gold_that_matches_makes_up_for_one_that_hangs(grader: Grader) -> None:
    assert asyncio.run(grader.grade_any("\\sqrt{8}", [HANGS, "2\\sqrt{2}"]))
    assert asyncio.run(grader.grade_any("2", [HANGS, "2"]))
    with pytest.raises(GraderTimeout):
        asyncio.run(grader.grade_any("\\sqrt{8}", [HANGS, "3\\sqrt{2}"]))


def test_a_worker_that_dies_is_a_failure_of_the_infrastructure(grader: Grader) -> None:
    for process in grader.processes():
        process.kill()
        process.wait()
    for _ in range(2):
        with pytest.raises(GraderFailed) as failed:
            grader.grade_blocking("\\sqrt{18}", "3\\sqrt{3}")
        assert failed.value.failure.kind is FailureKind.INFRA
    assert not grader.grade_blocking("\\sqrt{18}", "3\\sqrt{3}")


def test_too_much_memory_is_no_verdict() -> None:
    with Grader(workers=1, deadline_s=20, memory_mb=100) as grader:
        assert grader.grade_blocking(*ROOT)
        with pytest.raises(GraderFailed, match="more than 100 MB of memory while grading '2") as failed:
            grader.grade_blocking("2^{600000000} + x", "17")
        assert failed.value.failure.kind is FailureKind.INFRA
        assert grader.grade_blocking("\\sqrt{18}", "3\\sqrt{2}")


def test_a_closed_grader_says_so() -> None:
    grader = Grader(workers=1)
    grader.close()
    with pytest.raises(GraderFailed, match="closed"):
        grader.grade_blocking(*ROOT)
