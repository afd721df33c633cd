"""What a kind of stage is: one object that answers every question that depends on the kind.

    compose        algorithm, reads, check, build       may the recipe say this, and how many steps is it?
    --dry-run      arithmetic                           the numbers that follow
    before a run   ready, needs_engines                 what must be there before anything starts
    the run        run                                  the stage itself
    resuming       identity, midway                     what may not change

The file of a kind is imported by every command that reads a recipe. What needs torch or Ray is therefore imported
inside its methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import takewhile
from pathlib import Path
from typing import Any

from actors.renderer import ChatRenderer
from envs import make_world
from envs.protocols import PROTOCOLS, Inline
from envs.rewards import ChecksTask, judge_config_of, make_reward, traits_of
from envs.services.judge.config import JudgeConfig
from launch.driver.evaluation.sets import sets_of
from launch.driver.run.run import Run
from launch.driver.stages import STAGES
from launch.driver.stages.reads import Keys
from learners.algorithms import make_algorithm
from learners.algorithms.base import VALUES
from rlsys.choices import load
from rlsys.config.identity import config_key
from rlsys.config.recipe import DataSource, RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, nearest
from rlsys.types import Sample, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class StageKeys:
    """The keys of a stage that are not part of its configuration, as the recipe has them. Only `kind` has been
    checked."""

    name: Any = None
    """Name of the stage in messages, metrics and `stages.NAME.key=value`. null: its kind."""
    kind: Any = None
    """Kind of the stage: a name of the table in `launch.driver.stages`, which docs/stages.md explains."""
    steps: Any = None
    """Number of training steps. Exactly one of steps and epochs is given; generate, judge and eval stages have
    neither."""
    epochs: Any = None
    """Number of passes over the training tasks, or over `data`. It is converted to steps, rounded up."""
    data: Any = None
    """Training data of sft, dpo and stepwise, and input of judge: the name of an earlier generate or judge stage, the
    path of a JSON-lines file, or (sft, dpo) several of them with the number of examples of each, {a.jsonl: 300,
    b.jsonl: null}, where null means all. null: the environment's demonstrations (sft)."""
    prompts: Any = None
    """Prompts under which the answers of `data` are taught (sft). env: those of this stage's own environment, with its
    `env.demonstrations` and its instruction (prompt distillation). null: those that the data has."""

    @property
    def label(self) -> str:
        return str(self.name or self.kind)


STAGE_KEYS = tuple(field.name for field in fields(StageKeys))


Scored = tuple[RecipeConfig, Sequence[Task]]


class Stage:
    """A kind of stage. What stands here fits one that goes through the training tasks and needs no engines."""

    algorithm = "sft"  # the learner's, where nothing names one
    recipe_algorithm = False  # `algorithm.name` outside of `stages` is meant for this kind
    has_length = True  # `steps` or `epochs` has to be given
    plays = False  # it needs rollout engines
    makes_data = False  # later stages may name it as their `data`
    mixes = False  # it may have several environments
    own_prompts = False  # it can teach answers under the prompts of its own environment
    reads: Keys = ()  # the sections and keys of a recipe that have an effect in such a stage

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        """Raises BadInput for what this kind has no use for. `where` begins the line: "quickstart: stages.rl"."""

    def reads_here(self, head: StageKeys, recipe: RecipeConfig) -> Keys:
        """Of `reads`, and more for a class of the user's own: what this stage reads."""
        return self.reads

    def needs_engines(self, stage: StageConfig) -> bool:
        return self.plays

    def check_use(self, where: str, own: StageConfig, head: StageKeys, recipe: RecipeConfig) -> None:
        """Raises BadInput where a later stage cannot train on what `own`, of this kind, makes."""

    def epoch(self, recipe: RecipeConfig, data: DataSource | None) -> int:
        """How many tasks or examples one epoch goes through. `data` is a path, or None."""
        return len(make_world(recipe.env).tasks("train"))

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        """Look before a run starts whether there is something to train on, and the rewards can score what is played.
        Raises BadInput."""
        for recipe, tasks in scored_recipes(config, stage):
            check_columns(recipe, tasks)

    def identity(self, stage: StageConfig) -> dict[str, Any]:
        """The keys of this kind that a run directory must be continued with, besides environment and group size."""
        return {}

    def midway(self, stage: StageConfig) -> dict[str, Any]:
        """The keys that may change between stages of this kind, and not within one that has begun."""
        weights = {f"envs.{name}.weight": share.weight for name, share in stage.config.envs.items()}
        return {"algorithm.name": stage.config.algorithm.name} | weights

    def example(self, config: RunConfig, stage: StageConfig, renderer: ChatRenderer) -> list[Sample]:
        """A training sample of each answer of one example, for `--dry-run`; none where that is not known yet."""
        return []

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        """The lines of `--dry-run`."""
        total = stage.steps * stage.config.loop.groups_per_step
        tasks = self.epoch(stage.config, None)
        world = make_world(stage.config.env)
        world.prepare()
        apart = len(world.tasks("held_out"))
        held_out = f"; {apart} others are held out for evaluation" if apart else ""
        if not stage.config.envs:
            return [f"tasks = {describe_steps(stage)} ({total / tasks:.2f} epochs of {tasks}{held_out})"]
        shares = [self.share(stage.config, name, total) for name in stage.config.envs]
        return [f"tasks = {describe_steps(stage)}, of {len(shares)} environments", *shares]

    def share(self, recipe: RecipeConfig, name: str, total: int) -> str:
        """What one environment of several gets of `total` groups, for `--dry-run`."""
        config, share = recipe.by_env[name], recipe.envs[name].weight / sum(env.weight for env in recipe.envs.values())
        tasks, apart = self.epoch(config, None), len(make_world(config.env).tasks("held_out"))
        label = f"envs.{name} = {config.env.name}, reward {config.reward.name}"
        epochs = f"{total * share / tasks:.2f} epochs of {tasks}; {apart} others held out"
        return f"{label}: {total * share:.0f} of {total}, {share:.0%} ({epochs})"

    async def run(self, run: Run, stage: StageConfig) -> None:
        """Go through the stage, or through what a resumed run has left of it."""
        raise NotImplementedError(type(self).__name__)

    def build(self, where: str, head: StageKeys, recipe: RecipeConfig, earlier: Sequence[StageConfig]) -> StageConfig:
        """The stage, which `check` has passed, checked against the ones before it. Raises BadInput in one line.

        `epochs` become steps here, unless they go over what an earlier stage has yet to make, or over the answers that
        fit under other prompts, which the tokenizer decides.
        """
        makers = [stage for stage in earlier if stage.name == head.data and stage_of(stage.kind).makes_data]
        for maker in makers:
            stage_of(maker.kind).check_use(where, maker, head, recipe)
        has_maker = bool(makers)
        if head.data is not None and not has_maker:
            for path in [head.data] if isinstance(head.data, str) else head.data:
                _check_path(where, path, earlier)
        if head.prompts is not None and not self.own_prompts:
            expected = "it in an sft stage with data: other kinds keep the prompts that they have"
            raise BadInput(key=f"{where}.prompts", found=head.prompts, expected=expected)
        steps, epochs = _length(where, head) if self.has_length else (0, None)
        if epochs is not None and not has_maker and head.prompts is None:
            steps, epochs = steps_for(epochs, self.epoch(recipe, head.data), recipe.loop.groups_per_step), None
        return StageConfig(
            name=head.label,
            kind=head.kind,
            steps=steps,
            config=recipe,
            data=head.data,
            epochs=epochs,
            prompts=head.prompts,
        )


def stage_of(kind: str) -> Stage:
    stage: Stage = load(STAGES[kind])()
    return stage


def maker_of(config: RunConfig, stage: StageConfig) -> StageConfig | None:
    """The earlier stage whose trajectories `stage` trains on. None where `data` is a path, or null."""
    earlier = takewhile(lambda other: other.name != stage.name, config.stages)
    return next((maker for maker in earlier if maker.name == stage.data and stage_of(maker.kind).makes_data), None)


def needs_engines(config: RunConfig, stage: StageConfig) -> bool:
    """Whether rollout engines must run while `stage` does.

    They must where it plays. A stage with `data` also has its weights evaluated, before and after it, in a run that
    starts engines anyway.
    """
    return stage_of(stage.kind).needs_engines(stage) or (
        stage.data is not None and any(stage_of(other.kind).needs_engines(other) for other in config.stages)
    )


def list_training(config: RunConfig) -> list[StageConfig]:
    """The stages that train."""
    return [stage for stage in config.stages if stage_of(stage.kind).has_length]


def stages_with_rollouts(config: RunConfig) -> list[StageConfig]:
    """The stages that learn from what engines play: rl and stepwise."""
    return [stage for stage in list_training(config) if stage_of(stage.kind).plays]


def recipes_with_rollouts(config: RunConfig) -> list[RecipeConfig]:
    """Those of these stages: their reference model may have an engine of its own."""
    return [stage.config for stage in stages_with_rollouts(config)]


def check_name(where: str, head: StageKeys) -> None:
    if not all(letter.isalnum() or letter in "-_" for letter in head.label):
        raise BadInput(key=f"{where}.name", found=head.label, expected="letters, digits, - and _ : it names files")


def check_mixes(where: str, head: StageKeys, recipe: RecipeConfig) -> None:
    """Raises BadInput for several environments in a stage that knows one, or that cannot be trained together."""
    if not recipe.envs:
        return
    if stage_of(head.kind).mixes and head.data is None:
        return _check_streams_agree(where, recipe)
    data = " with data" * (head.data is not None)
    ways = " or ".join(f"envs={name}" for name in recipe.envs)
    names = ", ".join(recipe.envs)
    raise BadInput(
        f"a stage of kind {head.kind}{data} has one environment",
        where=where,
        key="envs",
        found=names,
        expected=f"{ways} in this stage",
    )


def _check_streams_agree(where: str, recipe: RecipeConfig) -> None:
    """One critic predicts the streams of a whole batch, each with its discount."""
    streams = {name: list(traits_of(share.reward).streams) for name, share in recipe.envs.items()}
    rewards = {config_key(share.reward) for share in recipe.envs.values()}
    with_any = [name for name, stream_names in streams.items() if stream_names]
    if with_any and len(rewards) > 1:
        raise BadInput(
            f"the reward of {with_any[0]} has the token stream {streams[with_any[0]][0]!r}, and the rewards differ",
            where=where,
            key="envs",
            found=", ".join(recipe.envs),
            expected="the same reward for all, or rewards without token streams",
        )


def check_optimizer(where: str, head: StageKeys, recipe: RecipeConfig, earlier: Sequence[StageConfig]) -> None:
    """Raises BadInput where the stage continues the optimizer of an earlier one, and only one of them has a critic."""
    training = [stage for stage in earlier if stage.steps or stage.epochs is not None]
    if recipe.learner.optimizer == "stage" or not training or not stage_of(head.kind).has_length:
        return
    before = training[-1]
    theirs, ours = (VALUES in make_algorithm(config.algorithm).needs for config in (before.config, recipe))
    if theirs != ours:
        has = "a critic, and this one none" if theirs else "no critic, and this one has one"
        raise BadInput(
            f"the optimizer of stage {before.name} has {has}",
            where=where,
            key="learner.optimizer",
            found="run",
            expected="the same, or learner.optimizer=stage",
        )


def check_response_length(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput where the length limit of the reward is above the longest response that generation allows."""
    limit = traits_of(recipe.reward).length_limit
    if limit is None:
        return
    rollout, window = recipe.rollout, recipe.engine.max_model_len
    turn, budget = rollout.max_turn_tokens, rollout.max_response_tokens
    if limit <= min(window, turn, budget or turn):  # in one message: the environment, which reads its data, is not made
        return
    messages = make_world(recipe.env).max_turns
    turn_key = f"rollout.max_turn_tokens={turn}" + f" in each of {messages} messages" * (messages > 1)
    ends = [(window, f"engine.max_model_len={window}"), (turn * messages, turn_key)]
    ends += [] if budget is None else [(budget, f"rollout.max_response_tokens={budget}")]
    most, key = min(ends)
    if limit > most:
        raise BadInput(
            where=where, key="reward.max_length", found=limit, expected=f"at most {key}, where a response ends"
        )


def check_tags(where: str, recipe: RecipeConfig) -> None:
    """A reward that is written for one way of calling a tool sees no call, and no result, of another."""
    world: Any = recipe.env
    protocol = PROTOCOLS.get(getattr(world, "protocol_name", None) or "")
    if problem := traits_of(recipe.reward).env_problem(world):
        raise BadInput(problem, where=where)
    looked_for: Inline | None = getattr(make_reward(recipe.reward), "inline", None)
    calls = protocol is not None and protocol.calls != 0 and getattr(world, "tools", True)
    if protocol is None or not calls or looked_for is None or protocol.inline == looked_for:
        return
    names = " or ".join(name for name, candidate in PROTOCOLS.items() if candidate.inline == looked_for)
    unseen = f"the tool of env.name={world.name!r} does not write (protocol {protocol.name})"
    raise BadInput(
        f"it looks for results in {looked_for.opening}, which {unseen}",
        where=where,
        key="reward.name",
        found=recipe.reward.name,
        expected=f"the protocol {names}, or another {'reward.tool' if hasattr(recipe.reward, 'tool') else 'reward'}",
    )


def scored_recipes(config: RunConfig, stage: StageConfig) -> list[Scored]:
    """The recipes whose rewards score episodes of the stage or of its evaluations, each with the tasks it scores."""
    kind, scored = stage_of(stage.kind), list[Scored]()
    if kind.plays and (kind.has_length or kind.makes_data):
        scored += [(recipe, make_world(recipe.env).tasks("train")) for recipe in stage.config.by_env.values()]
    if needs_engines(config, stage) and not kind.makes_data:
        scored += [(task_set.recipe, task_set.tasks) for task_set in sets_of(stage.config)]
    return scored


def check_columns(recipe: RecipeConfig, tasks: Sequence[Task]) -> None:
    """Whether the first task has what the reward asks of it, of a reward that can tell. Raises BadInput."""
    reward = make_reward(recipe.reward)
    if isinstance(reward, ChecksTask) and tasks:
        reward.check_task(tasks[0])


def check_judge(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput for keys of `reward.judge` that have no effect because no judge is given."""
    judge = judge_config_of(recipe.reward)
    if judge is None or judge.given:
        return
    factory = next((field.default_factory for field in fields(recipe.reward) if field.name == "judge"), MISSING)
    plain = JudgeConfig() if factory is MISSING else factory()
    if changed := [key for key, value in asdict(judge).items() if value != getattr(plain, key)]:
        key = changed[0]
        raise BadInput(
            "no judge is given",
            where=where,
            key=f"reward.judge.{key}",
            found=getattr(judge, key),
            expected="reward.judge.endpoint and .model, reward.judge.service, or reward.judge.model alone "
            "for one that the run serves itself",
        )


def steps_for(epochs: float, examples: int, groups_per_step: int) -> int:
    return math.ceil(epochs * examples / groups_per_step)


def describe_steps(stage: StageConfig) -> str:
    """ "10 steps x 32 = 320"."""
    count = stage.config.loop.groups_per_step
    return f"{stage.steps} steps x {count} = {stage.steps * count}"


def _check_path(where: str, data: str, earlier: Sequence[StageConfig]) -> None:
    """Raises BadInput for `data` that is neither a stage nor looks like a path. The path is opened only where it is
    used: a saved configuration may outlive its files."""
    names = [stage.name for stage in earlier if stage_of(stage.kind).makes_data]
    if Path(data).suffix or "/" in data or Path(data).exists():
        return
    hint = nearest(data, names, otherwise="")
    stages = f"one of the generate stages before it ({', '.join(names)})" if names else "a generate stage before it"
    raise BadInput(f"neither {stages} nor a file{hint}", key=f"{where}.data", found=data)


def _length(where: str, head: StageKeys) -> tuple[int, float | None]:
    """(steps, None) or (0, epochs)."""
    steps, epochs = head.steps, head.epochs
    if (steps is None) == (epochs is None):
        raise BadInput(where=where, expected="exactly one of steps and epochs")
    if steps is None:
        if not isinstance(epochs, (int, float)) or isinstance(epochs, bool) or not 0 <= epochs < float("inf"):
            raise BadInput(key=f"{where}.epochs", found=epochs, expected="a number, 0 or more")
        return 0, float(epochs)
    if not isinstance(steps, int) or isinstance(steps, bool) or steps < 0:
        raise BadInput(key=f"{where}.steps", found=steps, expected="a whole number, 0 or more")
    return steps, None
