"""A test of the audit's test of lengths: rules that favour short episodes do not pass it, the loop's own rule does."""

from __future__ import annotations

from random import Random

import pytest

from launch.tools.audit.lengths import LengthTest, compare_lengths
from launch.tools.audit.properties import CERTAIN
from launch.tools.plan.simulate import Episode, Setting, SimulatedStage, StepCost

STEPS, LAG, FAILING = 24, 4, 0.03
SETTING = Setting(
    groups_per_step=16, group_size=2, max_policy_lag=LAG, workers=2, seats=512, in_flight=1024, base_s=0.01, each_s=0.0
)


class FirstCome(SimulatedStage):
    """Whatever is finished first is trained first; a step waits for nobody."""

    def choose(self) -> list[int]:
        finished = list(self.finished)  # in that order
        return finished[: SETTING.groups_per_step] if len(finished) >= SETTING.groups_per_step else []


class Discarding(FirstCome):
    """The same, and what is older than the bound is thrown away."""

    def choose(self) -> list[int]:
        for sequence, group in list(self.finished.items()):
            if group.start_version < self.version - LAG:
                del self.finished[sequence]
                self.free += 1
        self.feed()
        return super().choose()


def draw(rng: Random) -> list[Episode]:
    """99 % of the lengths are below ten times the median."""
    return [Episode(tokens=100 * rng.lognormvariate(0, 0.99)) for _ in range(SETTING.group_size)]


def play(rule: type[SimulatedStage], seed: int) -> tuple[LengthTest, int]:
    """Lengths of trained against those of all other episodes that were begun, and the largest lag.

    A few fail, as likely a long one as a short one.
    """
    begun: list[list[Episode]] = []

    def source(rng: Random) -> list[Episode]:
        begun.append(draw(rng))
        return begun[-1]

    whole = STEPS * SETTING.groups_per_step if rule is SimulatedStage else None  # the others never stop to begin groups
    stage = rule(SETTING, source, lambda _: StepCost(update_s=0.1), Random(seed), whole)
    steps = stage.run(STEPS)
    trained = {group.sequence for group in stage.history}
    chance, kept, left = Random(seed), list[float](), list[float]()
    for sequence, group in enumerate(begun):
        for episode in group:
            counts = sequence in trained and chance.random() > FAILING
            (kept if counts else left).append(episode.tokens)
    return compare_lengths(kept, left), max(step.lag for step in steps)


@pytest.mark.parametrize("seed", range(3))
def test_the_loops_own_rule_passes(seed: int) -> None:
    comparison, lag = play(SimulatedStage, seed)
    assert comparison.played == STEPS * 16 * 2 and comparison.left_out > 0
    assert comparison.p > CERTAIN and lag <= LAG


@pytest.mark.parametrize("seed", range(3))
def test_first_come_first_served_does_not(seed: int) -> None:
    """Late groups are trained late, beyond the bound, and those that are not are long."""
    comparison, lag = play(FirstCome, seed)
    assert comparison.p < CERTAIN and comparison.trained_mean < comparison.played_mean
    assert lag > LAG


@pytest.mark.parametrize("seed", range(3))
def test_throwing_old_groups_away_does_not(seed: int) -> None:
    """The bound holds, and what it costs are the long ones."""
    comparison, lag = play(Discarding, seed)
    assert comparison.p < CERTAIN and comparison.trained_mean < comparison.played_mean
    assert lag <= LAG
