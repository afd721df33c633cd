"""The `generate` kind: trajectories to train on later, played with the weights as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from actors.renderer import ChatRenderer
from envs import make_world
from envs.base import World
from envs.rewards import solved_thresholds
from envs.services.teacher import check_ready, check_teacher
from launch.checks.agents import refuse_agents
from launch.checks.deadlines import generated_at_once
from launch.driver.observe.progress import Progress
from launch.driver.run.first_delivery import first_delivery
from launch.driver.run.playing import PendingGroup, Plays, play_each, rollout_plan
from launch.driver.run.run import Run
from launch.driver.stages.base import Stage, StageKeys, check_judge, check_response_length, check_tags
from launch.driver.stages.reads import DELIVERY, EPISODE
from launch.driver.stages.store import TrajectoryStore, store_path, write_out
from launch.driver.stages.trajectories import group_record, tokenizer_id, weights_id
from rlsys.config.generate import TeacherConfig
from rlsys.config.identity import identity_of
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput
from rlsys.harvest import check_failure_share
from rlsys.rollout import RolloutPlan, template_args_of
from rlsys.types import Failure, Group, Task

FEW = 64  # trajectories: fewer say nothing yet about the share that fails
SAMPLING = ("samples", "temperature", "top_p")  # keys of `generate` that decide what is played; the others filter it


class Generate(Stage):
    """Every training task is played once; the learner holds the weights and is not updated."""

    has_length = False
    plays = True
    makes_data = True
    reads = ("generate", *EPISODE, *DELIVERY)

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        check_response_length(where, recipe)
        check_tags(where, recipe)
        check_judge(where, recipe)
        check_keep(f"{where}: ", recipe)
        check_teacher(recipe.generate.teacher)
        for key in ("steps", "epochs", "data"):
            if getattr(head, key) is not None:
                raise BadInput(
                    "a generate stage plays every training task once",
                    key=f"{where}.{key}",
                    found=getattr(head, key),
                    expected="generate.tasks and generate.samples",
                )

    def check_use(self, where: str, own: StageConfig, head: StageKeys, recipe: RecipeConfig) -> None:
        verdicts = recipe.verdicts
        if head.kind == "judge" or (verdicts.keep == "none" and not verdicts.equal):
            return
        setting = f"{where}.data={head.data!r} with verdicts.keep={verdicts.keep}, verdicts.equal={verdicts.equal}"
        if head.kind == "dpo":
            raise BadInput("a pair has no verdicts", where=setting, expected="none and false")
        if own.config.reward.name != "swirl":
            raise BadInput("nobody judged these trajectories", where=setting, expected="the name of a judge stage")
        own.config.reward.check_verdicts(where, own.name, verdicts)

    def identity(self, stage: StageConfig) -> dict[str, Any]:
        return sampling(stage.config) | {"generate.teacher": weights_of(stage.config.generate.teacher)}

    def needs_engines(self, stage: StageConfig) -> bool:
        return not stage.config.generate.teacher.given

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        check_ready(stage.config.generate.teacher)
        if stage.config.generate.teacher.given:
            refuse_agents(stage.config.env)
            from launch.driver.run.nodes import check_rollouts  # Ray behind it: the keys are checked without

            check_rollouts(stage.config)

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        tasks = len(tasks_to_generate(make_world(stage.config.env), stage.config))
        samples = stage.config.generate.samples
        teacher = stage.config.generate.teacher
        by = f", by {teacher.model} at {teacher.endpoint}" if teacher.given else ""
        return [f"trajectories = {tasks} tasks x {samples} = {tasks * samples}{by}"]

    async def run(self, run: Run, stage: StageConfig) -> None:
        """`generated/NAME.jsonl` is what is kept of the trajectories. A resumed run plays the rest."""
        recipe = stage.config
        tasks = tasks_to_generate(run.active.world, recipe)
        renderer = run.renderer.under(template_args_of(recipe.env))
        output, tokenizer = run.dir.generated_path(stage.name), tokenizer_id(renderer)
        await run.begin_stage(stage)
        teacher = recipe.generate.teacher
        weights = f"step {run.state.step} ({await asyncio.to_thread(weights_id, run.saved_model)})"
        weights = weights_of(teacher) if teacher.given else weights
        played = TrajectoryStore(store_path(output), identify_play(recipe, weights, tokenizer))
        try:
            plan, missing = plan_of(recipe, f"generate-{stage.name}"), has_pending(tasks, played)
            if missing and teacher.given:
                await run.tasks.until(generate_taught(tasks, plan, recipe, played, renderer, run.progress))
            elif missing:
                await first_delivery(run)
                playing = generate_missing(run.pool, tasks, plan, recipe, played, tokenizer, run.progress)
                await run.tasks.until(run.sync.through(playing))
            counts = await asyncio.to_thread(write_out, played, output, recipe, len(tasks))
        finally:
            played.close()
        run.state.played[stage.name] = counts.row()
        run.state.generated += 0 if teacher.given else counts.tokens
        run.note("stage", f"stage {stage.name}: {counts.describe()}")


def check_keep(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput where what solved its task is to be kept, and the reward does not say what did."""
    if recipe.generate.keep == "correct" and solved_thresholds(recipe.reward) is None:
        raise BadInput(
            f"the class of reward.name={recipe.reward.name!r} has no `solved_by`, which says what counts as solved",
            key=f"{where}generate.keep",
            found="correct",
            expected="that, or generate.keep=best, or all with generate.min_reward",
        )


def tasks_to_generate(world: World, recipe: RecipeConfig) -> Sequence[Task]:
    return world.tasks("train")[: recipe.generate.tasks]


def plan_of(recipe: RecipeConfig, purpose: str) -> RolloutPlan:
    config = recipe.generate
    plan = rollout_plan(recipe, purpose, group_size=config.samples, temperature=config.temperature)
    return replace(plan, top_p=config.top_p)


def weights_of(teacher: TeacherConfig) -> str:
    second = f" and {teacher.reflector.model}" if teacher.reflector.given else ""
    prompts = f" with the prompts of {teacher.prompts}" if teacher.prompts is not None else ""
    how = f", led through {teacher.max_steps} actions at most{prompts}" if teacher.constructs else ""
    return f"the teacher {teacher.model}{second}{how}"


def has_pending(tasks: Sequence[Task], played: TrajectoryStore) -> bool:
    """Whether there is anything left to play."""
    return any(sequence not in played for sequence in range(len(tasks)))


def sampling(recipe: RecipeConfig) -> dict[str, Any]:
    return {f"generate.{key}": getattr(recipe.generate, key) for key in SAMPLING}


def identify_play(recipe: RecipeConfig, weights: str, tokenizer: str) -> dict[str, Any]:
    """What trajectories of one file have in common: how they were played, and by whom. Filters may change."""
    common = {"weights": weights, "tokenizer": tokenizer, "seed": recipe.seed} | sampling(recipe)
    common |= {f"rollout.{key}": getattr(recipe.rollout, key) for key in ("max_turn_tokens", "max_response_tokens")}
    common |= {"engine.max_model_len": recipe.engine.max_model_len}
    for key, part in (("env", recipe.env), ("reward", recipe.reward)):
        common |= identity_of(key, part)
    return common


async def generate_taught(
    tasks: Sequence[Task],
    plan: RolloutPlan,
    recipe: RecipeConfig,
    played: TrajectoryStore,
    renderer: ChatRenderer,
    progress: Progress,
) -> None:
    """The same as `generate_missing`, by a teacher; without Ray.

    No answer is paid for twice: until every task is done they also lie in a log next to `played`. That of constructed
    chains of thought stays: it says which action wrote what.
    """
    from actors.teacher import open_teacher_player  # Ray behind these two
    from launch.driver.run.wire import list_services, teacher_worlds

    log = played.path.with_name(played.path.name.replace(".played.jsonl", ".answers.jsonl"))
    progress.say(f"{weights_of(recipe.generate.teacher)} plays, at {recipe.generate.teacher.endpoint}")
    async with open_teacher_player(recipe, renderer, teacher_worlds(recipe), list(list_services(recipe)), log) as plays:
        await generate_missing(plays, tasks, plan, recipe, played, "", progress)
    if not has_pending(tasks, played) and not recipe.generate.teacher.constructs:
        log.unlink()


async def generate_missing(
    pool: Plays,
    tasks: Sequence[Task],
    plan: RolloutPlan,
    recipe: RecipeConfig,
    played: TrajectoryStore,
    tokenizer: str,
    progress: Progress,
) -> None:
    """Play the tasks that are not in `played` yet. One of which nothing could be graded is left for the next time.

    Raises RunFailed where more than `loop.max_failed_share` of the trajectories are failures: of the tasks that are
    played for the first time while they are played; at the end all that failed in this process, of all tasks.
    """
    missing = [(sequence, task) for sequence, task in enumerate(tasks) if sequence not in played]
    already = f", {len(tasks) - len(missing)} of them already" if len(missing) < len(tasks) else ""
    progress.say(f"playing {len(tasks)} tasks x {plan.group_size} at temperature {plan.temperature:g}{already}")
    progress.doing("tasks played")
    tried_before = frozenset(played.tried)  # tasks that fail with any model must not stop what is left, or the filters
    failed: list[Failure] = []
    failed_first: list[Failure] = []
    limit, played_first, done = recipe.loop.max_failed_share, 0, 0

    def finished(_: PendingGroup, group: Group) -> None:
        nonlocal played_first, done
        broken = [trajectory.reward for trajectory in group.trajectories if isinstance(trajectory.reward, Failure)]
        failed.extend(broken)
        played.add(group_record(group, tokenizer))
        done += 1
        if group.ticket.sequence not in tried_before:
            failed_first.extend(broken)
            played_first += plan.group_size
        if played_first >= FEW:
            check_failure_share(failed_first, played_first, limit, "trajectories")
        if done == len(missing):
            check_failure_share(failed, len(tasks) * plan.group_size, limit, "trajectories")
        progress.count(len(tasks) - len(missing) + done, len(tasks))

    owed = [PendingGroup("", sequence, task, plan) for sequence, task in missing]
    await play_each(pool, owed, generated_at_once(recipe), finished)
