"""Signs of the policy, its updates and the GPUs that they take: each function is a sentence with the key to turn where
the newest row has it."""

from __future__ import annotations

from typing import Literal

from launch.driver.observe import thresholds
from launch.driver.observe.cures import now, slower
from launch.driver.observe.health_rows import HealthRow
from launch.driver.observe.history import History


def collapsed(history: History, row: HealthRow) -> str:
    """Answers no longer differ, and are not right."""
    first, level = history.first_entropy, history.level
    if row.entropy is None or not first or history.rewards is None or row.reward is None or level is None:
        return ""
    low, high = history.rewards
    if row.entropy >= thresholds.COLLAPSED * first or level.best.step == row.step:  # its rewards still rise
        return ""
    if high - row.reward <= thresholds.UNLEARNED * (high - low):
        return ""  # it has learned what there was to be learned
    fell = f"entropy fell from {first:.3g} to {row.entropy:.3g} nats a token"
    at = f"mean reward {row.reward:.3f}, highest {high:.3f}"
    return f"{fell}, {at}: raise algorithm.entropy_coef or algorithm.kl_coef, or lower learner.lr"


def scattered(history: History, row: HealthRow) -> str:
    """Entropy rises while the reward falls: the answers become noise."""
    first, level = history.first_entropy, history.level
    if row.entropy is None or first is None or row.reward is None or level is None or history.rewards is None:
        return ""
    (low, high), best = history.rewards, level.best
    most = max(first + thresholds.RISEN, thresholds.GREW * first)
    if row.entropy < most or best.mean - row.reward <= thresholds.UNLEARNED * (high - low):
        return ""
    rose = f"entropy rose from {first:.3g} to {row.entropy:.3g} nats a token"
    at = f"mean reward {row.reward:.3f}, {best.mean:.3f} at step {best.step}"
    return f"{rose}, {at}: {slower(history.setting.recipe)}"


def fell(history: History, row: HealthRow) -> str:
    """The mean reward is far below its own best, and farther than chance takes it."""
    level, recipe = history.level, history.setting.recipe
    if level is None or not history.reward_has_fallen(row):
        return ""
    harder = "" if recipe.curriculum.name == "uniform" else ", unless the curriculum gives harder tasks"
    text = f"the mean reward fell from {level.best.mean:.3f} at step {level.best.step} to {level.now.mean:.3f}"
    return f"{text}: {slower(recipe)}{harder}"


def blown_up(history: History, row: HealthRow) -> str:
    """In one step, and what follows may have no rows with a KL any more."""
    if row.kl is None or row.kl <= thresholds.BLOWN_UP:
        return ""
    text = f"the policy blew up, its KL from the reference is {row.kl:.3g} nats a token"
    return f"{text}: {slower(history.setting.recipe)}"


def drifted(history: History, row: HealthRow) -> str:
    first = history.first_entropy
    far = max(thresholds.DRIFTED * (first or 0.0), thresholds.DRIFTED_LEAST)
    if row.kl is None or not far < row.kl <= thresholds.BLOWN_UP:
        return ""
    note = "" if first is None else f" (entropy at the stage's beginning: {first:.3g})"
    return f"the KL from the reference is {row.kl:.3g} nats a token{note}: {slower(history.setting.recipe)}"


def clipped(history: History, row: HealthRow) -> str:
    """Much of what is trained has no gradient, for the weights have moved too far from those that sampled it."""
    share, recipe = row.clip_low + row.clip_high, history.setting.recipe
    if share >= thresholds.CLIPPED:
        text = f"{share:.0%} of the trained tokens are clipped (clip/*) and have no gradient"
    elif row.outside >= thresholds.OUTSIDE:
        text = f"{row.outside:.0%} of the trained tokens have a ratio outside 0.9 to 1.1 (ratio/outside_0.1)"
    else:
        return ""
    rate, lag = now("learner.lr", recipe.learner.lr), now("loop.max_policy_lag", recipe.loop.max_policy_lag)
    return f"{text}: lower {rate} or {lag}"


def mismatch(history: History, row: HealthRow) -> str:
    """The engine computes something else than the learner, on the tokens that are trained."""
    most = max(thresholds.MISMATCH[history.setting.dtype], row.gap_limit)  # the second where engines are quantised
    if row.gap is None or row.gap <= most:
        return ""
    first = history.first_gap if history.first_gap is not None else row.gap
    text = f"engine and learner differ by {row.gap:.3g} nats a token on what is trained (mismatch/mean)"
    rounding = f"rounding alone is less than {most:.3g}, the stage began with {first:.3g}"
    cures = ["look at engine.*", *_correct_loss(history)]
    return f"{text}; {rounding}: {', or '.join(cures)}"


def _correct_loss(history: History) -> list[str]:
    """Nothing where the loss is corrected already, as by default in some algorithms, or cannot be."""
    is_correctable = getattr(history.setting.recipe.algorithm, "is_correction", None) == "none"
    return ["correct the loss with algorithm.is_correction=tis"] if is_correctable else []


def mismatch_by_depth(history: History, row: HealthRow) -> str:
    """The same where the context is long."""
    if len(row.depths) < 2:
        return ""
    (near, first), (far, last) = row.depths[0], row.depths[-1]
    if last < thresholds.GREW * first or last < thresholds.LEAST_GAP:
        return ""
    is_exact = history.setting.recipe.model.fp32_head
    cures = ["give both the same RoPE and window", *(_correct_loss(history) if is_exact else ["model.fp32_head=true"])]
    text = f"engine and learner differ more in long contexts: {first:.3g} nats a token at {near} tokens, {last:.3g}"
    return f"{text} at {far} (mismatch/depth_*): {', or '.join(cures)}"


def grad_norm(history: History, row: HealthRow) -> str:
    clip = history.setting.recipe.learner.clip_grad
    if row.grad_norm is None or row.grad_norm <= thresholds.STEEP * clip:
        return ""
    norm = f"the gradient's norm is {row.grad_norm:.3g}, of which learner.clip_grad={clip:g} is left"
    return f"{norm}: {slower(history.setting.recipe)}, or scale the reward (reward.*)"


def lopsided(history: History, row: HealthRow) -> str:
    """On GPUs: engines wait for the learner, or it for them, much more than the other way round."""
    idle, learner_idle, recipe = history.engines_idle, row.learner_idle, history.setting.recipe
    if idle is None or learner_idle is None:
        return ""
    rollout, learner = recipe.rollout, recipe.learner
    shares = f"the engines were idle for {idle:.0%} of the step and the learner for {learner_idle:.0%}"
    ranks, workers = now("learner.ranks", learner.ranks), now("rollout.workers", rollout.workers)
    side = lacks_gpus(idle, learner_idle)
    if side == "learner" and rollout.workers > 1:
        return f"{shares}: move GPUs to the learner (raise {ranks}, lower {workers})"
    if side == "engines" and learner.ranks > learner.sequence_parallel:
        return f"{shares}: move GPUs to the engines (raise {workers}, lower {ranks})"
    return ""


def lacks_gpus(engines_idle: float, learner_idle: float) -> Literal["engines", "learner"] | None:
    """The side for which the other one waits, by shares of the time; None where neither does by much."""
    if abs(engines_idle - learner_idle) <= thresholds.LOPSIDED:
        return None
    return "learner" if engines_idle > learner_idle else "engines"
