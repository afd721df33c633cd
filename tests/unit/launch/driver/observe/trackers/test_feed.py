"""A tracker that raises, hangs or ends Python is reported once, and holds up nothing."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from launch.driver.observe.trackers import feed
from launch.driver.observe.trackers.feed import Trackers
from rlsys.types import Reward, Trajectory


class Kept:
    """Keeps what it gets; raises in the call that `breaks` names."""

    def __init__(self, breaks: str = "", error: BaseException | None = None) -> None:
        self.got: list[Any] = []
        self._breaks, self._error = breaks, error or ConnectionError("gone")

    def _take(self, name: str, *what: Any) -> None:
        self.got.append((name, *what))
        if name == self._breaks:
            raise self._error

    def log(self, row: Mapping[str, Any]) -> None:
        self._take("log", row["step"])

    def log_evaluation(self, step: int, name: str, values: Mapping[str, float | None]) -> None:
        self._take("evaluation", step, name)

    def episodes(self, step: int, trajectories: Sequence[Trajectory]) -> None:
        self._take("episodes", step)

    def finish(self) -> None:
        self._take("finish")


EPISODE: Any = object()


def told(**trackers: Kept) -> Trackers:
    all_of_them = Trackers(trackers, samples=1, every=3)
    for step in range(1, 5):
        all_of_them.log({"step": step})
    all_of_them.log_evaluation(4, "greedy", {"accuracy": 0.5})
    all_of_them.finish()
    return all_of_them


WHOLE = [("log", 1), ("log", 2), ("log", 3), ("log", 4), ("evaluation", 4, "greedy"), ("finish",)]


def test_every_tracker_gets_everything_in_order() -> None:
    first, second = Kept(), Kept()
    told(first=first, second=second)
    assert first.got == second.got == WHOLE


@pytest.mark.parametrize("error", [ConnectionError("gone"), SystemExit(3)])
def test_one_that_raises_is_reported_once_and_the_others_get_everything(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Kept("log", error), Kept()
    told(bad=bad, good=good)
    assert good.got == WHOLE and bad.got == [("log", 1), ("finish",)]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("bad ") and str(error) in line


def test_one_that_raises_at_the_end_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    told(bad=Kept("finish"))
    assert len(caplog.records) == 1


def test_one_that_hangs_holds_up_no_step_and_not_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed, "FINISH_DEADLINE_S", 0.05)
    monkeypatch.setattr(feed, "MOST_WAITING", 2)
    hangs, free = threading.Event(), threading.Event()

    class Hanging(Kept):
        def log(self, row: Mapping[str, Any]) -> None:
            hangs.set()
            free.wait(60)

    trackers = Trackers({"hanging": Hanging()})
    trackers.log({"step": 0})
    assert hangs.wait(60)  # with it in its hands: what waits is what comes from here on
    for step in range(1, 5):
        trackers.log({"step": step})
    trackers.finish()  # returns
    behind, late = (record.getMessage() for record in caplog.records)
    free.set()  # with it the rest is given, and said to be
    assert "2 rows behind" in behind and "did not finish" in late


def test_one_that_was_behind_gets_what_comes_once_it_has_taken_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(feed, "MOST_WAITING", 2)
    begun, free, taken = threading.Event(), threading.Event(), threading.Event()

    class Slow(Kept):
        def log(self, row: Mapping[str, Any]) -> None:
            super().log(row)
            begun.set()
            free.wait(60)
            if row["step"] == 2:
                taken.set()

    tracker = Slow()
    trackers = Trackers({"slow": tracker})
    trackers.log({"step": 1})
    assert begun.wait(60)
    for step in range(2, 8):
        trackers.log({"step": step})
    free.set()
    assert taken.wait(60)
    trackers.log({"step": 8})
    trackers.finish()
    steps = [step for name, *rest in tracker.got if name == "log" for step in rest]
    assert steps == [1, 2, 3, 8]
    assert "4 were left out" in caplog.records[-1].getMessage()


def test_one_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(feed, "FINISH_DEADLINE_S", 0.5)  # time enough for the other one
    free = threading.Event()

    class Endless(Kept):
        def finish(self) -> None:
            free.wait(60)

    good = Kept()
    told(endless=Endless(), good=good)  # returns
    free.set()
    assert good.got == WHOLE and len(caplog.records) == 1


def test_a_table_of_samples_is_due_every_few_steps() -> None:
    tracker = Kept()
    trackers = Trackers({"t": tracker}, samples=1, every=3)
    for step in range(1, 8):
        chosen = trackers.choose_episodes(step, [[Reward(value=1.0, parts={})]])
        trackers.episodes(step, [EPISODE for _ in chosen])
    trackers.finish()
    assert tracker.got == [("episodes", 1), ("episodes", 4), ("episodes", 7), ("finish",)]


def test_without_a_tracker_no_episode_is_fetched() -> None:
    graded = [[Reward(value=1.0, parts={})]]
    assert Trackers({}, samples=4).choose_episodes(1, graded) == []
    assert Trackers({"t": Kept()}, samples=0).choose_episodes(1, graded) == []
