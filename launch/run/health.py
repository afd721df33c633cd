"""What is wrong with a stage that runs: sentences about its rows of metrics.jsonl, each with the key to turn.

Pure: rows in, sentences out. A sentence is said once, when what it names has held for PATIENCE steps in a row; at the
end it is said again, with the number of steps. It states what the rows show, and nothing where a key is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rlsys.config import RecipeConfig

PATIENCE = 3  # steps in a row
NEARLY_ALL = 0.9  # share of the episodes
COLLAPSED = 0.02  # of the entropy that the stage began with
LOPSIDED = 0.25  # by which the idle share of the engines and that of the learner differ
UNLEARNED = 0.25  # how far the mean reward is below the best one seen, as a share of the distance from the worst


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What of a row of metrics.jsonl is looked at here. None, or 0 for shares and counts: the row has it not."""

    step: int
    entropy: float | None = None
    reward: float | None = None  # mean
    reward_min: float | None = None
    reward_max: float | None = None
    turns: float = 0.0  # messages of the model, mean
    longest: float = 0.0  # tokens of an episode
    cut: float = 0.0  # share of the episodes
    trained: float | None = None  # tokens
    stale: float = 0.0  # tokens
    optimizer_steps: float = 0.0
    filtered: float = 0.0  # groups
    failed: float = 0.0  # groups
    busy: float | None = None  # seconds of all engines, cumulative
    alive: float | None = None  # seconds of all engines, cumulative
    learner_idle: float | None = None  # share of the step
    parts: Mapping[str, float] = field(default_factory=dict)  # of the reward, means


KEYS = {
    "step": "step",
    "entropy": "entropy/mean",
    "reward": "reward/mean",
    "reward_min": "reward/min",
    "reward_max": "reward/max",
    "turns": "episode/turns",
    "longest": "episode/tokens_max",
    "cut": "episode/token_limit",
    "trained": "tokens/trained",
    "stale": "tokens/stale",
    "optimizer_steps": "learner/steps",
    "filtered": "groups/filtered",
    "failed": "groups/failed",
    "busy": "engine/busy_s",
    "alive": "engine/alive_s",
    "learner_idle": "learner/idle_share",
}
PART = "reward/part/"


def read(metrics: Mapping[str, Any]) -> Row:
    parts = {key.removeprefix(PART): mean for key, mean in metrics.items() if key.startswith(PART)}
    return Row(parts=parts, **{name: metrics[key] for name, key in KEYS.items() if key in metrics})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a stage was told to do, as far as it explains its rows."""

    recipe: RecipeConfig
    max_turns: int  # messages that the model may write in one episode
    solved_by: Mapping[str, float]  # the reward's (`envs.rewards`); empty where it does not say
    gpus: bool = False  # engines and ranks have GPUs of their own


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, as `summary.json` and checkpoints have it."""

    stage: str
    what: str  # a name of SIGNS
    says: str
    first_step: int
    last_step: int
    steps: int  # in how many it held
    of: int  # the stage's so far

    def told(self) -> str:
        return f"in {self.steps} of {self.of} steps of stage {self.stage}, from step {self.first_step}: {self.says}"


class Watch:
    """Looks at the rows of one stage, in order."""

    def __init__(self, stage: str, setting: Setting) -> None:
        self._stage, self._setting = stage, setting
        self._streaks: dict[str, int] = {}
        self._entropy: float | None = None  # of the first row
        self._rewards: tuple[float, float] | None = None  # lowest and highest so far
        self._engines: tuple[float, float] | None = None  # busy and alive, as the row before says
        self._rows = 0
        self._found: dict[str, Finding] = {}

    def see(self, metrics: Mapping[str, Any]) -> list[str]:
        """What is worth saying after this row of metrics."""
        row = read(metrics)
        self._rows += 1
        if self._entropy is None:
            self._entropy = row.entropy
        if row.reward_min is not None and row.reward_max is not None:
            low, high = self._rewards or (row.reward_min, row.reward_max)
            self._rewards = min(low, row.reward_min), max(high, row.reward_max)
        new = []
        for what, sign in SIGNS.items():
            says = sign(self, row)
            self._streaks[what] = self._streaks.get(what, 0) + 1 if says else 0
            if says and self._note(what, says, row.step):
                new.append(f"{PATIENCE} steps in a row: {says}")
        return new

    def _note(self, what: str, says: str, step: int) -> bool:
        """Count this step where it has held long enough. True the first time."""
        streak, known = self._streaks[what], self._found.get(what)
        if streak < PATIENCE:
            return False
        more = PATIENCE if streak == PATIENCE else 1
        first, before = (known.first_step, known.steps) if known else (step - PATIENCE + 1, 0)
        self._found[what] = Finding(
            stage=self._stage, what=what, says=says, first_step=first, last_step=step, steps=before + more, of=0
        )
        return known is None

    def findings(self) -> list[Finding]:
        return [replace(finding, of=self._rows) for finding in self._found.values()]

    # -- signs: a sentence where the row has them ---------------------------------------------------------------------

    def cut(self, row: Row) -> str:
        """Nearly all episodes ended at a token limit."""
        if row.cut < NEARLY_ALL:
            return ""
        return f"{row.cut:.0%} of the episodes were cut off by a token limit: raise {self._limit(row)}"

    def _limit(self, row: Row) -> str:
        """The key that a single message ran into; where there were several messages, all that it can have been."""
        rollout, window = self._setting.recipe.rollout, self._setting.recipe.engine.max_model_len
        given = {"max_turn_tokens": rollout.max_turn_tokens, "max_response_tokens": rollout.max_response_tokens}
        keys = {f"rollout.{key}": most for key, most in given.items() if most is not None}
        if row.turns == 1:
            reached = {key: most for key, most in keys.items() if row.longest >= most}
            return " and ".join(f"{key}={most}" for key, most in reached.items()) or f"engine.max_model_len={window}"
        return " or ".join(f"{key}={most}" for key, most in (keys | {"engine.max_model_len": window}).items())

    def untrained(self, row: Row) -> str:
        """No token was trained."""
        if row.trained != 0:
            return ""
        if row.optimizer_steps > 0:
            return "no optimizer step was taken, for no gradient was finite: lower learner.lr, or look at the reward"
        if row.failed and not row.filtered:
            return f"{NOTHING}of {row.failed:g} groups none could be graded (rows: failures/*)"
        if not row.filtered:
            return ""
        loop = self._setting.recipe.loop
        if row.stale > 0:
            return f"{NOTHING}all tokens with signal are older than loop.max_token_lag={loop.max_token_lag}"
        rewards = f"rewards from {row.reward_min or 0.0:.3f} to {row.reward_max or 0.0:.3f}"
        why, cure = self._no_contrast(row)
        return f"{NOTHING}all {row.filtered:g} groups are without contrast ({rewards}): {why}; {cure}"

    def _no_contrast(self, row: Row) -> tuple[str, str]:
        warmth, size = self._setting.recipe.rollout.temperature, self._setting.recipe.loop.group_size
        more = f"a higher rollout.temperature={warmth:g} or loop.group_size={size}"
        right = self._right(row)
        same = row.reward_min == row.reward_max  # then a mean is what every episode has
        if self.cut(row):
            return "nearly all are cut off", f"raise {self._limit(row)}"
        if right and all(mean == 0 or (same and mean < 0) for mean in right.values()):
            return "no episode solved its task", f"give easier tasks (env.*), an sft stage before, or {more}"
        if same and any(mean > self._setting.solved_by[part] for part, mean in right.items()):
            return "every episode solved its task", "give harder tasks (env.*)"
        return "each task is too easy or too hard", f"give others (env.*), or {more}"

    def _right(self, row: Row) -> dict[str, float]:
        """The means of the parts that say whether a task was solved, where the row has them."""
        return {part: row.parts[part] for part in self._setting.solved_by if part in row.parts}

    def unsolved(self, row: Row) -> str:
        """The reward pays, and not for solving anything."""
        right = self._right(row)
        pays = {name: mean for name, mean in row.parts.items() if mean > 0 and name not in right}
        if not pays or not right or any(right.values()):
            return ""
        kind = "format only" if set(pays) == {"format"} else "not for solving tasks"
        named = ", ".join(f"{name} {mean:.3f}" for name, mean in pays.items())
        return f"the reward is {kind} ({named}; {', '.join(right)} 0): {SHOW}, easier tasks (env.*), or other reward.*"

    def silent(self, row: Row) -> str:
        """No tool was called: a call is answered, and what is answered is not the last message."""
        if self._setting.max_turns < 2 or not 0 < row.turns <= 1 or self.cut(row):
            return ""
        most = f"every episode ended with the first of the {self._setting.max_turns} messages that it may have"
        return f"no tool was called, {most}: {SHOW}, or a reward for calls (reward.*)"

    def collapsed(self, row: Row) -> str:
        """Answers no longer differ, and are not right."""
        first, seen = self._entropy, self._rewards
        if row.entropy is None or not first or row.entropy >= COLLAPSED * first or seen is None or row.reward is None:
            return ""
        low, high = seen
        if high - row.reward <= UNLEARNED * (high - low):
            return ""  # it has learned what there was to be learned
        fell = f"entropy fell from {first:.3g} to {row.entropy:.3g} nats a token"
        at = f"mean reward {row.reward:.3f}, highest {high:.3f}"
        return f"{fell}, {at}: raise algorithm.entropy_coef or algorithm.kl_coef, or lower learner.lr"

    def lopsided(self, row: Row) -> str:
        """On GPUs: engines wait for the learner, or it for them, much more than the other way round."""
        before, rollout, learner = self._engines, self._setting.recipe.rollout, self._setting.recipe.learner
        if not self._setting.gpus or row.busy is None or row.alive is None or row.learner_idle is None:
            return ""
        self._engines = row.busy, row.alive
        if before is None or row.busy < before[0] or row.alive <= before[1]:  # an engine that came back counts from 0
            return ""
        idle = 1 - (row.busy - before[0]) / (row.alive - before[1])
        shares = f"the engines were idle for {idle:.0%} of the step and the learner for {row.learner_idle:.0%}"
        ranks, workers = f"learner.ranks={learner.ranks}", f"rollout.workers={rollout.workers}"
        if idle - row.learner_idle > LOPSIDED and rollout.workers > 1:
            return f"{shares}: move GPUs to the learner (raise {ranks}, lower {workers})"
        if row.learner_idle - idle > LOPSIDED and learner.ranks > 1:
            return f"{shares}: move GPUs to the engines (raise {workers}, lower {ranks})"
        return ""


NOTHING = "nothing was trained: "
SHOW = "try an sft stage before"
SIGNS: dict[str, Callable[[Watch, Row], str]] = {
    "cut": Watch.cut,
    "untrained": Watch.untrained,
    "unsolved": Watch.unsolved,
    "silent": Watch.silent,
    "collapsed": Watch.collapsed,
    "lopsided": Watch.lopsided,
}
