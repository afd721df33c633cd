"""Signs that a row shows by itself, or next to what the stage began with. Each is a sentence where the row has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launch.checks.deadlines import shortest_episode_s
from launch.driver.observe import levels
from launch.driver.observe.health_rows import HealthRow
from rlsys.config.recipe import RecipeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSetting:
    """What a stage was configured to do, as far as it explains its rows."""

    recipe: RecipeConfig
    max_turns: int  # messages that the model may write in one episode
    solved_by: Mapping[str, float]  # the reward's (`envs.rewards`); empty where it does not say
    gpus: bool = False  # engines and ranks have their own GPUs
    run: str = ""  # its directory, where episodes can be looked at
    dtype: str = "float32"  # of the model


@dataclass(slots=True, kw_only=True)
class Beginning:
    """What the first row of the stage that says it has; None before."""

    entropy: float | None = None
    gap: float | None = None  # between engine and learner

    def see(self, row: HealthRow) -> None:
        self.entropy = row.entropy if self.entropy is None else self.entropy
        self.gap = row.gap if self.gap is None else self.gap


def time_limit(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    """Time cuts off the longest answers, so that shorter ones are learned from."""
    if row.late < levels.LATE:
        return ""
    text = f"{row.late:.1%} of the episodes were not over in time, the longest ones: shorter answers are learned from"
    return f"{text}: raise {_episode_key(setting)}, or lower rollout.max_turn_tokens"


def timed_out(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    """Something that an episode waits for has a deadline of its own, which passed, and the episode has no reward."""
    share = row.timeouts / row.episodes if row.episodes else 0.0
    if share < levels.LATE:
        return ""
    text = f"{share:.1%} of the episodes failed at a time limit (failures/timeout)"
    keys = f"the time limits of env.*, reward.* and {_episode_key(setting)}"
    return f"{text}: trajectories name the tool, the judge or the grader that was late; raise what it has, of {keys}"


def _episode_key(setting: HealthSetting) -> str:
    """With the value that holds, given or derived."""
    return now("rollout.episode_timeout_s", shortest_episode_s([setting.recipe]))


def blown_up(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    """In one step, and what follows may have no rows with a KL any more."""
    if row.kl is None or row.kl <= levels.BLOWN_UP:
        return ""
    return f"the policy blew up, its KL from the reference is {row.kl:.3g} nats a token: {slower(setting.recipe)}"


def drifted(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    far = max(levels.DRIFTED * (begin.entropy or 0.0), levels.DRIFTED_LEAST)
    if row.kl is None or not far < row.kl <= levels.BLOWN_UP:
        return ""
    note = "" if begin.entropy is None else f" (entropy at the stage's beginning: {begin.entropy:.3g})"
    return f"the KL from the reference is {row.kl:.3g} nats a token{note}: {slower(setting.recipe)}"


def clipped(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    """Much of what is trained has no gradient, for the weights have moved too far from those that sampled it."""
    clipped, loop = row.clip_low + row.clip_high, setting.recipe.loop
    if clipped >= levels.CLIPPED:
        text = f"{clipped:.0%} of the trained tokens are clipped (clip/*) and have no gradient"
    elif row.outside >= levels.OUTSIDE:
        text = f"{row.outside:.0%} of the trained tokens have a ratio outside 0.9 to 1.1 (ratio/outside_0.1)"
    else:
        return ""
    rate, lag = now("learner.lr", setting.recipe.learner.lr), now("loop.max_policy_lag", loop.max_policy_lag)
    return f"{text}: lower {rate} or {lag}"


def mismatch(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    """The engine computes something else than the learner, on the tokens that are trained."""
    most = max(levels.MISMATCH[setting.dtype], row.gap_limit)  # the second where engines are quantised
    if row.gap is None or row.gap <= most:
        return ""
    first = begin.gap if begin.gap is not None else row.gap
    text = f"engine and learner differ by {row.gap:.3g} nats a token on what is trained (mismatch/mean)"
    rounding = f"rounding alone is less than {most:.3g}, the stage began with {first:.3g}"
    return f"{text}; {rounding}: look at engine.*, or correct the loss with algorithm.is_correction=tis"


def mismatch_by_depth(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    """The same where the context is long."""
    if len(row.depths) < 2:
        return ""
    (near, first), (far, last) = row.depths[0], row.depths[-1]
    if last < levels.GREW * first or last < levels.LEAST_GAP:
        return ""
    text = f"engine and learner differ more in long contexts: {first:.3g} nats a token at {near} tokens, {last:.3g}"
    return f"{text} at {far} (mismatch/depth_*): give both the same RoPE and window, or model.fp32_head=true"


def grad_norm(setting: HealthSetting, begin: Beginning, row: HealthRow) -> str:
    clip = setting.recipe.learner.clip_grad
    if row.grad_norm is None or row.grad_norm <= levels.STEEP * clip:
        return ""
    norm = f"the gradient's norm is {row.grad_norm:.3g}, of which learner.clip_grad={clip:g} is left"
    return f"{norm}: {slower(setting.recipe)}, or scale the reward (reward.*)"


def now(key: str, value: float) -> str:
    """A key with what it is: not as `key=value`, which would be pasted as the cure."""
    return f"{key} (now {value:g})"


def slower(recipe: RecipeConfig) -> str:
    """The keys that hold a policy back."""
    coef = getattr(recipe.algorithm, "kl_coef", None)
    alternative = "" if coef is None else f", or raise {now('algorithm.kl_coef', coef)}"
    return f"lower {now('learner.lr', recipe.learner.lr)}{alternative}"


OF_ROWS: Mapping[str, Callable[[HealthSetting, Beginning, HealthRow], str]] = {
    "time_limit": time_limit,
    "timed_out": timed_out,
    "blown_up": blown_up,
    "drifted": drifted,
    "clipped": clipped,
    "mismatch": mismatch,
    "mismatch_by_depth": mismatch_by_depth,
    "grad_norm": grad_norm,
}
