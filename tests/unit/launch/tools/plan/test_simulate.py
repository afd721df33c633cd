"""The simulation of an rl stage, against times worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from launch.tools.plan.simulate import Episode, Setting, SimulatedStep, StepCost, simulate

ONE = Setting(
    groups_per_step=1, group_size=1, max_policy_lag=0, workers=1, seats=8, in_flight=16, base_s=1.0, each_s=0.0
)


def run(setting: Setting, cost: StepCost, *, tokens: float = 10, outside_s: float = 0.0) -> SimulatedStep:
    group = [Episode(tokens=tokens, outside_s=outside_s)] * setting.group_size
    steps = simulate(setting, lambda _: group, lambda _: cost, steps=2)
    assert [step.seconds for step in steps] == pytest.approx([steps[0].seconds] * 2)
    return steps[-1]


def test_without_lag_everything_is_one_after_the_other() -> None:
    """2 s of delivery, 10 tokens of 1 s, 1 s to build, 5 s of update, 0.5 s of export."""
    step = run(ONE, StepCost(build_s=1, update_s=5, export_s=0.5, publish_s=2))
    assert step.seconds == pytest.approx(2 + 10 + 1 + 5 + 0.5)
    assert (step.wait_s, step.publish_wait_s, step.busy_s, step.lag) == (12, 0, 10, 0)


def test_with_lag_the_slower_side_decides() -> None:
    """Two groups are open: while one is trained the other is played."""
    lagging = replace(ONE, max_policy_lag=1)
    slow_learner = run(lagging, StepCost(update_s=20, publish_s=2))
    assert (slow_learner.seconds, slow_learner.publish_wait_s, slow_learner.lag) == (22, 2, 1)
    slow_engine = run(replace(lagging, seats=1), StepCost(update_s=1, publish_s=2), tokens=30)
    assert (slow_engine.seconds, slow_engine.busy_s) == pytest.approx((30, 30))


def test_seats_are_taken_in_turns() -> None:
    four = replace(ONE, group_size=4, seats=2)
    assert run(four, StepCost()).seconds == pytest.approx(2 * 10)


def test_every_sequence_makes_the_step_of_an_engine_longer() -> None:
    four = replace(ONE, group_size=4, each_s=0.5)
    assert run(four, StepCost()).seconds == pytest.approx(10 * (1 + 4 * 0.5))


def test_tools_and_rewards_take_their_time_without_a_seat() -> None:
    assert run(ONE, StepCost(), outside_s=3).seconds == pytest.approx(10 + 3)
    two = replace(ONE, group_size=2, seats=1)
    assert run(two, StepCost(), outside_s=3).seconds == pytest.approx(10 + 10 + 3)


def test_groups_are_shared_out_to_workers_with_room() -> None:
    two = replace(ONE, groups_per_step=2, seats=1, in_flight=1)
    assert run(two, StepCost()).seconds == pytest.approx(20)
    assert run(replace(two, workers=2), StepCost()).seconds == pytest.approx(10)


def test_engines_stand_still_while_they_load() -> None:
    busy = replace(ONE, max_policy_lag=1, seats=1)
    assert run(busy, StepCost(update_s=1, publish_s=5, pause_s=4), tokens=30).seconds == pytest.approx(34)


def test_devices_that_are_used_in_turn_never_do_both() -> None:
    """10 tokens, a turn, update and export, a turn, the delivery: with lag too, nothing of it is at the same time."""
    cost = StepCost(update_s=5, export_s=0.5, publish_s=2, pause_s=2)
    in_turn = replace(ONE, change_s=3.0)
    assert run(in_turn, cost).seconds == pytest.approx(10 + 3 + 5.5 + 3 + 2)
    busy = replace(in_turn, max_policy_lag=1, seats=1)
    assert run(busy, cost, tokens=30).seconds == pytest.approx(30 + 3 + 5.5 + 3 + 2)


def test_parts_that_share_cores_slow_each_other_down() -> None:
    """Engine and learner ask for a core each and there is one: 20 s of update and 20 s of tokens take 40 s."""
    lagging = replace(ONE, max_policy_lag=1, groups_per_step=1, seats=1)
    alone = run(lagging, StepCost(update_s=20), tokens=20)
    shared = run(replace(lagging, cores=1.0), StepCost(update_s=20), tokens=20)
    assert alone.seconds == pytest.approx(20) and shared.seconds == pytest.approx(40)
    enough = run(replace(lagging, cores=2.0), StepCost(update_s=20), tokens=20)
    assert enough.seconds == pytest.approx(20)


def draw(rng: Random) -> list[Episode]:
    return [Episode(tokens=rng.choice([5, 20, 80]), outside_s=rng.random()) for _ in range(4)]


MANY = Setting(
    groups_per_step=6, group_size=4, max_policy_lag=2, workers=2, seats=8, in_flight=16, base_s=0.1, each_s=0.02
)


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_the_lag_is_bounded_and_the_same_seed_gives_the_same(lag: int) -> None:
    setting = replace(MANY, max_policy_lag=lag)
    first, again = (simulate(setting, draw, lambda _: StepCost(update_s=3), steps=8, seed=7) for _ in range(2))
    assert first == again and max(step.lag for step in first) <= lag
    assert all(step.seconds > 0 and step.busy_s <= step.seconds + 1e-9 for step in first)


def test_more_workers_are_never_slower() -> None:
    seconds = []
    for workers in (1, 2, 4):
        setting = replace(MANY, workers=workers)
        steps = simulate(setting, lambda _: [Episode(tokens=50)] * 4, lambda _: StepCost(update_s=1), steps=6)
        seconds.append(sum(step.seconds for step in steps))
    assert seconds == sorted(seconds, reverse=True) and seconds[0] > seconds[-1]
