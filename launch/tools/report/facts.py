"""What the parts of a report have in common: the stage that is looked at, its last steps, and what held the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from launch.driver.observe import thresholds
from launch.driver.observe.thresholds import LAST
from launch.run_dir.directory import RunDirectory
from launch.run_dir.episodes import Episodes
from launch.run_dir.solved import rewards_by_env, solving_parts
from launch.run_dir.table import Floats, Rows
from launch.tools.report.words import mean, total
from rlsys.config.envs import by_name

GPU_KEYS = ("memory/learner_gpu_peak_mb", "learner/mfu")  # that rows have where ranks hold GPUs


@dataclass(frozen=True)
class Stage:
    """A stage of a run with its rows."""

    run: RunDirectory
    name: str
    kind: str
    rows: Rows

    def setting(self, key: str) -> Any:
        return self.run.setting(key, self.name)

    @cached_property
    def last(self) -> Rows:
        return self.rows.tail(LAST)

    @cached_property
    def ends(self) -> tuple[Rows, Rows]:
        """Its first and its last steps, as many of each and no step in both."""
        count = count_end_steps(len(self.rows))
        return self.rows.pick(np.arange(len(self.rows)) < count), self.rows.tail(count)

    @property
    def has_enough(self) -> bool:
        """Whether its last steps are no chance: many, or of many episodes."""
        return len(self.rows) >= LAST or count_played(self.rows) >= thresholds.LAST_EPISODES

    @property
    def has_ends(self) -> bool:
        """The same of its first and of its last steps."""
        least = min(map(count_played, self.ends)) if len(self.rows) > 1 else 0.0
        return len(self.rows) >= 2 * LAST or least >= thresholds.LAST_EPISODES

    @property
    def last_steps(self) -> tuple[int, int]:
        return int(self.last.step[0]), int(self.last.step[-1])

    @cached_property
    def engine_busy(self) -> float | None:
        """Share of the engines' time in this stage in which they worked, from the differences of cumulative seconds."""
        return busy_share(self.rows)

    @property
    def learner_waits(self) -> float | None:
        """Share of the stage's seconds in which the next step waited for rollouts."""
        seconds = total(self.rows.known("time/step"))
        return total(self.rows.known("time/wait_rollout")) / seconds if seconds else None

    @cached_property
    def right(self) -> Floats:
        """[N]: share of right answers in the training episodes of each step, where a part of the reward says it.

        Of several environments the mean over their episodes, where all of them say it.
        """
        if list(self.right_by_env) == [""]:
            return self.right_by_env[""]
        names = list(self.right_by_env)
        count = np.nan_to_num(np.array([self.rows.column(by_name(name, "episode/count")) for name in names]))
        right = np.array([self.right_by_env[name] for name in names])
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(count > 0, right * count, 0.0).sum(0) / count.sum(0)  # type: ignore[no-any-return]

    @cached_property
    def right_by_env(self) -> Mapping[str, Floats]:
        """[N] of each environment of several, by its name; of the only one under ""."""
        rewards = rewards_by_env(self.run, self.name)
        return {name: self._right(name, reward) for name, reward in rewards.items()}

    def _right(self, name: str, reward: Any) -> Floats:
        """As the rows have it. Those of earlier versions do not: a part that pays for nothing else says it."""
        share = self.rows.column(by_name(name, "reward/solved") if name else "reward/solved")
        return np.where(np.isnan(share), self._right_of_parts(name, reward), share)

    def _right_of_parts(self, name: str, reward: Any) -> Floats:
        pays_for = reward if isinstance(reward, Mapping) else {}
        for part, least in solving_parts(reward).items():
            key = by_name(name, f"reward/part/{part}") if name else f"reward/part/{part}"
            column, values = self.rows.column(key), self.rows.known(key)
            pays: Any = pays_for.get(part)
            unit = float(pays) if type(pays) in (int, float) and pays > 0 else 1.0
            if len(values) and least == 0 and values.min() >= 0 and values.max() <= unit:
                return column / unit
        return np.full(len(self.rows), np.nan)

    @property
    def right_now(self) -> float | None:
        """Over the last steps."""
        return mean(self.right[-LAST:])


def count_end_steps(count: int) -> int:
    """How many of so many values stand for the beginning, and as many for the end: count_end_steps(12) is 6."""
    return min(LAST, max(1, count // 2))


def busy_share(rows: Rows) -> float | None:
    """An engine that came back counts from 0: then its own seconds are the difference."""
    busy, alive = (np.diff(rows.known(f"engine/{name}_s")) for name in ("busy", "alive"))
    if not len(alive) or len(busy) != len(alive):
        return None
    sound = (alive > 0) & (busy >= 0)
    return total(busy[sound]) / total(alive[sound]) if sound.any() else None


def all_stages(run: RunDirectory) -> list[Stage]:
    """Those that have taken a step, in the order of the recipe."""
    kinds = {name: str(config.get("kind")) for name, config in zip(run.stages, run.config["stages"], strict=True)}
    row_stages = [name for name in dict.fromkeys(run.rows.stage)]
    order = [*(name for name in kinds if name in row_stages), *(name for name in row_stages if name not in kinds)]
    return [Stage(run, name, kinds.get(name, ""), run.rows.of_stage(name)) for name in order]


def main_stage(run: RunDirectory) -> Stage | None:
    """The last rl stage that has taken a step, else the last stage that has."""
    stages = all_stages(run)
    learned = [stage for stage in stages if stage.kind == "rl"]
    return (learned or stages)[-1] if stages else None


def holds_gpus(run: RunDirectory) -> bool:
    """Whether engines and ranks have GPUs of their own."""
    device = run.setting("cluster.device")
    if device in ("cpu", "cuda"):
        return bool(device == "cuda")
    return any(key in run.rows.columns for key in GPU_KEYS) or count_gpus(run) > 0


def count_gpus(run: RunDirectory) -> int:
    return sum(node.gpus.count or 0 for node in run.newest_start.nodes if node.gpus is not None)


def count_played(rows: Rows) -> float:
    """Episodes of these steps."""
    return total(rows.known("episode/count"))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Over some rows: groups that were trained, and those that had no signal or could not be graded."""

    trained: float
    filtered: float
    failed: float

    @property
    def without_signal(self) -> float | None:
        played = self.trained + self.filtered
        return self.filtered / played if played else None


def count_groups(rows: Rows) -> GroupCounts:
    trained, filtered, failed = (total(rows.known(f"groups/{name}")) for name in ("trained", "filtered", "failed"))
    return GroupCounts(trained=trained, filtered=filtered, failed=failed)


def count_episodes(episodes: Episodes | None, first: int, last: int, wrong_above: float) -> int:
    """Training episodes of these steps with a reward above `wrong_above` whose answer is wrong."""
    if episodes is None or not len(episodes):
        return 0
    step, columns = episodes.columns["step"], episodes.columns
    mask = episodes.in_training & (step >= first) & (step <= last)
    return int(np.count_nonzero(mask & (columns["reward"] > wrong_above) & (columns["correct"] == 0)))
