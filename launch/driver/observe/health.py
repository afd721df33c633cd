"""What is wrong with a stage that runs: sentences about its rows of metrics.jsonl, each with the key to turn.

Pure: rows in, sentences out. A sentence is said once, when what it names has held in a row for as many episodes or
steps as `launch.driver.observe.levels` asks for; at the end it is said again, with the number of steps. It states what
the rows show, and nothing where a key is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from envs.mixture import parts_of
from launch.driver.observe import levels
from launch.driver.observe.health_rows import CutShare, HealthRow, Level, read_row
from launch.driver.observe.signs import OF_ROWS, Beginning, HealthSetting, now, slower
from launch.driver.observe.tool_signs import OF_TOOLS, ToolCounts
from rlsys.types import Failure


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


@dataclass(frozen=True, slots=True)
class _Streak:
    """Of steps in a row that show the same."""

    steps: int
    episodes: float

    def after(self, episodes: float) -> _Streak:
        """One step more, or none at all where it shows something else (0)."""
        return _Streak(self.steps + 1, self.episodes + episodes) if episodes else NO_STREAK


NO_STREAK = _Streak(0, 0.0)


class HealthMonitor:
    """Looks at the rows of one stage, in order."""

    def __init__(self, stage: str, setting: HealthSetting) -> None:
        self._stage, self._setting = stage, setting
        self._streaks: dict[str, _Streak] = {}
        self._begin = Beginning()
        self._cut = CutShare()
        self._tools = ToolCounts()
        self._rewards: tuple[float, float] | None = None  # lowest and highest so far
        self._engines: tuple[float, float] | None = None  # busy and alive, as the row before says
        self._level: Level | None = None  # of the mean reward
        self._solved: dict[str, Level] = {}  # the same of each part that says whether a task was solved
        self._raised = ""  # the first of what environments, rewards, tasks and templates raised
        self._rows = 0
        self._last_row: HealthRow | None = None
        self._found: dict[str, Finding] = {}

    def see(self, metrics: Mapping[str, Any]) -> list[str]:
        """What is worth saying after this row of metrics."""
        row = read_row(metrics)
        self._remember(row)
        new = []
        signs = {name: sign(self, row) for name, sign in SIGNS.items()}
        signs |= {name: sign(self._setting, self._begin, row) for name, sign in OF_ROWS.items()}
        signs |= {name: sign(self._tools) for name, sign in OF_TOOLS.items()}
        for name, says in signs.items():
            self._streaks[name] = streak = self._streaks.get(name, NO_STREAK).after(_evidence(name, row) if says else 0)
            if says and self._is_proven(name, streak) and self._note(name, says, row.step, streak.steps):
                new.append(f"{streak.steps} steps in a row: {says}" if streak.steps > 1 else f"step {row.step}: {says}")
        self._last_row = row
        return new

    def record_failure(self, failure: Failure | None) -> None:
        """What was raised in an episode of the row that comes next: rows have numbers alone."""
        if failure is not None and not self._raised:
            self._raised = f"{failure.kind} in {failure.where}: {failure.detail}"

    def _remember(self, row: HealthRow) -> None:
        self._rows += 1
        self._begin.see(row)
        self._cut.add(row)
        self._tools.see(row.tools)
        if row.reward_min is not None and row.reward_max is not None:
            low, high = self._rewards or (row.reward_min, row.reward_max)
            self._rewards = min(low, row.reward_min), max(high, row.reward_max)
        low, high = self._rewards or (0.0, 0.0)
        groups = row.with_signal + row.filtered + row.failed
        if row.reward is not None:
            self._level = self._level or Level()
            self._level.add(row.step, row.reward, groups, high - low)
        for part, mean in self._solved_means(row).items():
            self._solved.setdefault(part, Level()).add(row.step, mean, groups, max(high, 0.0))

    def _is_proven(self, name: str, streak: _Streak) -> bool:
        proof = levels.PROOF.get(name, levels.OTHERWISE)
        steps = proof.from_start if proof.from_start and streak.steps == self._rows else proof.steps
        if name == "cut" and self._cut.share >= levels.NEARLY_ALL:
            steps = levels.OTHERWISE.steps  # of small steps too: their chance is not that of nearly all
        return (proof.episodes is not None and streak.episodes >= proof.episodes) or (
            steps is not None and streak.steps >= steps
        )

    def _note(self, name: str, says: str, step: int, steps: int) -> bool:
        """Count this step, and where it is the first that is said those before it. True the first time."""
        finding = self._found.get(name)
        continues = finding is not None and finding.last_step + steps > step  # of the same streak
        more = 1 if continues else steps
        first, before = (finding.first_step, finding.steps) if finding else (step - steps + 1, 0)
        self._found[name] = Finding(
            stage=self._stage, what=name, says=says, first_step=first, last_step=step, steps=before + more, of=0
        )
        return finding is None

    def findings(self) -> list[Finding]:
        """All so far, with `untrained` where it held in every step: at the end of a stage that needs no more proof."""
        findings = dict(self._found)
        streak, row = self._streaks.get("untrained", NO_STREAK), self._last_row
        if row is not None and 0 < streak.steps == self._rows and "untrained" not in findings:
            first = row.step - streak.steps + 1
            findings["untrained"] = Finding(
                stage=self._stage, what="untrained", says=self.untrained(row), first_step=first, last_step=row.step,
                steps=streak.steps, of=0,
            )  # fmt: skip
        return [replace(finding, of=self._rows) for finding in findings.values()]

    # -- signs: a sentence where the row has them ---------------------------------------------------------------------

    def cut(self, row: HealthRow) -> str:
        """Many episodes ended at a token limit, and they do not become fewer."""
        share = self._cut.share
        if share < levels.CUT or self._cut.falls:
            return ""
        text = f"{share:.0%} of the episodes were cut off by a token limit"
        if worse := self._regression(row):
            return f"{text}, and {worse}: {slower(self._setting.recipe)}"
        return f"{text}: raise {self._limit(row)}"

    def _limit(self, row: HealthRow) -> str:
        """The key that a single message ran into; where there were several messages, all that it can have been."""
        rollout, window = self._setting.recipe.rollout, self._setting.recipe.engine.max_model_len
        limits = {"max_turn_tokens": rollout.max_turn_tokens, "max_response_tokens": rollout.max_response_tokens}
        keys = {f"rollout.{key}": most for key, most in limits.items() if most is not None}
        if row.turns == 1:
            reached = {key: most for key, most in keys.items() if row.longest >= most}
            return " and ".join(starmap(now, reached.items())) or now("engine.max_model_len", window)
        return " or ".join(starmap(now, (keys | {"engine.max_model_len": window}).items()))

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
        if not row.trained or not row.with_signal or row.filtered < levels.NEARLY_ALL * groups:
            return ""
        why, cure = self._no_signal(row)
        return f"{row.filtered:g} of {groups:g} groups are without signal: {why}; {cure}"

    def _no_signal(self, row: HealthRow) -> tuple[str, str]:
        warmth, size = self._setting.recipe.rollout.temperature, self._setting.recipe.loop.group_size
        more = f"a higher {now('rollout.temperature', warmth)} or {now('loop.group_size', size)}"
        right = self._solved_means(row)
        same = row.reward_min == row.reward_max  # then a mean is what every episode has
        if worse := self._regression(row):
            return worse, slower(self._setting.recipe)
        if row.cut >= levels.NEARLY_ALL:
            return "nearly all are cut off", f"raise {self._limit(row)}"
        if row.malformed >= row.cut and row.malformed + row.cut >= levels.NEARLY_ALL:
            return self._unreadable(row), f"{READABLE}{self._look(row) if same else ''}"
        look = self._look(row) if same else ""
        if right and all(self._is_near_zero(mean) or (same and mean < 0) for mean in right.values()):
            none = "no" if all(mean == 0 or same for mean in right.values()) else "hardly any"
            return (
                f"{none} episode solved its task",
                f"give {self._examples()}easier tasks (env.*), {STAGE}, or {more}{look}",
            )
        if any(mean > self._setting.solved_by[part] for part, mean in right.items()) and (same or self._at_top(row)):
            return f"{'' if same else 'nearly '}every episode solved its task", "give harder tasks (env.*)"
        why = "" if same else "all siblings of each have one reward, "
        return f"{why}each task is too easy or too hard", f"give others (env.*), or {more}{look}"

    def _examples(self) -> str:
        """Where the world can show some in its prompt."""
        envs = (recipe.env for recipe in self._setting.recipe.by_env.values())
        return (
            "examples in the prompt (env.demonstrations), " if any(hasattr(e, "demonstrations") for e in envs) else ""
        )

    def _look(self, row: HealthRow) -> str:
        """All rewards are one number: a reward that reads something else than the model writes gives that too."""
        if not self._setting.run:
            return ""
        name = f"{self._setting.run}/trajectories/step-{row.step:06d}.jsonl"
        score = f"rlsys score {self._setting.run}/config.yaml --input {name} --explain 1"
        return f"; or look whether the reward reads what the model writes: {score}"

    def _is_near_zero(self, mean: float) -> bool:
        top = self._rewards[1] if self._rewards is not None else 0.0
        return 0 <= mean <= levels.HARDLY * max(top, 0.0)

    def _at_top(self, row: HealthRow) -> bool:
        if row.reward is None or row.reward_min is None or row.reward_max is None:
            return False
        return row.reward >= row.reward_max - levels.HARDLY * (row.reward_max - row.reward_min)

    def _regression(self, row: HealthRow) -> str:
        """Tasks that the policy solved before it does not solve any more: they are not too hard for it."""
        top = self._rewards[1] if self._rewards is not None else 0.0
        for part in self._solved_means(row):
            level = self._solved[part]
            best, now = level.best, level.now.mean
            if best.mean > 0.2 * top > 0 and now <= levels.FELL * best.mean and level.has_fallen(top, 0.0):
                return (
                    f"the policy has lost what it could do ({part} {best.mean:.3f} at step {best.step}, now {now:.3f})"
                )
        if self._level is not None and self.fell(row):
            best = self._level.best
            return f"the policy has lost what it could do (mean reward {best.mean:.3f} at step {best.step})"
        return ""

    def _solved_means(self, row: HealthRow) -> dict[str, float]:
        """The means of the parts that say whether a task was solved, where the row has them."""
        return {part: row.parts[part] for part in self._setting.solved_by if part in row.parts}

    def unsolved(self, row: HealthRow) -> str:
        """The reward pays, and not for solving anything."""
        right = self._solved_means(row)
        pays = {name: mean for name, mean in row.parts.items() if mean > 0 and name not in right}
        if not pays or not right or not all(map(self._is_near_zero, right.values())) or self._regression(row):
            return ""
        kind = "format only" if set(pays) == {"format"} else "not for solving tasks"
        paid_parts = ", ".join(f"{name} {mean:.3f}" for name, mean in pays.items())
        zeros = ", ".join(f"{name} {mean:.2g}" for name, mean in right.items())
        cure = f"try {self._examples()}{STAGE}, easier tasks (env.*), or other reward.*"
        return f"the reward is {kind} ({paid_parts}; {zeros}): {cure}"

    def silent(self, row: HealthRow) -> str:
        """No tool was called: a call is answered, and what is answered is not the last message."""
        if self._setting.max_turns < 2 or not 0 < row.turns <= levels.ONE_MESSAGE or row.cut >= levels.NEARLY_ALL:
            return ""
        if row.malformed >= levels.NEARLY_ALL or self._regression(row):
            return ""  # that says more
        if any(part.name == "agent" for part in parts_of(self._setting.recipe.env)):
            return ""  # which asks as often as it is written to
        every = "every" if row.turns <= 1 else "nearly every"
        most = f"{every} episode ended with the first of the {self._setting.max_turns} messages that it may have"
        none = "no" if row.turns <= 1 else "hardly any"
        return f"{none} tool was called, {most}: {SHOW}, or a reward for calls (reward.*)"

    def collapsed(self, row: HealthRow) -> str:
        """Answers no longer differ, and are not right."""
        first, reward_range, level = self._begin.entropy, self._rewards, self._level
        if row.entropy is None or not first or reward_range is None or row.reward is None or level is None:
            return ""
        low, high = reward_range
        if row.entropy >= levels.COLLAPSED * first or level.best.step == row.step:  # its rewards still rise
            return ""
        if high - row.reward <= levels.UNLEARNED * (high - low):
            return ""  # it has learned what there was to be learned
        fell = f"entropy fell from {first:.3g} to {row.entropy:.3g} nats a token"
        at = f"mean reward {row.reward:.3f}, highest {high:.3f}"
        return f"{fell}, {at}: raise algorithm.entropy_coef or algorithm.kl_coef, or lower learner.lr"

    def malformed(self, row: HealthRow) -> str:
        """The environment cannot read what the model writes."""
        if row.malformed < levels.NEARLY_ALL:
            return ""
        if worse := self._regression(row):
            return f"{row.malformed:.0%} of the episodes are malformed, and {worse}: {slower(self._setting.recipe)}"
        return f"{self._unreadable(row)}: {READABLE}"

    def _unreadable(self, row: HealthRow) -> str:
        cut = f" and {row.cut:.0%} cut off" if row.cut else ""
        return f"{row.malformed:.0%} of the episodes are malformed{cut}, the model does not write what is read"

    def raised(self, row: HealthRow) -> str:
        """The user's own code raises; that the episode went well when it was played again hides it."""
        if row.raised < levels.RAISED:
            return ""
        first = f"; the first: {self._raised}" if self._raised else " (rows: failures/data, failures/retried)"
        broke = f"{row.raised:.1%} of the episodes broke on their own code or data"
        if row.agent_errors:  # what the policy said may have caused them: they have a reward
            return f"{broke}, {row.agent_errors:.1%} on errors of agents, which count with their reward{first}"
        return f"{broke}, and were played again or left out{first}"

    def scattered(self, row: HealthRow) -> str:
        """Entropy rises while the reward falls: the answers become noise."""
        first, level = self._begin.entropy, self._level
        if row.entropy is None or first is None or row.reward is None or level is None or self._rewards is None:
            return ""
        (low, high), best = self._rewards, level.best
        most = max(first + levels.RISEN, levels.GREW * first)
        if row.entropy < most or best.mean - row.reward <= levels.UNLEARNED * (high - low):
            return ""
        rose = f"entropy rose from {first:.3g} to {row.entropy:.3g} nats a token"
        at = f"mean reward {row.reward:.3f}, {best.mean:.3f} at step {best.step}"
        return f"{rose}, {at}: {slower(self._setting.recipe)}"

    def fell(self, row: HealthRow) -> str:
        """The mean reward is far below its own best, and farther than chance takes it."""
        if row.reward is None or self._level is None or self._rewards is None:
            return ""
        (low, high), best, now = self._rewards, self._level.best, self._level.now
        if not self._level.has_fallen(high - low, levels.FELL * (high - low)):
            return ""
        harder = (
            "" if self._setting.recipe.curriculum.name == "uniform" else ", unless the curriculum gives harder tasks"
        )
        fell = f"the mean reward fell from {best.mean:.3f} at step {best.step} to {now.mean:.3f}"
        return f"{fell}: {slower(self._setting.recipe)}{harder}"

    def lopsided(self, row: HealthRow) -> str:
        """On GPUs: engines wait for the learner, or it for them, much more than the other way round."""
        before, rollout, learner = self._engines, self._setting.recipe.rollout, self._setting.recipe.learner
        if not self._setting.gpus or row.busy is None or row.alive is None or row.learner_idle is None:
            return ""
        if self._setting.recipe.cluster.placement != "split":  # there is nothing to move
            return ""
        self._engines = row.busy, row.alive
        if before is None or row.busy < before[0] or row.alive <= before[1]:  # an engine that came back counts from 0
            return ""
        idle = 1 - (row.busy - before[0]) / (row.alive - before[1])
        shares = f"the engines were idle for {idle:.0%} of the step and the learner for {row.learner_idle:.0%}"
        ranks, workers = now("learner.ranks", learner.ranks), now("rollout.workers", rollout.workers)
        if idle - row.learner_idle > levels.LOPSIDED and rollout.workers > 1:
            return f"{shares}: move GPUs to the learner (raise {ranks}, lower {workers})"
        if row.learner_idle - idle > levels.LOPSIDED and learner.ranks > learner.sequence_parallel:
            return f"{shares}: move GPUs to the engines (raise {workers}, lower {ranks})"
        return ""


NOTHING = "nothing was trained: "
STAGE = "an sft stage before"
SHOW = f"try {STAGE}"
READABLE = f"{SHOW}, or look at the chat template (--dry-run shows a prompt) and at env.*"
SIGNS: dict[str, Callable[[HealthMonitor, HealthRow], str]] = {
    "cut": HealthMonitor.cut,
    "untrained": HealthMonitor.untrained,
    "unsolved": HealthMonitor.unsolved,
    "silent": HealthMonitor.silent,
    "collapsed": HealthMonitor.collapsed,
    "starved": HealthMonitor.starved,
    "malformed": HealthMonitor.malformed,
    "raised": HealthMonitor.raised,
    "scattered": HealthMonitor.scattered,
    "fell": HealthMonitor.fell,
    "lopsided": HealthMonitor.lopsided,
}


def _evidence(name: str, row: HealthRow) -> float:
    """Episodes of the step, or a share of them. Above 0 also where none are known, as in a supervised stage."""
    share = levels.PROOF.get(name, levels.OTHERWISE).of
    return max(row.episodes * (getattr(row, share) if share else 1.0), 1e-9)
