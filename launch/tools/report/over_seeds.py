"""Did a setting learn? The change of its held-out results, as a mean over seeds: one seed may be luck."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launch.run_dir.directory import RunDirectory
from launch.run_dir.settings import SeedGroup
from launch.run_dir.significance import are_alike, mean_and_spread
from launch.tools.report.verdict import ERROR, Level, compare_ends, points_by_play
from launch.tools.report.words import plural, signed
from rlsys.untrusted import visible

PLAYS = 3  # that a sentence names


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanChange:
    """Over seeds: the mean of the changes from each run's first to its last evaluation, with its 95 % t-interval."""

    seeds: int
    mean: float
    low: float
    high: float

    @property
    def direction(self) -> int:
        """-1 or 1 where the interval does not contain 0, else 0. Without a spread it is no interval, but one mean: that
        all seeds have its sign happens by chance in 2 of 2**seeds, so that fewer than six show nothing."""
        if self.low == self.high and 2 ** (1 - self.seeds) >= ERROR:
            return 0
        return (self.low > 0) - (self.high < 0)

    def describe(self) -> str:
        within = f"[{signed(self.low)}, {signed(self.high)}]" if self.low < self.high else "in each"
        return f"{signed(self.mean)} {within}"


def average_changes(changes: Sequence[float]) -> MeanChange:
    """average_changes([0.1, 0.2, 0.3]) is 0.2 within 0.2 -+ 4.303 * 0.1 / sqrt(3). Seeds without a spread have the mean
    as their interval. Raises ValueError for one seed."""
    from scipy.stats import t as student  # loads much: the help of a command goes without

    if len(changes) < 2:
        raise ValueError("the spread of one seed is unknown")
    mean, spread = mean_and_spread(changes)
    deviations = float(student.ppf(0.975, len(changes) - 1))
    half = 0.0 if are_alike(changes) else deviations * spread / math.sqrt(len(changes))
    return MeanChange(seeds=len(changes), mean=mean, low=mean - half, high=mean + half)


def judge_settings(groups: Sequence[SeedGroup[RunDirectory]]) -> list[dict[str, Any]]:
    """A verdict for each setting with several seeds of which a play can be compared in all."""
    return [verdict for group in groups if (verdict := _judge_setting(group)) is not None]


def _judge_setting(group: SeedGroup[RunDirectory]) -> dict[str, Any] | None:
    ends = [_changes_by_play(run) for run in group.runs]
    plays = [play for play in ends[0] if len(ends) > 1 and all(play in changes for changes in ends)]
    if not plays:
        return None
    averages = {play: average_changes([changes[play] for changes in ends]) for play in plays}
    worse, better = ([play for play in plays if averages[play].direction == way] for way in (-1, 1))
    level: Level = "bad" if worse else "good" if better else "flat"
    decisive = {"bad": worse, "good": better, "flat": plays}[level]
    begin = {"good": "It learned", "bad": "It got worse", "flat": "No change can be shown"}[level]
    names = "" if len(decisive) == len(plays) else f" ({', '.join(decisive)})"
    moved = [f"{play} {change.describe()}" for play, change in averages.items()]
    text = (
        f"{begin} over {plural(len(ends), 'seed')}{names}. Mean change of held-out results: {'; '.join(moved[:PLAYS])}."
    )
    by_play = {play: _change_json(change) for play, change in averages.items()}
    return {"label": visible(group.label), "level": level, "text": text, "plays": by_play}


def _changes_by_play(run: RunDirectory) -> Mapping[str, float]:
    """By play, from the first evaluation to the last one of the same prompts."""
    ends = {play: compare_ends(points) for play, points in points_by_play(run).items()}
    return {play: pair[1].value - pair[0].value for play, pair in ends.items() if pair is not None}


def _change_json(change: MeanChange) -> dict[str, float]:
    return {"seeds": change.seeds, "mean": change.mean, "low": change.low, "high": change.high}
