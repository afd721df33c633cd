"""How long an evaluation beside training may take."""

from __future__ import annotations

from collections.abc import Mapping

from launch.checks.deadlines import GIVEN, evaluated_at_once, longest_attempt_s
from launch.driver.evaluation.sets import Play, episodes_of, plays_of, recipes_played
from launch.driver.observe.phases import FIRST
from rlsys.config.recipe import RecipeConfig
from rlsys.deadlines import Derived, evaluation_s
from rlsys.errors import require


def evaluation_deadline(recipe: RecipeConfig, plays: Mapping[str, Play]) -> Derived:
    """Seconds that an evaluation beside training may take: `eval.deadline_s`."""
    if recipe.eval.deadline_s is not None:
        return Derived(recipe.eval.deadline_s, GIVEN)
    at_once = evaluated_at_once(recipe, recipes_played(plays))
    return evaluation_s(episodes_of(plays), at_once, longest_episode_s(plays))


def longest_episode_s(plays: Mapping[str, Play]) -> float:
    return max(play.plan().timeout_s for play in plays.values())


def long_phases(recipe: RecipeConfig) -> dict[str, float]:
    """Seconds that phases of an rl step may well take (`launch.driver.observe.phases`).

    The first groups take as long as the longest episode, and those that were begun with them too; and where weights are
    held back for an evaluation, their publication takes as long as that may.
    """
    seconds = {f"{FIRST}wait_rollout": longest_attempt_s(recipe) * (1 + recipe.loop.max_policy_lag)}
    if recipe.eval.every and recipe.eval.hold_weights:
        seconds["publish_previous"] = evaluation_deadline(recipe, plays_of(recipe)).value
    return seconds


def check_evaluation_deadline(where: str, recipe: RecipeConfig) -> None:
    """Raises BadInput for a limit that one episode may outlast: what is cut then is what is long, and so more often
    wrong."""
    config = recipe.eval
    if not config.every or config.deadline_s is None:
        return
    longest = longest_episode_s(plays_of(recipe))
    expected = f"at least rollout.episode_timeout_s={longest:g}, or null"
    require(config.deadline_s >= longest, f"{where}: eval.deadline_s", config.deadline_s, expected)
