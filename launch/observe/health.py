"""What is wrong with a stage that runs: sentences about its rows of metrics.jsonl, each with the key to turn.

Pure: rows in, sentences out. A sentence is said once, when what it names has held for PATIENCE steps in a row; at the
end it is said again, with the number of steps. It states what the rows show, and nothing where a key is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from launch.observe.health_rows import HealthRow, Level, read_row
from rlsys.config.recipe import RecipeConfig
from rlsys.types import Failure

PATIENCE = 3  # steps in a row
NEARLY_ALL = 0.9  # share of the episodes, or of the groups
HARDLY = 0.02  # of the highest reward seen: what one lucky episode among fifty gives
RAISED = 0.01  # share of the episodes
ONE_MESSAGE = 1.05  # messages of an episode, mean: nearly all have one
COLLAPSED = 0.02  # of the entropy that the stage began with
LOPSIDED = 0.25  # by which the idle share of the engines and that of the learner differ
RISEN = 1.0  # nats a token above the entropy that the stage began with, and three times as much
DRIFTED = 3.0  # nats a token from the reference: what the policy says, that model would hardly ever
BLOWN_UP = 100.0  # nats a token from the reference
STEEP = 100.0  # times learner.clip_grad
FELL = 0.5  # of the distance between the lowest and the highest reward seen: how far a mean falls below the best mean
UNLEARNED = 0.25  # how far the mean reward is below the best one seen, as a share of the distance from the worst


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSetting:
    """What a stage was configured to do, as far as it explains its rows."""

    recipe: RecipeConfig
    max_turns: int  # messages that the model may write in one episode
    solved_by: Mapping[str, float]  # the reward's (`envs.rewards`); empty where it does not say
    gpus: bool = False  # engines and ranks have their own GPUs
    run: str = ""  # its directory, where episodes can be looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, as `summary.json` and checkpoints have it."""

    stage: str
    what: str  # a name of SIGNS
    says: str
    first_step: int
    last_step: int
    steps: int  # in how many it held
    of: int  # the stage's so far; 0 for what no row of steps shows

    def describe(self) -> str:
        if not self.of:
            return f"after step {self.last_step} of stage {self.stage}: {self.says}"
        return f"in {self.steps} of {self.of} steps of stage {self.stage}, from step {self.first_step}: {self.says}"


class HealthMonitor:
    """Looks at the rows of one stage, in order."""

    def __init__(self, stage: str, setting: HealthSetting) -> None:
        self._stage, self._setting = stage, setting
        self._streaks: dict[str, int] = {}
        self._entropy: float | None = None  # of the first row
        self._rewards: tuple[float, float] | None = None  # lowest and highest so far
        self._engines: tuple[float, float] | None = None  # busy and alive, as the row before says
        self._level: Level | None = None  # of the mean reward
        self._solved: dict[str, Level] = {}  # the same of each part that says whether a task was solved
        self._raised = ""  # the first of what environments, rewards, tasks and templates raised
        self._rows = 0
        self._found: dict[str, Finding] = {}

    def see(self, metrics: Mapping[str, Any]) -> list[str]:
        """What is worth saying after this row of metrics."""
        row = read_row(metrics)
        self._remember(row)
        new = []
        for what, sign in SIGNS.items():
            says, patience = sign(self, row), 1 if what in AT_ONCE else PATIENCE
            self._streaks[what] = self._streaks.get(what, 0) + 1 if says else 0
            if says and self._note(what, says, row.step, patience):
                new.append(f"{patience} steps in a row: {says}" if patience > 1 else f"step {row.step}: {says}")
        return new

    def record_failure(self, failure: Failure | None) -> None:
        """What was raised in an episode of the row that comes next: rows have numbers alone."""
        if failure is not None and not self._raised:
            self._raised = f"{failure.kind} in {failure.where}: {failure.detail}"

    def _remember(self, row: HealthRow) -> None:
        self._rows += 1
        if self._entropy is None:
            self._entropy = row.entropy
        if row.reward_min is not None and row.reward_max is not None:
            low, high = self._rewards or (row.reward_min, row.reward_max)
            self._rewards = min(low, row.reward_min), max(high, row.reward_max)
        low, high = self._rewards or (0.0, 0.0)
        groups = row.with_signal + row.filtered + row.failed
        if row.reward is not None:
            self._level = self._level or Level()
            self._level.add(row.step, row.reward, groups, high - low)
        for part, mean in self._right(row).items():
            self._solved.setdefault(part, Level()).add(row.step, mean, groups, max(high, 0.0))

    def _note(self, what: str, says: str, step: int, patience: int) -> bool:
        """Count this step where it has held long enough. True the first time."""
        streak, known = self._streaks[what], self._found.get(what)
        if streak < patience:
            return False
        more = patience if streak == patience else 1
        first, before = (known.first_step, known.steps) if known else (step - patience + 1, 0)
        self._found[what] = Finding(
            stage=self._stage, what=what, says=says, first_step=first, last_step=step, steps=before + more, of=0
        )
        return known is None

    def findings(self) -> list[Finding]:
        return [replace(finding, of=self._rows) for finding in self._found.values()]

    # -- signs: a sentence where the row has them ---------------------------------------------------------------------

    def cut(self, row: HealthRow) -> str:
        """Nearly all episodes ended at a token limit."""
        if row.cut < NEARLY_ALL:
            return ""
        if worse := self._worse(row):
            return f"{row.cut:.0%} of the episodes were cut off by a token limit, and {worse}: {self._slower()}"
        return f"{row.cut:.0%} of the episodes were cut off by a token limit: raise {self._limit(row)}"

    def _limit(self, row: HealthRow) -> str:
        """The key that a single message ran into; where there were several messages, all that it can have been."""
        rollout, window = self._setting.recipe.rollout, self._setting.recipe.engine.max_model_len
        given = {"max_turn_tokens": rollout.max_turn_tokens, "max_response_tokens": rollout.max_response_tokens}
        keys = {f"rollout.{key}": most for key, most in given.items() if most is not None}
        if row.turns == 1:
            reached = {key: most for key, most in keys.items() if row.longest >= most}
            return " and ".join(f"{key}={most}" for key, most in reached.items()) or f"engine.max_model_len={window}"
        return " or ".join(f"{key}={most}" for key, most in (keys | {"engine.max_model_len": window}).items())

    def untrained(self, row: HealthRow) -> str:
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
        why, cure = self._no_signal(row)
        return f"{NOTHING}all {row.filtered:g} groups are without signal ({rewards}): {why}; {cure}"

    def starved(self, row: HealthRow) -> str:
        """Nearly no group has signal, and what is trained comes from the few."""
        groups = row.with_signal + row.filtered + row.failed
        if not row.trained or not row.with_signal or row.filtered < NEARLY_ALL * groups:
            return ""
        why, cure = self._no_signal(row)
        return f"{row.filtered:g} of {groups:g} groups are without signal: {why}; {cure}"

    def _no_signal(self, row: HealthRow) -> tuple[str, str]:
        warmth, size = self._setting.recipe.rollout.temperature, self._setting.recipe.loop.group_size
        more = f"a higher rollout.temperature={warmth:g} or loop.group_size={size}"
        right = self._right(row)
        same = row.reward_min == row.reward_max  # then a mean is what every episode has
        if worse := self._worse(row):
            return worse, self._slower()
        if self.cut(row):
            return "nearly all are cut off", f"raise {self._limit(row)}"
        look = self._look(row) if same else ""
        if right and all(self._hardly(mean) or (same and mean < 0) for mean in right.values()):
            none = "no" if all(mean == 0 or same for mean in right.values()) else "hardly any"
            return f"{none} episode solved its task", f"give easier tasks (env.*), an sft stage before, or {more}{look}"
        if any(mean > self._setting.solved_by[part] for part, mean in right.items()) and (same or self._at_top(row)):
            return f"{'' if same else 'nearly '}every episode solved its task", "give harder tasks (env.*)"
        return "each task is too easy or too hard", f"give others (env.*), or {more}{look}"

    def _look(self, row: HealthRow) -> str:
        """All rewards are one number: a reward that reads something else than the model writes gives that too."""
        if not self._setting.run:
            return ""
        name = f"{self._setting.run}/trajectories/step-{row.step:06d}.jsonl"
        score = f"rlsys score {self._setting.run}/config.yaml --input {name} --explain 1"
        return f"; or look whether the reward reads what the model writes: {score}"

    def _hardly(self, mean: float) -> bool:
        top = self._rewards[1] if self._rewards is not None else 0.0
        return 0 <= mean <= HARDLY * max(top, 0.0)

    def _at_top(self, row: HealthRow) -> bool:
        if row.reward is None or row.reward_min is None or row.reward_max is None:
            return False
        return row.reward >= row.reward_max - HARDLY * (row.reward_max - row.reward_min)

    def _worse(self, row: HealthRow) -> str:
        """Tasks that the policy solved before it does not solve any more: they are not too hard for it."""
        top = self._rewards[1] if self._rewards is not None else 0.0
        for part in self._right(row):
            level = self._solved[part]
            best, now = level.best, level.now.mean
            if best.mean > 0.2 * top > 0 and now <= FELL * best.mean and level.has_fallen(top, 0.0):
                return (
                    f"the policy has lost what it could do ({part} {best.mean:.3f} at step {best.step}, now {now:.3f})"
                )
        if self._level is not None and self.fell(row):
            best = self._level.best
            return f"the policy has lost what it could do (mean reward {best.mean:.3f} at step {best.step})"
        return ""

    def _slower(self) -> str:
        recipe = self._setting.recipe
        coef = getattr(recipe.algorithm, "kl_coef", None)
        held = "" if coef is None else f", or raise algorithm.kl_coef={coef:g}"
        return f"lower learner.lr={recipe.learner.lr:g}{held}"

    def _right(self, row: HealthRow) -> dict[str, float]:
        """The means of the parts that say whether a task was solved, where the row has them."""
        return {part: row.parts[part] for part in self._setting.solved_by if part in row.parts}

    def unsolved(self, row: HealthRow) -> str:
        """The reward pays, and not for solving anything."""
        right = self._right(row)
        pays = {name: mean for name, mean in row.parts.items() if mean > 0 and name not in right}
        if not pays or not right or not all(map(self._hardly, right.values())) or self._worse(row):
            return ""
        kind = "format only" if set(pays) == {"format"} else "not for solving tasks"
        named = ", ".join(f"{name} {mean:.3f}" for name, mean in pays.items())
        zeros = ", ".join(f"{name} {mean:.2g}" for name, mean in right.items())
        return f"the reward is {kind} ({named}; {zeros}): {SHOW}, easier tasks (env.*), or other reward.*"

    def silent(self, row: HealthRow) -> str:
        """No tool was called: a call is answered, and what is answered is not the last message."""
        if self._setting.max_turns < 2 or not 0 < row.turns <= ONE_MESSAGE or self.cut(row):
            return ""
        if row.malformed >= NEARLY_ALL or self._worse(row):
            return ""  # that says more
        every = "every" if row.turns <= 1 else "nearly every"
        most = f"{every} episode ended with the first of the {self._setting.max_turns} messages that it may have"
        none = "no" if row.turns <= 1 else "hardly any"
        return f"{none} tool was called, {most}: {SHOW}, or a reward for calls (reward.*)"

    def collapsed(self, row: HealthRow) -> str:
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

    def malformed(self, row: HealthRow) -> str:
        """The environment cannot read what the model writes."""
        if row.malformed < NEARLY_ALL:
            return ""
        said = f"{row.malformed:.0%} of the episodes are malformed"
        if worse := self._worse(row):
            return f"{said}, and {worse}: {self._slower()}"
        form = "the model does not write what the environment reads"
        return f"{said}, {form}: {SHOW}, or look at the chat template (--dry-run shows a prompt) and at env.*"

    def raised(self, row: HealthRow) -> str:
        """The user's own code raises; that the episode went well when it was played again hides it."""
        if row.raised < RAISED:
            return ""
        first = f"; the first: {self._raised}" if self._raised else " (rows: failures/data, failures/retried)"
        broke = f"{row.raised:.1%} of the episodes broke on their own code or data"
        return f"{broke}, and were played again or left out{first}"

    def blown_up(self, row: HealthRow) -> str:
        """In one step, and what follows may have no rows with a KL any more."""
        if row.kl is None or row.kl <= BLOWN_UP:
            return ""
        return f"the policy blew up, its KL from the reference is {row.kl:.3g} nats a token: {self._slower()}"

    def drifted(self, row: HealthRow) -> str:
        if row.kl is None or not DRIFTED < row.kl <= BLOWN_UP:
            return ""
        return (
            f"the KL from the reference is {row.kl:.3g} nats a token, far from anything it would say: {self._slower()}"
        )

    def steep(self, row: HealthRow) -> str:
        clip = self._setting.recipe.learner.clip_grad
        if row.grad_norm is None or row.grad_norm <= STEEP * clip:
            return ""
        norm = f"the gradient's norm is {row.grad_norm:.3g}, of which learner.clip_grad={clip:g} is left"
        return f"{norm}: {self._slower()}, or scale the reward (reward.*)"

    def scattered(self, row: HealthRow) -> str:
        """Entropy rises while the reward falls: the answers become noise."""
        first, level = self._entropy, self._level
        if row.entropy is None or first is None or row.reward is None or level is None or self._rewards is None:
            return ""
        (low, high), best = self._rewards, level.best
        if row.entropy < max(first + RISEN, 3 * first) or best.mean - row.reward <= UNLEARNED * (high - low):
            return ""
        rose = f"entropy rose from {first:.3g} to {row.entropy:.3g} nats a token"
        at = f"mean reward {row.reward:.3f}, {best.mean:.3f} at step {best.step}"
        return f"{rose}, {at}: {self._slower()}"

    def fell(self, row: HealthRow) -> str:
        """The mean reward is far below its own best, and farther than chance takes it."""
        if row.reward is None or self._level is None or self._rewards is None:
            return ""
        (low, high), best, now = self._rewards, self._level.best, self._level.now
        if not self._level.has_fallen(high - low, FELL * (high - low)):
            return ""
        harder = (
            "" if self._setting.recipe.curriculum.name == "uniform" else ", unless the curriculum gives harder tasks"
        )
        return (
            f"the mean reward fell from {best.mean:.3f} at step {best.step} to {now.mean:.3f}: {self._slower()}{harder}"
        )

    def lopsided(self, row: HealthRow) -> str:
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
SIGNS: dict[str, Callable[[HealthMonitor, HealthRow], str]] = {
    "cut": HealthMonitor.cut,
    "untrained": HealthMonitor.untrained,
    "unsolved": HealthMonitor.unsolved,
    "silent": HealthMonitor.silent,
    "collapsed": HealthMonitor.collapsed,
    "starved": HealthMonitor.starved,
    "malformed": HealthMonitor.malformed,
    "raised": HealthMonitor.raised,
    "blown_up": HealthMonitor.blown_up,
    "drifted": HealthMonitor.drifted,
    "steep": HealthMonitor.steep,
    "scattered": HealthMonitor.scattered,
    "fell": HealthMonitor.fell,
    "lopsided": HealthMonitor.lopsided,
}
AT_ONCE = frozenset({"blown_up"})
