"""What the rows of a stage have shown so far, as far as a sign needs more than the newest row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from launch.driver.observe import thresholds
from launch.driver.observe.health_rows import CutShare, HealthRow, Level
from launch.driver.observe.tool_signs import ToolCounts
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


class History:
    """Of one stage, in the order of its rows; `see` each of them once."""

    def __init__(self, setting: HealthSetting) -> None:
        self.setting = setting
        self.steps = 0
        self.first_entropy: float | None = None  # of the first row that has one
        self.first_gap: float | None = None  # the same, between engine and learner
        self.rewards: tuple[float, float] | None = None  # lowest and highest
        self.level: Level | None = None  # of the mean reward
        self.solved: dict[str, Level] = {}  # the same of each part that says whether a task was solved
        self.cut = CutShare()
        self.tools = ToolCounts()
        self.engines_idle: float | None = None  # share of the newest step, where GPUs could be moved
        self.raised = ""  # the first of what environments, rewards, tasks and templates raised
        self._engines: tuple[float, float] | None = None  # busy and alive, as the row before says

    def see(self, row: HealthRow) -> None:
        self.steps += 1
        self.first_entropy = row.entropy if self.first_entropy is None else self.first_entropy
        self.first_gap = row.gap if self.first_gap is None else self.first_gap
        self.cut.add(row)
        self.tools.see(row.tools)
        self._see_rewards(row)
        self._see_engines(row)

    def _see_rewards(self, row: HealthRow) -> None:
        if row.reward_min is not None and row.reward_max is not None:
            low, high = self.rewards or (row.reward_min, row.reward_max)
            self.rewards = min(low, row.reward_min), max(high, row.reward_max)
        low, high = self.rewards or (0.0, 0.0)
        groups = row.with_signal + row.filtered + row.failed
        if row.reward is not None:
            self.level = self.level or Level()
            self.level.add(row.step, row.reward, groups, high - low)
        for part, mean in self.solved_means(row).items():
            self.solved.setdefault(part, Level()).add(row.step, mean, groups, max(high, 0.0))

    def _see_engines(self, row: HealthRow) -> None:
        self.engines_idle = None
        if not self.setting.gpus or self.setting.recipe.cluster.placement != "split":  # there is nothing to move
            return
        if row.busy is None or row.alive is None or row.learner_idle is None:
            return
        before, self._engines = self._engines, (row.busy, row.alive)
        if before is None or row.busy < before[0] or row.alive <= before[1]:  # an engine that came back counts from 0
            return
        self.engines_idle = 1 - (row.busy - before[0]) / (row.alive - before[1])

    @property
    def top(self) -> float:
        """The highest reward; 0 before the first."""
        return self.rewards[1] if self.rewards is not None else 0.0

    def solved_means(self, row: HealthRow) -> dict[str, float]:
        """The means of the parts that say whether a task was solved, where the row has them."""
        return {part: row.parts[part] for part in self.setting.solved_by if part in row.parts}

    def is_near_zero(self, mean: float) -> bool:
        return 0 <= mean <= thresholds.HARDLY * max(self.top, 0.0)

    def reward_has_fallen(self, row: HealthRow) -> bool:
        """Whether the mean reward is far below its own best, and farther than chance takes it."""
        if row.reward is None or self.level is None or self.rewards is None:
            return False
        distance = self.rewards[1] - self.rewards[0]
        return self.level.has_fallen(distance, thresholds.FELL * distance)

    def regression(self, row: HealthRow) -> str:
        """Tasks that the policy solved before it does not solve any more: they are not too hard for it."""
        for part in self.solved_means(row):
            level = self.solved[part]
            best, now = level.best, level.now.mean
            if (
                best.mean > 0.2 * self.top > 0
                and now <= thresholds.FELL * best.mean
                and level.has_fallen(self.top, 0.0)
            ):
                return (
                    f"the policy has lost what it could do ({part} {best.mean:.3f} at step {best.step}, now {now:.3f})"
                )
        if self.level is not None and self.reward_has_fallen(row):
            best = self.level.best
            return f"the policy has lost what it could do (mean reward {best.mean:.3f} at step {best.step})"
        return ""
