"""Speeds from what a run has measured: the same run, simulated with them, takes what it took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from launch.tools.plan.answers import Answers
from launch.tools.plan.forecast import Forecast, forecast
from launch.tools.plan.simulate import Setting
from launch.tools.plan.speed import Speed
from launch.tools.plan.trace import FEWEST, Trace
from rlsys.errors import BadInput

# What an engine's step takes without any sequence, as so many sequences. On a core, reading the weights takes as long
# as computing about ten of them: from runs with 2, 90 and 160 sequences in an engine (docs/measurements.md).
CPU_FIXED = 10.0
ROUNDS = 3  # of fitting what the parts need alone to what they took together


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    trace: Trace
    speed: Speed  # of the run's own division
    answers: Answers
    worker_cores: float  # that a worker's own process takes while its engine takes one
    replayed: Forecast  # of the run itself

    def speed_for(
        self, *, ranks: int, seats: int, engine_cores: float, learner_cores: float, cores: float | None
    ) -> Speed:
        """For another division of machines of the same kind. engine_cores: of an engine alone."""
        return replace(
            self.divide(ranks),
            seats=seats,
            cores=cores,
            engine_cores=engine_cores * (1 + self.worker_cores),
            learner_cores=learner_cores,
        )

    def divide(self, ranks: int) -> Speed:
        """Ranks divide an update and the writing of a version."""
        share = self.trace.setting.ranks / ranks
        return replace(
            self.speed,
            token_s=self.speed.token_s * share,
            build_s=self.speed.build_s * share,
            export_s=self.speed.export_s * share,
        )


def calibrate(
    trace: Trace,
    *,
    cores: float | None,
    engine_cores: float = 1.0,
    learner_cores: float = 1.0,
    fixed: float = CPU_FIXED,
) -> Calibration:
    """cores: that all parts of the run shared; None on GPUs. engine_cores: of an engine alone, without its worker's
    process. fixed: of an engine's step, in sequences.

    Raises BadInput where the rows do not say enough.
    """
    steps = [step for step in trace.steps if not math.isnan(step.busy_s) and step.generated > 0]
    if len(steps) < FEWEST or not any(step.packed for step in steps):
        raise BadInput("too few steps with the numbers of engines and updates", where=trace.name)
    setting, answers = trace.setting, answers_of(trace)
    base, each_s = fit_engine(trace, fixed)
    worker_cores = measure_worker(trace)
    episodes = setting.groups_per_step * setting.group_size
    update = fmean(step.update_s for step in trace.steps)
    speed = Speed(
        token_s=update / (answers.packed * episodes),
        fixed_s=fmean(step.other_s for step in trace.steps),
        build_s=fmean(step.build_s for step in trace.steps) / setting.groups_per_step,
        base_s=base,
        each_s=each_s,
        seats=setting.max_num_seqs,
        export_s=fmean(step.export_s for step in trace.steps),
        carry_s=fmean(max(0.0, step.publish_s - step.pause_s) for step in trace.steps),
        load_s=fmean(min(step.publish_s, step.pause_s) for step in trace.steps),
        cores=cores,
        engine_cores=engine_cores * (1 + worker_cores),
        learner_cores=learner_cores,
    )
    busy = fmean(step.busy_s for step in steps) / setting.workers
    learner = update + speed.fixed_s + speed.export_s
    for _ in range(ROUNDS):
        replayed = forecast(_setting_of(trace, speed), speed, answers)
        engine_factor, update_factor = busy / replayed.busy_s, learner / replayed.update_s
        speed = _scale_speed(speed, learner=update_factor, engine=engine_factor)
    replayed = forecast(_setting_of(trace, speed), speed, answers)
    factor = fmean(trace.seconds) / replayed.seconds  # what the simulation leaves out, or has too much of
    speed = _scale_speed(speed, learner=factor, engine=factor)
    replayed = forecast(_setting_of(trace, speed), speed, answers)
    return Calibration(trace=trace, speed=speed, answers=answers, worker_cores=worker_cores, replayed=replayed)


def _scale_speed(speed: Speed, *, learner: float, engine: float) -> Speed:
    return replace(
        speed,
        token_s=speed.token_s * learner,
        fixed_s=speed.fixed_s * learner,
        build_s=speed.build_s * learner,
        export_s=speed.export_s * learner,
        base_s=speed.base_s * engine,
        each_s=speed.each_s * engine,
    )


def predict(
    calibration: Calibration,
    *,
    groups_per_step: int | None = None,
    workers: int | None = None,
    ranks: int | None = None,
    answers: Answers | None = None,
) -> Forecast:
    """Of the run itself with another number of groups, engines or ranks, or other answers, on the same machines."""
    speed = calibration.speed
    if ranks is not None:
        speed = calibration.divide(ranks)
    setting = _setting_of(calibration.trace, speed)
    changed = replace(
        setting,
        groups_per_step=groups_per_step or setting.groups_per_step,
        workers=workers or setting.workers,
    )
    return forecast(changed, speed, answers or calibration.answers)


def _setting_of(trace: Trace, speed: Speed) -> Setting:
    setting = trace.setting
    return Setting(
        groups_per_step=setting.groups_per_step,
        group_size=setting.group_size,
        max_policy_lag=setting.max_policy_lag,
        workers=setting.workers,
        seats=setting.max_num_seqs,
        in_flight=setting.in_flight or 2 * setting.max_num_seqs,
        base_s=speed.base_s,
        each_s=speed.each_s,
        cores=speed.cores,
        engine_cores=speed.engine_cores,
        learner_cores=speed.learner_cores,
    )


def answers_of(trace: Trace) -> Answers:
    """What was played. Raises BadInput where no episode was kept."""
    groups: list[Sequence[tuple[float, float]]] = []
    for step, step_groups in zip(trace.steps, trace.groups, strict=True):
        outside = step.tool_s + step.score_s
        groups += [[(float(tokens), outside) for tokens in group] for group in step_groups if group]
    if not groups:
        raise BadInput("no episode of its rl steps was kept (trajectories.keep)", where=trace.name)
    setting = trace.setting
    packed = fmean(step.packed for step in trace.steps) / (setting.groups_per_step * setting.group_size)
    count = sum(map(len, groups))
    return Answers(groups=groups, packed=packed, said=f"lengths of {count:,} episodes of {trace.name}")


def measure_worker(trace: Trace) -> float:
    """Cores that a worker's own process takes while its engine takes one; 0 of a run that did not measure them."""
    steps = [step for step in trace.steps if step.engine_cpu_s > 0 and step.worker_cpu_s > 0]
    if not steps:
        return 0.0
    return sum(step.worker_cpu_s for step in steps) / sum(step.engine_cpu_s for step in steps)


def fit_engine(trace: Trace, fixed: float) -> tuple[float, float]:
    """(base_s, each_s): seconds of an engine's step with n sequences are base + n x each, where base is `fixed` x each.

    By Little's law an engine has held, on average, the seconds of its episodes over the seconds in which it was busy;
    a token of an episode takes one step of the engine. Steps differ too little and by too much noise for both numbers:
    what the rows give is one point of the line.
    """
    episodes = trace.setting.groups_per_step * trace.setting.group_size
    steps = [step for step in trace.steps if step.busy_s > 0 and step.generated > 0]
    waited = sum(step.generate_s * episodes for step in steps)
    load, token_s = waited / sum(step.busy_s for step in steps), waited / sum(step.generated for step in steps)
    each_s = token_s / (fixed + load)
    return fixed * each_s, each_s
