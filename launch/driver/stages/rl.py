"""The `rl` kind: reinforcement learning on the environment's tasks. Its loop is in `launch.driver.stages.rl_loop`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from envs import REWARDS, make_world
from envs.protocols import PROTOCOLS
from envs.protocols.styles import STYLES, Style
from envs.rewards import traits_of
from launch.driver.evaluation.limits import check_evaluation_deadline
from launch.driver.evaluation.sets import episodes_of, plays_of
from launch.driver.run.run import Run
from launch.driver.stages.base import Stage, StageKeys, check_judge, check_response_length, check_tags
from launch.driver.stages.reads import LOOP
from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.base import REFERENCE
from rlsys.choices import choose
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.curriculum import levels
from rlsys.errors import BadInput
from rlsys.summaries import can_lack_signal, never_has_signal

TAG, BOX = "<answer>", "\\boxed{"
JUDGED = {"tag": (TAG,), "boxed": (BOX,), "message": ()}
# What must stand around an answer for a reward to see it; those that are not here read whole responses, or say so
# themselves.
READ: Mapping[str, Callable[[Any], tuple[str, ...]]] = {
    "answer": lambda config: (TAG,) if config.reads == "tag" else (),
    "icrl": lambda config: (TAG, BOX) if config.tool == "code" else (TAG,),
    "judged": lambda config: JUDGED[config.answer],
    "long_cot": lambda config: () if config.judge.given else (BOX,),  # a judge reads the whole response
    "research": lambda config: (TAG, BOX),
}
# These compare all that stands in the mark: a box in it is part of a wrong answer, but where it is all of it.
EXACT: Mapping[str, Callable[[Any, str], bool]] = {
    "answer": lambda config, text: config.reads == "tag" and f"{TAG}{BOX}" not in text,
    "icrl": lambda config, _: config.tool == "search",
}


class RL(Stage):
    algorithm = "grpo"
    recipe_algorithm = True
    plays = True
    mixes = True
    reads = ("curriculum", *LOOP)

    def check(self, where: str, head: StageKeys, recipe: RecipeConfig) -> None:
        algorithm: Any = recipe.algorithm
        if isinstance(algorithm, choose("algorithm", ALGORITHMS, "dpo").schema):
            raise BadInput(
                "an rl stage makes no preference pairs",
                where=where,
                key="algorithm.name",
                found="dpo",
                expected="a generate stage, and then one of kind dpo with its name as data",
            )
        if reason := traits_of(recipe.reward).why_evaluation_only:
            raise BadInput(reason, where=where)
        _check_streams(where, recipe)
        _check_signal(where, recipe)
        _check_teacher(where, recipe)
        recipe.window.check(where, recipe)
        if recipe.rollout.top_p != 1.0:
            raise BadInput(
                where=where,
                key="rollout.top_p",
                found=recipe.rollout.top_p,
                expected="1 in an rl stage, where the engine's log-probabilities would be of the cut "
                "distribution and the learner's of the whole one",
            )
        check_response_length(where, recipe)
        check_tags(where, recipe)
        check_marks(where, recipe)
        check_judge(where, recipe)
        every, saved = recipe.eval.every, recipe.checkpoint.every
        if recipe.checkpoint.best is not None and (every % saved if saved is not None else every):
            raise BadInput(
                f"checkpoint.best={recipe.checkpoint.best!r} can only keep what was saved",
                where=where,
                key="eval.every",
                found=every,
                expected="0, or checkpoint.every" if saved is None else f"a multiple of checkpoint.every={saved}",
            )
        if head.data is not None:
            raise BadInput(
                "an rl stage plays env's tasks",
                key=f"{where}.data",
                found=head.data,
                expected="env.data, or another kind, such as stepwise for the states of recorded trajectories",
            )

    def midway(self, stage: StageConfig) -> dict[str, Any]:
        group_keys = {"loop.group_size": stage.config.loop.group_size}
        curricula = {f"curriculum.{key}": value for key, value in asdict(stage.config.curriculum).items()}
        for name, share in stage.config.envs.items():
            curricula |= {f"envs.{name}.curriculum.{key}": value for key, value in asdict(share.curriculum).items()}
        return super().midway(stage) | group_keys | curricula

    def arithmetic(self, config: RunConfig, stage: StageConfig) -> list[str]:
        loop = stage.config.loop
        episodes = loop.groups_per_step * loop.group_size
        return [
            *super().arithmetic(config, stage),
            self.evaluations(stage),
            *describe_curricula(stage.config),
            f"trajectories per step = {loop.groups_per_step} groups x {loop.group_size} = {episodes}",
            f"slots = {loop.groups_per_step} x (1 + lag {loop.max_policy_lag}) = {loop.slots} groups open",
        ]

    def evaluations(self, stage: StageConfig) -> str:
        every = stage.config.eval.every
        during = max(stage.steps - 1, 0) // every if every else 0
        evaluated = episodes_of(plays_of(stage.config))
        return f"evaluations = before, after and {during} during training, {evaluated} episodes each"

    def ready(self, config: RunConfig, stage: StageConfig) -> None:
        super().ready(config, stage)
        check_evaluation_deadline(f"stages.{stage.name}", stage.config)
        for recipe in stage.config.by_env.values():
            list_levels(recipe)

    async def run(self, run: Run, stage: StageConfig) -> None:
        from launch.driver.stages.rl_loop import rl_loop  # Ray and torch behind it: the keys are checked without

        await rl_loop(run, stage)


def list_levels(recipe: RecipeConfig) -> dict[str, list[int]]:
    """The levels of its curriculum, with their tasks; {} for one without. Raises BadInput where the tasks have none."""
    config, world = recipe.curriculum, make_world(recipe.env)
    return {} if config.name == "uniform" else levels(config, world.tasks("train"), world.level)


def describe_curricula(recipe: RecipeConfig) -> list[str]:
    """Those with levels, for each environment."""
    lines = []
    for name, config in recipe.by_env.items():
        by_level = list_levels(config)
        sizes = ", ".join(f"{level} ({len(indices)} tasks)" for level, indices in by_level.items())
        of = f"envs.{name}." * bool(name)
        lines += [f"{of}curriculum = {config.curriculum.name}, of the levels {sizes}"] if by_level else []
    return lines


def _check_streams(where: str, recipe: RecipeConfig) -> None:
    """Rewards of single tokens reach a gradient only through an algorithm that reads them."""
    for stream, without in traits_of(recipe.reward).streams.items():
        name = recipe.algorithm.name
        if not _reads_streams(name):
            reading = " or ".join(algorithm for algorithm in ALGORITHMS if _reads_streams(algorithm))
            raise BadInput(
                f"algorithm.name={name!r} does not read its token stream {stream!r}",
                where=where,
                key="reward.name",
                found=recipe.reward.name,
                expected=f"{without}, or algorithm.name={reading}",
            )
        lam = getattr(recipe.algorithm, "lam", 1.0)  # of an algorithm whose critic looks several steps ahead (GAE)
        if lam != 1:
            raise BadInput(
                where=where,
                key="algorithm.lam",
                found=lam,
                expected="1 for a reward with token streams, where one critic cannot discount by two "
                f"factors; {without} leaves {stream!r} out",
            )


def _check_signal(where: str, recipe: RecipeConfig) -> None:
    """What the algorithm of a stage could never learn from, and what waits for groups that it cannot have."""
    loop, name = recipe.loop, recipe.algorithm.name
    if loop.group_size == 1 and never_has_signal(make_algorithm(recipe.algorithm), 1):
        raise BadInput(
            where=where,
            key="loop.group_size",
            found=1,
            expected=f"at least 2 with algorithm.name={name!r}, which compares siblings",
        )
    curriculum = recipe.curriculum.name
    for key, setting, asks in (
        ("loop.oversample", loop.oversample, loop.oversample > 1),
        ("curriculum.name", curriculum, curriculum == "difficulty"),
    ):
        if asks and not can_lack_signal(make_algorithm(recipe.algorithm), loop.group_size):
            raise BadInput(
                f"it looks for groups without signal, and algorithm.name={name!r} as it is set learns from every group",
                where=where,
                key=key,
                found=setting,
                expected=f"{'1' if key == 'loop.oversample' else 'another curriculum'}, or an algorithm with "
                "a baseline of the group, such as grpo",
            )


def _check_teacher(where: str, recipe: RecipeConfig) -> None:
    """Another model as the reference is needed by some algorithms, and without a KL term read by no other."""
    algorithm, learner, name = make_algorithm(recipe.algorithm), recipe.learner, recipe.algorithm.name
    if algorithm.needs_teacher and learner.teacher is None:
        expected = f"a folder or hub name: with algorithm.name={name!r} the reference is a teacher"
    elif learner.teacher is not None and REFERENCE not in algorithm.needs:
        expected = f"stage: algorithm.name={name!r} looks at no reference where algorithm.kl_coef is 0"
    elif learner.serve_reference and recipe.rollout.temperature != 1.0:
        raise BadInput(
            "an engine gives log-probs at temperature 1, and the policy's are compared at that of its rollouts",
            where=where,
            key="learner.serve_reference",
            found=True,
            expected=f"false, or rollout.temperature=1.0 instead of {recipe.rollout.temperature:g}",
        )
    else:
        return
    raise BadInput(where=where, key="learner.reference", found=learner.reference, expected=expected)


def _reads_streams(name: str) -> bool:
    return bool(getattr(choose("algorithm", ALGORITHMS, name).build, "reads_streams", False))


def check_marks(where: str, recipe: RecipeConfig) -> None:
    """Whether the reward reads the answer where the environment's prompt asks for it.

    Raises BadInput for a reward to which every answer would be none.
    """
    reward, form = recipe.reward, answer_form(recipe.env)
    if form is None or finds_answer(reward, form):
        return
    marks = READ[reward.name](reward)
    how = next((mark for mark in marks if mark not in form), f"{TAG} alone")
    if _style(recipe.env) is not None:
        ways = [f"env.style={name}" for name, style in STYLES.items() if finds_answer(reward, style.write("x"))]
        asks = f"env.style={recipe.env.style!r}"
    else:
        names = [name for name in READ if finds_answer(choose("reward", REWARDS, name).schema(), form)]
        ways = [f"reward.name={name}" for name in names]
        asks = f"env.name={recipe.env.name!r} (protocol {recipe.env.protocol_name})"
    expected = " or ".join(ways or ["another reward"])
    says = f"reward.name={reward.name!r} reads an answer in {how}, and {asks} asks for {form!r}"
    raise BadInput(says, where=where, expected=expected)


def finds_answer(reward: Any, text: str) -> bool:
    """Whether a reward finds the answer in a text that is written like this one. True where that is unknown."""
    if reward.name not in READ:
        return True
    marks = READ[reward.name](reward)
    exact = reward.name in EXACT and EXACT[reward.name](reward, text)
    return all(mark in text for mark in marks) and not (exact and BOX in text)


def answer_form(env: Any) -> str | None:
    """How the answer x is written; None where the environment has no rule for it, or leaves it to its prompt."""
    style, protocol = _style(env), PROTOCOLS.get(getattr(env, "protocol_name", None) or "")
    if style is not None:
        return style.write("x")
    if protocol is None or BOX in (getattr(env, "instruction", None) or ""):
        return None  # the user's own words, which ask for a box inside the protocol's marks or outside them
    return protocol.write_answer("x")


def _style(env: Any) -> Style | None:
    style = STYLES.get(getattr(env, "style", None) or "free")
    return None if style is STYLES["free"] else style
