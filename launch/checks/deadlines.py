"""A recipe's deadlines, and how much it plays at once: as a key says, else as `rlsys.deadlines` derives them.

A recipe with several environments is given here in parts (`RecipeConfig.by_env`).
"""

from __future__ import annotations

from collections.abc import Iterable

from envs import make_world
from launch.checks.model_size import model_bytes, other_model_bytes
from rlsys import deadlines
from rlsys.config.recipe import RecipeConfig
from rlsys.deadlines import Derived
from rlsys.system.device import Device

GIVEN = "given"


def attempt_s(recipe: RecipeConfig, turn_tokens: int | None = None, response_tokens: int | None = None) -> Derived:
    """Deadline of an attempt at an episode. The tokens are an evaluation's own limits, in place of `rollout`'s."""
    rollout = recipe.rollout
    if rollout.episode_timeout_s is not None:
        return Derived(rollout.episode_timeout_s, GIVEN)
    world = make_world(recipe.env)
    tokens = longest_response(recipe, world.max_turns, turn_tokens, response_tokens)
    return deadlines.episode_s(world.max_turns, world.reply_s, tokens)


def short_timeout(
    recipe: RecipeConfig, turn_tokens: int | None = None, response_tokens: int | None = None
) -> str | None:
    """What is said of an `episode_timeout_s` that is given and shorter than the longest responses may take.

    The tokens are an evaluation's own limits.
    """
    timeout_s, world = recipe.rollout.episode_timeout_s, make_world(recipe.env)
    tokens = longest_response(recipe, world.max_turns, turn_tokens, response_tokens)
    waits_s = min(world.max_turns - 1, deadlines.MOST_LATE) * world.reply_s
    work_s = tokens / deadlines.SLOW_TOKENS + waits_s
    if timeout_s is None or timeout_s >= work_s:
        return None
    where = "" if timeout_s > waits_s else f" where replies take the {waits_s:g} s that they may, else"
    rate = tokens / (timeout_s - waits_s if timeout_s > waits_s else timeout_s)
    work = deadlines.episode_s(world.max_turns, world.reply_s, tokens)
    return (
        f"rollout.episode_timeout_s={timeout_s:g} cuts off the longest responses{where} where an answer "
        f"gets fewer than {rate:.0f} tokens a second: {work.value:,.0f} s would do at "
        f"{deadlines.SLOW_TOKENS:g} ({work.said})"
    )


def longest_response(
    recipe: RecipeConfig, messages: int, turn_tokens: int | None = None, response_tokens: int | None = None
) -> int:
    """Tokens."""
    rollout, window = recipe.rollout, recipe.engine.max_model_len
    turn = turn_tokens or rollout.max_turn_tokens
    return min(messages * turn, response_tokens or rollout.max_response_tokens or window, window)


def shortest_episode_s(recipes: Iterable[RecipeConfig]) -> float:
    return min(attempt_s(env_recipe).value for recipe in recipes for env_recipe in recipe.by_env.values())


def longest_attempt_s(recipe: RecipeConfig) -> float:
    """Of the episodes of a stage, in whichever of its environments."""
    return max(attempt_s(env_recipe).value for env_recipe in recipe.by_env.values())


def at_once(recipe: RecipeConfig, concurrency: int | None, playing: Iterable[RecipeConfig]) -> Derived:
    """How many episodes the engines play at once. concurrency: of `eval` or `generate`. playing: whose episodes."""
    if concurrency is not None:
        return Derived(concurrency, GIVEN)
    messages = max((make_world(env_recipe.env).max_turns for env_recipe in playing), default=1)
    return deadlines.episodes_at_once(recipe.rollout.workers, recipe.engine.max_num_seqs, messages)


def evaluated_at_once(recipe: RecipeConfig, playing: Iterable[RecipeConfig], *, served: bool = False) -> int:
    """Of an evaluation. served: by a model at an address."""
    concurrency = recipe.eval.concurrency
    return (concurrency or deadlines.SERVED_AT_ONCE) if served else int(at_once(recipe, concurrency, playing).value)


def generated_at_once(recipe: RecipeConfig) -> int:
    """Of what is generated to be trained on, by the engines or by a teacher at an address."""
    concurrency = recipe.generate.concurrency
    taught = recipe.generate.teacher.given
    return (concurrency or deadlines.SERVED_AT_ONCE) if taught else int(at_once(recipe, concurrency, [recipe]).value)


def load_deadline(timeout_s: float | None, size: int) -> Derived:
    """Of a part that loads so many bytes of models. timeout_s: `start_timeout_s` of `rollout` or `learner`."""
    return Derived(timeout_s, GIVEN) if timeout_s is not None else deadlines.start_s(size)


def start_of_engine(recipe: RecipeConfig, device: Device) -> Derived:
    return load_deadline(recipe.rollout.start_timeout_s, model_bytes(recipe, device))


def start_of_rank(recipe: RecipeConfig, device: Device, teachers: Iterable[str] = ()) -> Derived:
    """Of the start and of the loading of a stage's models: the policy and its reference, which may be another."""
    policy = model_bytes(recipe, device)
    return load_deadline(recipe.learner.start_timeout_s, policy + max([policy, *map(other_model_bytes, teachers)]))
