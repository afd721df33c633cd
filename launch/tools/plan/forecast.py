"""The time of a step, and who waits for whom: speeds and episodes through the simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from launch.tools.plan.answers import Answers
from launch.tools.plan.simulate import Episode, Setting, StepCost, simulate
from launch.tools.plan.speed import Speed
from rlsys.config.recipe import RecipeConfig
from rlsys.system.device import require_resolved

STEPS = 20  # that are simulated where lengths differ
STEPS_ALIKE = 6  # where all answers are of one length, or a step has so many
MANY = 1024  # answers of a step, whose sum differs little from step to step
DAY_S = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Of one step, in seconds, on average."""

    seconds: float
    update_s: float  # of the learner, with the export
    wait_s: float  # that the learner waits for groups and deliveries
    busy_s: float  # of an engine
    full_s: float  # of an engine, had every step of it as many sequences as it can get
    rate: float  # tokens/s of an engine then
    engine_tokens: float  # that each engine samples
    packed: float  # tokens in the learner
    lag: int  # versions, at most

    @property
    def tail_s(self) -> float:
        return max(0.0, self.busy_s - self.full_s)

    @property
    def first_s(self) -> Mapping[str, float]:
        """Of the phases of a stage's first step, by name: all that may be open is played before anything is trained."""
        return {"update": self.update_s, "wait_rollout": self.busy_s * (1 + self.lag)}

    @property
    def engine_idle(self) -> float:
        """Share of the step."""
        return max(0.0, 1 - self.busy_s / self.seconds)

    @property
    def learner_idle(self) -> float:
        return self.wait_s / self.seconds

    @property
    def tokens_per_s(self) -> float:
        return self.packed / self.seconds

    @property
    def steps_a_day(self) -> float:
        return DAY_S / self.seconds


def setting_of(recipe: RecipeConfig, speed: Speed) -> Setting:
    """recipe: of an rl or stepwise stage, resolved."""
    loop, rollout = recipe.loop, recipe.rollout
    return Setting(
        groups_per_step=loop.groups_per_step,
        group_size=loop.group_size,
        max_policy_lag=loop.max_policy_lag,
        workers=rollout.workers,
        seats=speed.seats,
        in_flight=require_resolved(rollout.in_flight),
        base_s=speed.base_s,
        each_s=speed.each_s,
        cores=speed.cores,
        engine_cores=speed.engine_cores,
        learner_cores=speed.learner_cores,
        change_s=speed.change_s,
    )


def forecast(setting: Setting, speed: Speed, answers: Answers, *, seed: int = 0) -> Forecast:
    groups = [tuple(Episode(tokens=tokens, outside_s=outside) for tokens, outside in group) for group in answers.groups]
    episodes = setting.groups_per_step * setting.group_size
    packed = answers.packed * episodes
    cost = StepCost(
        build_s=speed.build_s * setting.groups_per_step,
        update_s=speed.fixed_s + speed.token_s * packed,
        export_s=speed.export_s,
        publish_s=speed.carry_s + speed.load_s,
        pause_s=speed.load_s,
    )
    alike = len({episode for group in groups for episode in group}) == 1
    steps = simulate(
        setting,
        lambda rng: draw_group(groups, setting.group_size, rng),
        lambda _: cost,
        steps=STEPS_ALIKE if alike or episodes >= MANY else STEPS,
        seed=seed,
    )
    tokens = fmean(step.tokens for step in steps) / setting.workers
    share = episodes * (1 + setting.max_policy_lag) / setting.workers
    full = min(float(setting.seats), share)
    rate = full / (setting.base_s + setting.each_s * full)
    return Forecast(
        seconds=fmean(step.seconds for step in steps),
        update_s=fmean(step.update_s for step in steps),
        wait_s=fmean(step.wait_s + step.publish_wait_s for step in steps),
        busy_s=fmean(step.busy_s for step in steps),
        full_s=tokens / rate,
        rate=rate,
        engine_tokens=tokens,
        packed=packed,
        lag=max(step.lag for step in steps),
    )


def draw_group(groups: Sequence[Sequence[Episode]], size: int, rng: Random) -> Sequence[Episode]:
    """One of the groups that are known; of another size, episodes of it."""
    group = rng.choice(groups)
    return group if len(group) == size else rng.choices(group, k=size)
