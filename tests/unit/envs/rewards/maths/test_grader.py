"""envs.rewards.maths.grader: what is asked again, remembered and counted. Its real workers have a test in tests/e2e."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.rewards.maths import grader as module
from envs.rewards.maths.grader import GoldUngradable, Grader, GraderFailed, GraderTimeout
from rlsys.types import FailureKind


class Scripted(Grader):
    """Instead of a worker: `answers` by what it is asked; an exception is raised. `heard`: all that it was asked."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(workers=1)
        self.answers, self.heard = answers, list[tuple[str, ...]]()

    def ask_worker(self, question: list[str]) -> bool:
        self.heard.append(tuple(question))
        answer = self.answers[question[0]]
        if isinstance(answer, BaseException):
            raise answer
        return bool(answer)


@pytest.fixture(autouse=True)
def _never_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "decide", lambda answer, golds: None)
    yield


def test_a_verdict_is_asked_for_once() -> None:
    with Scripted(right=True, wrong=False) as grader:
        assert [grader.grade_blocking(answer, "gold") for answer in ("right", "wrong", "right")] == [True, False, True]
        assert asyncio.run(grader.grade("wrong", "gold")) is False
        assert grader.heard == [("right", "gold"), ("wrong", "gold")]
        assert grader.stats().calls == 2 and not any(grader.stats().errors.values())


def test_what_is_too_much_beside_a_gold_that_can_be_read_is_wrong_and_the_gold_is_read_once() -> None:
    with Scripted(long=module.LimitReached("5 s"), longer=module.LimitReached("5 s"), gold=True) as grader:
        assert grader.grade_blocking("long", "gold") is grader.grade_blocking("longer", "gold") is False
        assert grader.heard == [("long", "gold"), ("gold",), ("longer", "gold")]
        assert grader.stats().errors == {"hopeless": 2, "timeout": 0}


def test_a_gold_that_cannot_be_read_is_no_wrong_answer() -> None:
    with Scripted(long=module.LimitReached("5 s"), gold=module.LimitReached("5 s")) as grader:
        with pytest.raises(GoldUngradable) as caught:
            grader.grade_blocking("long", "gold")
        assert (caught.value.failure.kind, caught.value.failure.where) == (FailureKind.DATA, "grader")
        assert grader.stats().errors["hopeless"] == 0


@pytest.mark.parametrize(("error", "timeouts"), [(GraderTimeout("late"), 1), (GraderFailed("gone"), 0)])
def test_a_grader_that_is_late_is_counted_and_nothing_is_remembered(error: Exception, timeouts: int) -> None:
    with Scripted(some=error) as grader:
        for _ in range(2):
            with pytest.raises(type(error)) as caught:
                grader.grade_blocking("some", "gold")
            assert (caught.value.failure.kind is FailureKind.TIMEOUT) == bool(timeouts)
            assert caught.value.failure.where == "grader"
        assert (len(grader.heard), grader.stats().errors["timeout"]) == (2, 2 * timeouts)


def test_one_gold_that_is_matched_is_enough_and_one_that_breaks_counts_where_none_is() -> None:
    class ByGold(Scripted):
        def ask_worker(self, question: list[str]) -> bool:
            return super().ask_worker(question[::-1])

    with ByGold(no=False, broken=GraderFailed("gone"), yes=True) as grader:
        assert asyncio.run(grader.grade_any("x", ["no", "broken", "yes"])) is True
        assert asyncio.run(grader.grade_any("x", ["yes", "broken"])) is True and len(grader.heard) == 3
        assert asyncio.run(grader.grade_any("x", ["no"])) is False
        with pytest.raises(GraderFailed):
            asyncio.run(grader.grade_any("x", ["no", "broken", "no"]))


def test_a_closed_grader_answers_nothing() -> None:
    grader = Scripted(x=True)
    grader.close()
    with pytest.raises(GraderFailed):
        grader.grade_blocking("x", "gold")
    assert grader.heard == []


SCRIPT = """
import json, sys, time
print('"ready"', flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked[0] == "die":
        sys.exit(3)
    held = bytearray(90 << 20) if asked[0] == "grow" else None
    while asked[0] == "spin":
        pass
    time.sleep(60 * (asked[0] in ("sleep", "grow")))
    print(json.dumps(asked[0] == asked[-1]), flush=True)
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker that does what it is told, and is started in no time."""
    (tmp_path / "worker.py").write_text(SCRIPT)
    monkeypatch.setattr(module, "WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(module, "AT_WORK", 0.1)  # a machine may be busy


@pytest.mark.usefixtures("script")
def test_a_worker_serves_until_it_dies_and_another_one_after_it() -> None:
    with Grader(workers=1, deadline_s=20.0, memory_mb=60) as grader:
        assert grader.processes() == []  # it starts with the first question
        assert [grader.grade_blocking(answer, "gold") for answer in ("gold", "other")] == [True, False]
        (first,) = grader.processes()
        with pytest.raises(GraderFailed, match=r"exit code 3.*'die'.*'gold'"):
            grader.grade_blocking("die", "gold")
        (second,) = grader.processes()
        assert first.poll() == 3 and second.pid != first.pid and grader.respawns == 1
        assert grader.grade_blocking("another", "another") and grader.processes() == [second]
        assert second.args[-2:] == ["240", "82.0"]  # its own limits: four times what it is held to, and two seconds
        assert grader.grade_blocking("grow", "17") is False and grader.hopeless == 1
        (last,) = grader.processes()
    assert second.poll() is not None and last.poll() is not None
    with pytest.raises(GraderFailed):
        grader.grade_blocking("x", "y")


@pytest.mark.usefixtures("script")
def test_a_worker_that_computed_for_its_time_is_to_blame_and_one_that_waited_is_not() -> None:
    with Grader(workers=1, deadline_s=0.1) as grader:
        assert grader.grade_blocking("spin", "17") is False and (grader.hopeless, grader.timeouts) == (1, 0)
        with pytest.raises(GraderTimeout):
            grader.grade_blocking("sleep", "17")
        assert (grader.hopeless, grader.timeouts, grader.stats().calls) == (1, 1, 2)
