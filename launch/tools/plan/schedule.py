"""The seconds of a step on given machines, and the division of GPUs in which a step takes least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launch.checks.gpu_memory import ModelShape
from launch.config.placement import check_placement
from launch.driver.stages.base import recipes_with_rollouts
from launch.tools.plan.answers import Answers, assume_answers
from launch.tools.plan.calibrate import Calibration
from launch.tools.plan.forecast import Forecast, forecast, setting_of
from launch.tools.plan.memory import device_of, plan_memory
from launch.tools.plan.nodes import Nodes
from launch.tools.plan.speed import Speed, estimate
from launch.tools.plan.split import Split, other_splits, split_of, with_split
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.system.device import dtype_of, require_resolved, resolve

MOST_ENGINES = 512  # that are simulated: an event takes time for each
SIMULATED = 3  # splits, after a look at all of them without their tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where speeds and lengths come from."""

    shape: ModelShape | None  # None where the model's sizes have other names
    nodes: Nodes
    network: float | None = None  # Gbit/s
    answer_tokens: int | None = None
    prefill_tokens: int = 0  # of them
    calibration: Calibration | None = None

    @property
    def heads(self) -> int:
        return self.shape.heads if self.shape else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    split: Split
    speed: Speed
    answers: Answers
    forecast: Forecast


def planned_recipe(config: RunConfig, nodes: Nodes) -> RecipeConfig | None:
    """Of the last stage that learns from what engines play, resolved; None without one."""
    recipes = recipes_with_rollouts(config)
    return resolve(recipes[-1], device_of(nodes)) if recipes else None


def time_step(recipe: RecipeConfig, source: Source) -> Timed:
    """recipe: of an rl or stepwise stage, resolved. Raises BadInput where nothing says how fast these machines are."""
    speed, answers = _speed(recipe, source)
    if recipe.rollout.workers > MOST_ENGINES:
        raise BadInput(f"not simulated for more than {MOST_ENGINES} engines")
    prediction = forecast(setting_of(recipe, speed), speed, answers)
    return Timed(split=split_of(recipe), speed=speed, answers=answers, forecast=prediction)


def _speed(recipe: RecipeConfig, source: Source) -> tuple[Speed, Answers]:
    calibration, nodes = source.calibration, source.nodes
    if calibration is not None:
        if recipe.cluster.placement == "sleep":
            raise BadInput("a run says nothing of GPUs that are used in turn: plan without --from")
        cores = None if nodes.cores is None else float(nodes.cores * nodes.count)
        threads = recipe.learner.threads
        speed = calibration.speed_for(
            ranks=recipe.learner.ranks,
            seats=recipe.engine.max_num_seqs,
            engine_cores=float(require_resolved(recipe.rollout.threads)),
            learner_cores=float(threads * recipe.learner.ranks) if threads else cores or 1.0,
            cores=cores,
        )
        return speed, calibration.answers
    if nodes.card is None or source.shape is None:
        raise BadInput("unknown on CPUs before a run has measured it: give a run directory with --from")
    dtype = dtype_of(recipe.model.dtype, device_of(nodes))
    answers = assume_answers(recipe, source.answer_tokens, source.prefill_tokens)
    return estimate(recipe, source.shape, dtype, nodes, answers, source.network), answers


def fixed_of(config: RunConfig, sheets: Source) -> float:
    """What an engine's step takes without any sequence, as so many sequences, by the card's data sheet; 0 without."""
    recipe = planned_recipe(config, sheets.nodes)
    try:
        speed = _speed(recipe, sheets)[0] if recipe is not None else None
    except BadInput:
        return 0.0
    return 0.0 if speed is None else speed.base_s / speed.each_s


def _bound(recipe: RecipeConfig, source: Source) -> float:
    """Seconds that a step takes at least: whichever of learner and engines is slower, without a tail."""
    speed, answers = _speed(recipe, source)
    episodes = recipe.loop.groups_per_step * recipe.loop.group_size
    share = episodes / recipe.rollout.workers
    full = min(float(speed.seats), share * (1 + recipe.loop.max_policy_lag))
    learner = speed.fixed_s + speed.token_s * answers.packed * episodes + speed.export_s
    engines = share * answers.mean_tokens / speed.engine_rate(full)
    return max(learner, engines) if speed.change_s is None else learner + engines + 2 * speed.change_s


def best_splits(
    config: RunConfig, source: Source, candidates: Sequence[Split], served: int = 0, current: Timed | None = None
) -> list[Timed]:
    """The fastest of the candidates that fit, simulated, in order. current: is not simulated again."""
    nodes, timed = source.nodes, []
    for split in candidates:
        if split.workers > MOST_ENGINES:
            continue
        divided = with_split(config, split)
        recipe = planned_recipe(divided, nodes)
        if recipe is None or plan_memory(divided, nodes, served).problem is not None:
            continue
        timed.append((_bound(recipe, source), split, recipe))
    timed.sort(key=lambda entry: entry[0])
    apart = [entry for entry in timed if entry[1].placement == "split"]
    in_turn = [entry for entry in timed if entry[1].placement != "split"]
    fastest = [
        current if current is not None and current.split == split else time_step(recipe, source)
        for _, split, recipe in [*apart[:SIMULATED], *in_turn]
    ]
    return sorted(fastest, key=lambda candidate: candidate.forecast.seconds)


def can_alternate(config: RunConfig) -> bool:
    """Whether all stages could, with other numbers of ranks and engines alone."""
    recipes = [config.recipe, *(stage.config for stage in config.stages)]
    divided = [replace(recipe, cluster=replace(recipe.cluster, placement="sleep")) for recipe in recipes]
    try:
        for recipe in divided:
            workers = replace(recipe.rollout, workers=recipe.learner.ranks)
            check_placement(replace(recipe, rollout=workers))
    except BadInput:
        return False
    return True


def same_kind(config: RunConfig, nodes: Nodes, heads: int, served: int = 0, *, measured: bool = False) -> list[Split]:
    """Every split of all GPUs into ranks and engines that changes no other key; and all of them in turn, which no run
    has `measured`."""
    before, in_turn = split_of(config.recipe), not measured and can_alternate(config)
    return [
        split
        for split in other_splits(nodes, before, heads, served, in_turn=in_turn)
        if (split.zero_stage, split.offload, split.tensor_parallel)
        == (before.zero_stage, before.offload, before.tensor_parallel)
    ]
