"""A phase that takes far longer than usual is noticed while it lasts, once, and short or first ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from launch.config.compose import compose
from launch.driver.evaluation.limits import long_phases
from launch.driver.observe.phases import FIRST, PhaseWatch


class Hand:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def watch(floor_s: float = 10.0, **more: Any) -> tuple[PhaseWatch, Hand]:
    hand = Hand()
    return PhaseWatch(6.0, floor_s, lambda: "rl", hand, **more), hand


def go_through(phases: PhaseWatch, hand: Hand, name: str, *seconds: float) -> None:
    for duration in seconds:
        phases.enter(name)
        hand.now += duration
        phases.leave()


def test_it_is_overdue_after_the_factor_times_the_median_and_said_once() -> None:
    phases, hand = watch()
    go_through(phases, hand, "update", 5.0, 4.0, 6.0, 100.0)  # the median is 5.5
    phases.enter("update")
    hand.now += 32.9
    assert phases.overdue() is None
    hand.now += 0.2
    phase = phases.overdue()
    assert phase is not None and (phase.name, phase.stage, phase.known) == ("update", "rl", 4)
    assert phase.usual_s == 5.5 and abs(phase.since_s - 33.1) < 1e-9
    hand.now += 1000.0
    assert phases.overdue() is None
    phases.leave()
    phases.enter("update")  # another one is noticed again
    hand.now += 60.0
    assert phases.overdue() is not None


def test_short_phases_have_a_floor() -> None:
    phases, hand = watch()
    go_through(phases, hand, "build", 0.01, 0.01, 0.01)
    phases.enter("build")
    hand.now += 9.9
    assert phases.overdue() is None
    hand.now += 0.2
    assert phases.overdue() is not None


def test_first_ones_are_overdue_after_ten_times_the_floor() -> None:
    phases, hand = watch()
    go_through(phases, hand, "update", 1.0, 1.0)
    phases.enter("update")
    hand.now += 99.0
    assert phases.overdue() is None
    hand.now += 2.0
    phase = phases.overdue()
    assert phase is not None and phase.usual_s is None


def test_between_phases_nothing_is_overdue() -> None:
    phases, hand = watch()
    go_through(phases, hand, "update", 1.0)
    hand.now += 1e6
    assert phases.current() is None and phases.overdue() is None


# (seconds of an update, of a wait for rollouts, learner.update_timeout_s)
HONEST = {
    "7e9 on 8 GPUs": (745.0, 666.0, 3600.0),
    "32e9 on 32 GPUs": (824.0, 847.0, 3600.0),
    "SmolLM2 on two cores": (170.0, 90.0, 1800.0),
}


@pytest.mark.parametrize("model", HONEST)
def test_no_first_step_of_a_real_model_is_called_stalled_and_a_hang_in_it_is(model: str) -> None:
    update, wait, deadline_s = HONEST[model]
    phases, hand = watch(60.0, deadline_s=deadline_s)
    for _ in range(4):
        for name, seconds in (("wait_rollout", wait), ("update", update)):
            phases.enter(name)
            hand.now += seconds
            assert phases.overdue() is None
            phases.leave()
    fresh, hand = watch(60.0, deadline_s=deadline_s)
    fresh.enter("update")
    hand.now += deadline_s / 2  # long before the call would fail
    assert fresh.overdue() is not None


def test_a_forecast_takes_the_place_of_what_is_not_known_yet() -> None:
    phases, hand = watch(60.0, deadline_s=1800.0, forecast={"update": 1400.0})
    phases.enter("update")
    hand.now += 2099.0  # 1.5 times 1400 are 2100
    assert phases.overdue() is None
    hand.now += 2.0
    assert phases.overdue() is not None
    phases.leave()
    phases.enter("wait_rollout")
    hand.now += 601.0  # a third of 1800: of this one nothing was forecast
    assert phases.overdue() is not None


def test_a_first_wait_may_take_as_long_as_its_episodes_and_held_weights_as_long_as_their_evaluation() -> None:
    """300 s is the least of an episode: with a lag of 2 three of them follow one another."""
    keys = ["loop.max_policy_lag=2", "eval.every=5", "eval.deadline_s=400"]
    recipe = compose("quickstart", keys).stages[-1].config
    held_recipe = compose("quickstart", [*keys, "eval.hold_weights=true"]).stages[-1].config
    assert long_phases(recipe) == {f"{FIRST}wait_rollout": 900.0}
    assert long_phases(held_recipe) == {f"{FIRST}wait_rollout": 900.0, "publish_previous": 400.0}

    def overdue_after(name: str, known: int, seconds: float) -> bool:
        phases, hand = watch(10.0, long=lambda: long_phases(held_recipe))
        go_through(phases, hand, name, *[1.0] * known)
        phases.enter(name)
        hand.now += seconds
        return phases.overdue() is not None

    assert not overdue_after("wait_rollout", 0, 899.0) and overdue_after("wait_rollout", 0, 901.0)
    assert overdue_after("wait_rollout", 3, 11.0)
    assert not overdue_after("publish_previous", 3, 399.0) and overdue_after("publish_previous", 3, 401.0)
