"""The deadlines of a run with their arithmetic, and what is expected to come near to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from launch.checks import model_size
from launch.checks.deadlines import at_once, attempt_s, short_timeout, start_of_engine, start_of_rank
from launch.checks.machine import expected_device
from launch.checks.teachers import teachers_of
from launch.driver.evaluation.limits import evaluation_deadline
from launch.driver.evaluation.sets import episodes_of, plays_of, recipes_played
from launch.driver.stages.base import needs_engines, recipes_with_rollouts, stage_of
from launch.driver.stages.reads import holds
from launch.tools.plan.schedule import Timed
from rlsys import deadlines
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.deadlines import Derived
from rlsys.system.device import Device


@dataclass(frozen=True, slots=True)
class Expected:
    """What a forecast says of something that has a deadline: Expected("an update", 3050.0, "learner...", 1800.0)."""

    what: str
    seconds: float
    key: str
    deadline_s: float

    @property
    def warning(self) -> str | None:
        if not deadlines.is_tight(self.seconds, self.deadline_s):
            return None
        has = f"{self.key} gives it {self.deadline_s:,.0f}"
        least = self.seconds / deadlines.SOON
        return f"{self.what} takes about {self.seconds:,.0f} s by the forecast, and {has}: {least:,.0f} would be safe"


def deadline_lines(config: RunConfig, device: Device) -> list[str]:
    """Of every deadline and every number of episodes at once: the key, its value, and where that comes from."""
    playing = [stage for stage in config.stages if needs_engines(config, stage)]
    rows = [line for stage in playing for line in _of_stage(stage)]
    teachers = teachers_of((stage.config for stage in config.stages), loaded_by_ranks=True)
    if playing:
        rows.append(("rollout.start_timeout_s", "", start_of_engine(config.recipe, device)))
    rows.append(("learner.start_timeout_s", "", start_of_rank(config.recipe, device, teachers)))
    values: dict[tuple[str, Derived], list[str]] = {}
    for key, where, derived in rows:
        values.setdefault((key, derived), []).append(where)
    several = {key for key, _ in values if sum(other == key for other, _ in values) > 1}
    return [
        f"{key} = {derived.value:,.0f}: {derived.said}" + (f" (in {', '.join(where)})" if key in several else "")
        for (key, derived), where in values.items()
    ]


def _of_stage(stage: StageConfig) -> Iterator[tuple[str, str, Derived]]:
    recipe, kind = stage.config, stage_of(stage.kind)
    for name, env_recipe in recipe.by_env.items():
        yield "rollout.episode_timeout_s", ".".join(filter(None, (stage.name, name))), attempt_s(env_recipe)
    if kind.makes_data:
        yield "generate.concurrency", stage.name, at_once(recipe, recipe.generate.concurrency, [recipe])
        return
    plays = plays_of(recipe)
    yield "eval.concurrency", stage.name, at_once(recipe, recipe.eval.concurrency, recipes_played(plays))
    if recipe.eval.every and holds(kind.reads, "eval.deadline_s"):
        yield "eval.deadline_s", stage.name, evaluation_deadline(recipe, plays)


def list_expected(recipe: RecipeConfig, timed: Timed, version_bytes: int) -> list[Expected]:
    """recipe: of the stage that was timed. version_bytes: of the weights that a delivery carries."""
    speed, forecast = timed.speed, timed.forecast
    answer_s = max(tokens for group in timed.answers.groups for tokens, _ in group) * speed.seats
    answer_s /= speed.engine_rate(speed.seats)
    episode_s = min(attempt_s(env_recipe).value for env_recipe in recipe.by_env.values())
    delivered_s = max(recipe.loop.publish_deadline_s, deadlines.moved_s(version_bytes))
    expected = [
        Expected("an update", forecast.update_s, "learner.update_timeout_s", recipe.learner.update_timeout_s),
        Expected("the longest answer", answer_s, "rollout.episode_timeout_s", episode_s),
        Expected("a delivery", speed.carry_s + speed.load_s, "loop.publish_deadline_s", delivered_s),
    ]
    if recipe.eval.every:
        plays = plays_of(recipe)
        many = int(at_once(recipe, recipe.eval.concurrency, recipes_played(plays)).value)
        evaluated_s = deadlines.evaluation_s(episodes_of(plays), many, answer_s).value
        limit_s = evaluation_deadline(recipe, plays).value
        expected.append(Expected("an evaluation beside training", evaluated_s, "eval.deadline_s", limit_s))
    return expected


def deadline_warnings(config: RunConfig, timed: Timed | None) -> list[str]:
    """What may be late, or is cut off for certain. timed: of the stage that is planned, where that is known."""
    playing = [stage for stage in config.stages if needs_engines(config, stage)]
    warnings = [warning for stage in playing for warning in _too_short(stage)]
    planned = recipes_with_rollouts(config)
    if timed is not None and planned:
        size = model_size.model_bytes(config.recipe, expected_device(config.recipe.cluster))
        expected = list_expected(planned[-1], timed, size)
        warnings += [entry.warning for entry in expected if entry.warning is not None]
    return list(dict.fromkeys(warnings))


def _too_short(stage: StageConfig) -> list[str]:
    """Of a time limit of episodes that is given: for those that are trained on, and for each play of an evaluation."""
    warnings = {
        warning: "" for recipe in stage.config.by_env.values() if (warning := short_timeout(recipe)) is not None
    }
    if not stage_of(stage.kind).makes_data:
        for name, play in plays_of(stage.config).items():
            recipe = play.of.recipe
            warning = short_timeout(recipe, recipe.eval.max_turn_tokens, recipe.eval.max_response_tokens)
            if warning is not None:
                warnings.setdefault(warning, f"{name}: ")
    return [f"{where}{warning}" for warning, where in warnings.items()]


def lines_of(config: RunConfig, timed: Timed | None) -> Sequence[str]:
    device = expected_device(config.recipe.cluster)
    return [*deadline_lines(config, device), *(f"warning: {warning}" for warning in deadline_warnings(config, timed))]
