"""Rows as Ray's metrics, without Ray."""

import sys
from types import ModuleType
from typing import Any

import pytest

from launch.driver.observe.exported import EXPORTED
from launch.driver.observe.gauges import Gauges

MOST_SERIES = 70


class Made:
    """Ray's Gauge or Counter: what it was made with, and the number of each set of labels."""

    all: dict[str, "Made"]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description and name not in self.all
        self.labels, self.numbers = tag_keys, {}
        self.all[name] = self

    def _at(self, tags: dict[str, str]) -> tuple[str, ...]:
        assert tuple(tags) == self.labels
        return tuple(tags.values())


class Gauge(Made):
    def set(self, value: float, tags: dict[str, str]) -> None:
        self.numbers[self._at(tags)] = value


class Counter(Made):
    def inc(self, value: float, tags: dict[str, str]) -> None:
        if value <= 0:
            raise ValueError("value must be >0")  # as Ray's
        at = self._at(tags)
        self.numbers[at] = self.numbers.get(at, 0.0) + value


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Made]:
    Made.all = {}
    module: Any = ModuleType("ray.util.metrics")
    module.Gauge, module.Counter = Gauge, Counter
    monkeypatch.setitem(sys.modules, "ray.util.metrics", module)
    return Made.all


def numbers(made: dict[str, Made], name: str) -> dict[tuple[str, ...], float]:
    return {labels[1:]: round(number, 6) for labels, number in made[f"rlsys_{name}"].numbers.items()}


ROW = {"step": 1, "stage": "rl", "version": 3}


def test_a_gauge_has_the_newest_number_and_the_name_of_the_run_directory(made: dict[str, Made]) -> None:
    gauges = Gauges("q", {})
    gauges.set({"step": 1, "stage": "sft", "tokens/trained_per_s": 10.0})
    gauges.set({"step": 2, "stage": "rl", "reward/mean": 0.5, "reward/max": 1.0, "tokens/trained_per_s": 20.0})
    assert made["rlsys_reward_mean"].numbers == {("q", "rl"): 0.5}
    assert made["rlsys_tokens_trained_per_second"].numbers == {("q",): 20.0}
    assert made["rlsys_step"].numbers == {("q",): 2}


def test_a_run_that_takes_no_step_yet_is_there(made: dict[str, Made]) -> None:
    Gauges("q", {"step": 40, "run/steps_planned": 240, "time": 1000.5})
    names = ("step", "steps_planned", "last_step_timestamp_seconds")
    assert [numbers(made, name)[()] for name in names] == [40, 240, 1000.5]


def test_megabytes_become_bytes(made: dict[str, Made]) -> None:
    Gauges("q", {}).set({"memory/driver_rss_mb": 2.0, "engine/rss_mb": 3.0})
    assert numbers(made, "resident_bytes") == {("driver",): 2 * 2**20, ("engines",): 3 * 2**20}


def test_a_counter_adds_up_the_rows_and_begins_before_the_first_failure(made: dict[str, Made]) -> None:
    gauges = Gauges("q", {})
    assert numbers(made, "failures") == {("infra",): 0, ("timeout",): 0, ("data",): 0}
    for failed in (0.0, 2.0, 1.0):
        gauges.set({**ROW, "failures/infra": failed, "groups/trained": 5, "groups/filtered": 0, "episode/count": 64})
    assert numbers(made, "failures") == {("infra",): 3, ("timeout",): 0, ("data",): 0}
    assert numbers(made, "groups") == {("trained",): 15, ("filtered",): 0, ("failed",): 0}
    assert numbers(made, "episodes") == {(): 192}


def test_phases_are_all_seconds_of_a_step_and_none_twice(made: dict[str, Made]) -> None:
    gauges = Gauges("q", {})
    times = {"update": 0.5, "wait_rollout": 1.25, "other": 0.25, "step": 2.0, "episode_tool": 9.0, "learner_align": 9.0}
    for _ in range(2):
        gauges.set({**ROW, **{f"time/{name}": seconds for name, seconds in times.items()}})
    assert numbers(made, "phase_seconds") == {("update",): 1.0, ("wait_rollout",): 2.5, ("other",): 0.5}


def test_a_total_of_the_row_is_counted_by_its_growth(made: dict[str, Made]) -> None:
    """5, 8, then the engine is started again and has been busy for 2, then 6: 5 + 3 + 0 + 4."""
    gauges = Gauges("q", {})
    for busy in (5.0, 8.0, 2.0, 6.0):
        gauges.set({**ROW, "engine/busy_s": busy, "restarts/engine": 1})
    assert numbers(made, "engine_busy_seconds") == {(): 12.0}
    assert numbers(made, "restarts") == {("engine",): 1, ("service",): 0, ("learner",): 0}


def test_each_delivery_counts_once(made: dict[str, Made]) -> None:
    gauges = Gauges("q", {})
    for seconds in (0.5, 0.25):
        gauges.set({**ROW, "weights/publish_s": seconds})
    gauges.set(ROW)  # a step without signal delivers nothing
    assert (numbers(made, "deliveries"), numbers(made, "delivery_seconds")) == ({(): 2}, {(): 0.75})


def test_an_evaluation_is_its_accuracy_or_else_its_mean_reward(made: dict[str, Made]) -> None:
    gauges = Gauges("q", {})
    gauges.set_held_out("greedy", {"accuracy": 0.5, "mean_reward": 0.7})
    gauges.set_held_out("trivia/greedy", {"mean_reward": 0.25})
    gauges.set_held_out("greedy", {"accuracy": 0.75})
    gauges.set_held_out("sampled", {})  # nothing could be graded
    assert numbers(made, "held_out") == {("greedy",): 0.75, ("trivia/greedy",): 0.25}


def test_a_reward_with_many_parts_does_not_make_many_series(made: dict[str, Made]) -> None:
    Gauges("q", {}).set({f"reward/part/{number}": 1.0 for number in range(100)})
    assert len(numbers(made, "reward_part")) == 8


def test_the_table_bounds_the_series_of_a_run() -> None:
    assert sum(metric.series for metric in EXPORTED) <= MOST_SERIES
    assert len({metric.name for metric in EXPORTED}) == len(EXPORTED)
    assert not {"task", "worker", "step", "node"} & {metric.label for metric in EXPORTED}


def test_a_ray_that_takes_none_is_said_once(made: dict[str, Made], caplog: pytest.LogCaptureFixture) -> None:
    gauges = Gauges("q", {})
    sys.modules["ray.util.metrics"].Gauge = None  # type: ignore[attr-defined]
    for _ in range(3):
        gauges.set({"reward/mean": 0.5, "stage": "rl"})
    assert len(caplog.records) == 1 and "Ray takes no metrics" in caplog.records[0].getMessage()
