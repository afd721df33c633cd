"""Signs of episodes and their rewards: each function is a sentence with the key to turn where the newest row has it."""

from __future__ import annotations

from itertools import starmap

from envs.mixture import parts_of
from launch.checks.deadlines import shortest_episode_s
from launch.driver.observe import thresholds
from launch.driver.observe.cures import now, slower
from launch.driver.observe.health_rows import HealthRow
from launch.driver.observe.history import History
from rlsys.config.recipe import RecipeConfig

NOTHING = "nothing was trained: "
STAGE = "an sft stage before"
SHOW = f"try {STAGE}"
READABLE = f"{SHOW}, or look at the chat template (--dry-run shows a prompt) and at env.*"


def cut(history: History, row: HealthRow) -> str:
    """Many episodes ended at a token limit, and they do not become fewer."""
    share = history.cut.share
    if share < thresholds.CUT or history.cut.falls:
        return ""
    text = f"{share:.0%} of the episodes were cut off by a token limit"
    if worse := history.regression(row):
        return f"{text}, and {worse}: {slower(history.setting.recipe)}"
    return f"{text}: raise {_token_limit(history.setting.recipe, row)}"


def time_limit(history: History, row: HealthRow) -> str:
    """Time cuts off the longest answers, so that shorter ones are learned from."""
    if row.late < thresholds.LATE:
        return ""
    text = f"{row.late:.1%} of the episodes were not over in time, the longest ones: shorter answers are learned from"
    return f"{text}: raise {_episode_timeout(history.setting.recipe)}, or lower rollout.max_turn_tokens"


def timed_out(history: History, row: HealthRow) -> str:
    """Something that an episode waits for has a deadline of its own, which passed, and the episode has no reward."""
    share = row.timeouts / row.episodes if row.episodes else 0.0
    if share < thresholds.LATE:
        return ""
    text = f"{share:.1%} of the episodes failed at a time limit (failures/timeout)"
    keys = f"the time limits of env.*, reward.* and {_episode_timeout(history.setting.recipe)}"
    return f"{text}: trajectories name the tool, the judge or the grader that was late; raise what it has, of {keys}"


def untrained(history: History, row: HealthRow) -> str:
    """No token was trained."""
    if row.trained != 0:
        return ""
    if row.optimizer_steps > 0:
        return "no optimizer step was taken, for no gradient was finite: lower learner.lr, or look at the reward"
    if row.failed and not row.filtered:
        return f"{NOTHING}of {row.failed:g} groups none could be graded (rows: failures/*)"
    if not row.filtered:
        return ""
    if row.stale > 0:
        limit = history.setting.recipe.loop.max_token_lag
        return f"{NOTHING}all tokens with signal are older than loop.max_token_lag={limit}"
    rewards = f"rewards from {row.reward_min or 0.0:.3f} to {row.reward_max or 0.0:.3f}"
    why, cure = _no_signal(history, row)
    return f"{NOTHING}all {row.filtered:g} groups are without signal ({rewards}): {why}; {cure}"


def starved(history: History, row: HealthRow) -> str:
    """Nearly no group has signal, and what is trained comes from the few."""
    groups = row.with_signal + row.filtered + row.failed
    if not row.trained or not row.with_signal or row.filtered < thresholds.NEARLY_ALL * groups:
        return ""
    why, cure = _no_signal(history, row)
    return f"{row.filtered:g} of {groups:g} groups are without signal: {why}; {cure}"


def _no_signal(history: History, row: HealthRow) -> tuple[str, str]:
    """Why groups are without signal, and what helps."""
    setting, recipe = history.setting, history.setting.recipe
    temperature, size = recipe.rollout.temperature, recipe.loop.group_size
    more = f"a higher {now('rollout.temperature', temperature)} or {now('loop.group_size', size)}"
    right = history.solved_means(row)
    same = row.reward_min == row.reward_max  # then a mean is what every episode has
    if worse := history.regression(row):
        return worse, slower(recipe)
    if row.cut >= thresholds.NEARLY_ALL:
        return "nearly all are cut off", f"raise {_token_limit(recipe, row)}"
    look = _look_at_reward(setting.run, row.step) if same else ""
    if row.malformed >= row.cut and row.malformed + row.cut >= thresholds.NEARLY_ALL:
        return _unreadable(row), f"{READABLE}{look}"
    if right and all(history.is_near_zero(mean) or (same and mean < 0) for mean in right.values()):
        none = "no" if all(mean == 0 or same for mean in right.values()) else "hardly any"
        return (
            f"{none} episode solved its task",
            f"give {_examples(recipe)}easier tasks (env.*), {STAGE}, or {more}{look}",
        )
    if any(mean > setting.solved_by[part] for part, mean in right.items()) and (same or _at_top(row)):
        return f"{'' if same else 'nearly '}every episode solved its task", "give harder tasks (env.*)"
    why = "" if same else "all siblings of each have one reward, "
    return f"{why}each task is too easy or too hard", f"give others (env.*), or {more}{look}"


def _at_top(row: HealthRow) -> bool:
    if row.reward is None or row.reward_min is None or row.reward_max is None:
        return False
    return row.reward >= row.reward_max - thresholds.HARDLY * (row.reward_max - row.reward_min)


def unsolved(history: History, row: HealthRow) -> str:
    """The reward pays, and not for solving anything."""
    right = history.solved_means(row)
    pays = {name: mean for name, mean in row.parts.items() if mean > 0 and name not in right}
    if not pays or not right or not all(map(history.is_near_zero, right.values())) or history.regression(row):
        return ""
    kind = "format only" if set(pays) == {"format"} else "not for solving tasks"
    paid_parts = ", ".join(f"{name} {mean:.3f}" for name, mean in pays.items())
    zeros = ", ".join(f"{name} {mean:.2g}" for name, mean in right.items())
    cure = f"try {_examples(history.setting.recipe)}{STAGE}, easier tasks (env.*), or other reward.*"
    return f"the reward is {kind} ({paid_parts}; {zeros}): {cure}"


def silent(history: History, row: HealthRow) -> str:
    """No tool was called: a call is answered, and what is answered is not the last message."""
    most = history.setting.max_turns
    if most < 2 or not 0 < row.turns <= thresholds.ONE_MESSAGE or row.cut >= thresholds.NEARLY_ALL:
        return ""
    if row.malformed >= thresholds.NEARLY_ALL or history.regression(row):
        return ""  # that says more
    if any(part.name == "agent" for part in parts_of(history.setting.recipe.env)):
        return ""  # which asks as often as it is written to
    every = "every" if row.turns <= 1 else "nearly every"
    first = f"{every} episode ended with the first of the {most} messages that it may have"
    none = "no" if row.turns <= 1 else "hardly any"
    return f"{none} tool was called, {first}: {SHOW}, or a reward for calls (reward.*)"


def malformed(history: History, row: HealthRow) -> str:
    """The environment cannot read what the model writes."""
    if row.malformed < thresholds.NEARLY_ALL:
        return ""
    if worse := history.regression(row):
        return f"{row.malformed:.0%} of the episodes are malformed, and {worse}: {slower(history.setting.recipe)}"
    return f"{_unreadable(row)}: {READABLE}"


def _unreadable(row: HealthRow) -> str:
    also_cut = f" and {row.cut:.0%} cut off" if row.cut else ""
    return f"{row.malformed:.0%} of the episodes are malformed{also_cut}, the model does not write what is read"


def raised(history: History, row: HealthRow) -> str:
    """The user's own code raises; that the episode went well when it was played again hides it."""
    if row.raised < thresholds.RAISED:
        return ""
    first = f"; the first: {history.raised}" if history.raised else " (rows: failures/data, failures/retried)"
    broke = f"{row.raised:.1%} of the episodes broke on their own code or data"
    if row.agent_errors:  # what the policy said may have caused them: they have a reward
        return f"{broke}, {row.agent_errors:.1%} on errors of agents, which count with their reward{first}"
    return f"{broke}, and were played again or left out{first}"


# -- the way out -------------------------------------------------------------------------------------------------------


def _token_limit(recipe: RecipeConfig, row: HealthRow) -> str:
    """The key that a single message ran into; where there were several messages, all that it can have been."""
    rollout, window = recipe.rollout, recipe.engine.max_model_len
    limits = {"max_turn_tokens": rollout.max_turn_tokens, "max_response_tokens": rollout.max_response_tokens}
    keys = {f"rollout.{key}": most for key, most in limits.items() if most is not None}
    if row.turns == 1:
        reached = {key: most for key, most in keys.items() if row.longest >= most}
        return " and ".join(starmap(now, reached.items())) or now("engine.max_model_len", window)
    return " or ".join(starmap(now, (keys | {"engine.max_model_len": window}).items()))


def _episode_timeout(recipe: RecipeConfig) -> str:
    """With the value that holds, given or derived."""
    return now("rollout.episode_timeout_s", shortest_episode_s([recipe]))


def _examples(recipe: RecipeConfig) -> str:
    """Where the world can show some in its prompt."""
    envs = (env_recipe.env for env_recipe in recipe.by_env.values())
    return "examples in the prompt (env.demonstrations), " if any(hasattr(e, "demonstrations") for e in envs) else ""


def _look_at_reward(run: str, step: int) -> str:
    """All rewards are one number: a reward that reads something else than the model writes gives that too.

    run: its directory; "" where it has none.
    """
    if not run:
        return ""
    name = f"{run}/trajectories/step-{step:06d}.jsonl"
    score = f"rlsys score {run}/config.yaml --input {name} --explain 1"
    return f"; or look whether the reward reads what the model writes: {score}"
