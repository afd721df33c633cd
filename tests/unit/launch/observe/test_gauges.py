"""Rows as Ray's metrics, without Ray."""

import sys
from types import ModuleType
from typing import Any

import pytest

from launch.observe.gauges import Gauges


class Gauge:
    made: dict[str, list[tuple[float, dict[str, str]]]]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description and tag_keys == ("run", "stage") and name not in self.made
        self._values = self.made.setdefault(name, [])

    def set(self, value: float, tags: dict[str, str]) -> None:
        self._values.append((value, tags))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    Gauge.made = {}
    module: Any = ModuleType("ray.util.metrics")
    module.Gauge = Gauge
    monkeypatch.setitem(sys.modules, "ray.util.metrics", module)
    return Gauge.made


def test_a_row_sets_its_gauges(made: dict[str, Any]) -> None:
    gauges = Gauges("q")
    gauges.set({"step": 1, "stage": "sft", "tokens/trained_per_s": 10.0})
    gauges.set({"step": 2, "stage": "rl", "reward/mean": 0.5, "reward/max": 1.0, "tokens/trained_per_s": 20.0})
    rl, sft = ({"run": "q", "stage": stage} for stage in ("rl", "sft"))
    assert made == {
        "rlsys_reward_mean": [(0.5, rl)],
        "rlsys_tokens_trained_per_second": [(10.0, sft), (20.0, rl)],
    }


def test_a_ray_that_takes_none_is_said_once(made: Any, caplog: pytest.LogCaptureFixture) -> None:
    gauges = Gauges("q")
    sys.modules["ray.util.metrics"].Gauge = None
    for _ in range(3):
        gauges.set({"reward/mean": 0.5})
    assert [record.getMessage() for record in caplog.records] == [
        "Ray takes no metrics: 'NoneType' object is not callable"
    ]
