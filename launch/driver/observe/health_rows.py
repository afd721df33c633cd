"""What of the rows of metrics.jsonl tells whether a stage is well: the numbers of each, and means over several.

The highest of hundreds of steps is luck where a step has few groups, and so is the lowest. So the best is the mean of
many groups, the present one that of a few steps, and both know of how many groups they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import sqrt
from typing import Any

from launch.driver.observe import thresholds

PART = "reward/part/"
TOOL = "tool/"
DEPTH = "mismatch/depth_"


def _of(key: str) -> Any:
    """A number that a row may lack: then it is None."""
    return field(default=None, metadata={"key": key})


def _share(key: str) -> Any:
    """A share or a count: 0 where the row has none."""
    return field(default=0.0, metadata={"key": key})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRow:
    step: int = field(metadata={"key": "step"})
    episodes: float = _share("episode/count")
    entropy: float | None = _of("entropy/mean")
    reward: float | None = _of("reward/mean")
    reward_min: float | None = _of("reward/min")
    reward_max: float | None = _of("reward/max")
    turns: float = _share("episode/turns")  # messages of the model, mean
    longest: float = _share("episode/tokens_max")
    cut: float = _share("episode/token_limit")  # share of the episodes
    late: float = _share("episode/time_limit")  # share of the episodes
    timeouts: float = _share("failures/timeout")  # episodes
    trained: float | None = _of("tokens/trained")
    stale: float = _share("tokens/stale")
    optimizer_steps: float = _share("learner/steps")
    malformed: float = _share("episode/malformed")  # share of the episodes
    raised: float = _share("episode/raised")  # share of the episodes
    agent_errors: float = _share("env/agent_errors")  # share of the episodes: those of `raised` that count
    kl: float | None = _of("kl/reference")  # nats a token
    grad_norm: float | None = _of("learner/grad_norm")  # before clipping
    clip_low: float = _share("clip/low")  # share of the trained tokens, as the two below
    clip_high: float = _share("clip/high")
    outside: float = _share("ratio/outside_0.1")
    gap: float | None = _of("mismatch/mean")  # nats a token
    gap_limit: float = _share("mismatch/probe_limit")  # nats a token: twice what rounding was measured to do
    with_signal: float = _share("groups/trained")
    filtered: float = _share("groups/filtered")
    failed: float = _share("groups/failed")
    busy: float | None = _of("engine/busy_s")  # of all engines, cumulative
    alive: float | None = _of("engine/alive_s")  # of all engines, cumulative
    learner_idle: float | None = _of("learner/idle_share")  # of the step
    parts: Mapping[str, float] = field(default_factory=dict)  # of the reward, means
    tools: Mapping[str, float] = field(default_factory=dict)  # counts of tools since the workers' start
    depths: Sequence[tuple[str, float]] = ()  # the gap by the tokens before, the shortest contexts first


def read_row(metrics: Mapping[str, Any]) -> HealthRow:
    parts = {key.removeprefix(PART): mean for key, mean in metrics.items() if key.startswith(PART)}
    tools = {key.removeprefix(TOOL): count for key, count in metrics.items() if key.startswith(TOOL)}
    keys = {attribute.name: attribute.metadata["key"] for attribute in fields(HealthRow) if attribute.metadata}
    depths = _sort_depths({key: gap for key, gap in metrics.items() if key.startswith(DEPTH) and gap is not None})
    own = {name: metrics[key] for name, key in keys.items() if metrics.get(key) is not None}
    return HealthRow(parts=parts, tools=tools, depths=depths, **own)


def _sort_depths(gaps: Mapping[str, float]) -> list[tuple[str, float]]:
    """By depth, the shortest contexts first, and named: "2k to 4k". gaps: by key of the rows."""
    depths = []
    for key, gap in gaps.items():
        start, _, end = key.removeprefix(DEPTH).partition("_")
        if start.removesuffix("k").isdigit():
            depths.append(
                (int(start.removesuffix("k")), f"{start} and more" if end == "up" else f"{start} to {end}", gap)
            )
    return [(name, gap) for _, name, gap in sorted(depths)]


@dataclass(frozen=True, slots=True)
class MeanOver:
    """A mean over steps."""

    mean: float
    groups: float
    step: int  # the last of them

    @property
    def chance(self) -> float:
        """How far it may be from the truth, as a share of the distance that rewards have."""
        return thresholds.CHANCE / sqrt(self.groups)


class Level:
    """Of one mean, in the order of the steps."""

    def __init__(self) -> None:
        self._steps: deque[MeanOver] = deque()
        self._best: tuple[float, MeanOver] | None = None

    def add(self, step: int, mean: float, groups: float, distance: float) -> None:
        """distance: between the lowest and the highest reward seen."""
        self._steps.append(MeanOver(mean, max(groups, 1.0), step))
        while (
            len(self._steps) > thresholds.MEAN_STEPS
            and sum(point.groups for point in list(self._steps)[1:]) >= thresholds.MEAN_GROUPS
        ):
            self._steps.popleft()
        over = _mean_over(list(self._steps))
        sure = over.mean - over.chance * distance  # a first step of few groups must not stay the best for good
        if self._best is None or sure > self._best[0]:
            self._best = sure, over

    @property
    def best(self) -> MeanOver:
        if self._best is None:
            raise ValueError("no step yet: expected at least one")
        return self._best[1]

    @property
    def now(self) -> MeanOver:
        return _mean_over(list(self._steps)[-thresholds.MEAN_STEPS :])

    def has_fallen(self, distance: float, least: float) -> bool:
        """Whether it is below its best by more than `least`, and by more than chance takes it."""
        chance = sqrt(self.best.chance**2 + self.now.chance**2)
        return self.best.mean - self.now.mean > max(least, chance * distance)


def _mean_over(steps: list[MeanOver]) -> MeanOver:
    groups = sum(point.groups for point in steps)
    return MeanOver(sum(point.mean * point.groups for point in steps) / groups, groups, steps[-1].step)


class CutShare:
    """Of the newest steps, as many as have CUT_OVER episodes and two at least: the share that a token limit cut off."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, float]] = deque()  # episodes, and how many of them were cut off

    def add(self, row: HealthRow) -> None:
        count = max(row.episodes, 1.0)
        if thresholds.CUT - row.cut > thresholds.CUT_FALLS * sqrt(thresholds.CUT * (1 - thresholds.CUT) / count):
            self._rows.clear()  # the step is well, and those before it are over
            return
        self._rows.append((count, row.cut * count))
        while len(self._rows) > 2 and sum(number for number, _ in self._rows) - self._rows[0][0] >= thresholds.CUT_OVER:
            self._rows.popleft()

    @property
    def share(self) -> float:
        episodes, cut = _sum(list(self._rows))
        return cut / episodes if episodes else 0.0

    @property
    def falls(self) -> bool:
        """From the older half of the steps to the newer one, by more than chance does."""
        rows = list(self._rows)
        (before, old), (after, new) = _sum(rows[: len(rows) // 2]), _sum(rows[len(rows) // 2 :])
        if not before:
            return False
        chance = sqrt(self.share * (1 - self.share) * (1 / before + 1 / after))
        return old / before - new / after > thresholds.CUT_FALLS * chance


def _sum(rows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return sum(episodes for episodes, _ in rows), sum(cut for _, cut in rows)
