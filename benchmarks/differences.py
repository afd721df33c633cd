"""How often each test finds a difference where there is none: `python benchmarks/differences.py`.

Two systems of the same mean ability answer the same tasks. A task's difficulty is normal with deviation 2.5 in logits,
and each system adds its own deviation on each task: 0 where both have the same chance of each task. Of a
test that keeps its level, the share of runs with p below it is at most that level. The second table is of intervals:
how often the true mean of one system lies within. Two minutes on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from report import Report, parser

from launch.run_dir.significance import bootstrap_interval, paired_test, proportions_z_test, share_interval

RUNS = 2_000
LEVELS = (0.05, 0.01)
DIFFICULTY = 2.5
Shares = npt.NDArray[np.float64]  # of each task the share of its samples that were right


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    tasks: int
    samples: int = 1
    seeds: int = 1  # of training: systems with separate deviations, averaged
    own: float = 0.0  # deviation of a system on a task, in logits
    harder: float = 0.0  # added to the difficulty: few are solved

    def describe(self) -> str:
        greedy = "greedy" if self.samples == 1 else f"{self.samples} samples"
        seeds = f", {self.seeds} training seeds" if self.seeds > 1 else ""
        hard = ", hard tasks" if self.harder else ""
        return f"{self.tasks} tasks, {greedy}{seeds}{hard}"


SETTINGS = (
    *(Setting(tasks=500, own=deviation) for deviation in (0.0, 0.7, 1.5)),
    *(Setting(tasks=30, own=deviation) for deviation in (0.0, 1.5)),
    *(Setting(tasks=30, harder=4.0, own=deviation) for deviation in (0.0, 1.5)),
    *(Setting(tasks=10, samples=4, own=deviation) for deviation in (0.0, 1.5)),
    *(Setting(tasks=30, samples=16, own=deviation) for deviation in (0.0, 0.7, 1.5)),
    *(Setting(tasks=30, samples=32, own=deviation) for deviation in (0.7, 1.5)),
    *(Setting(tasks=30, samples=16, harder=4.0, own=deviation) for deviation in (0.0, 1.5)),
    *(Setting(tasks=500, seeds=3, own=deviation) for deviation in (0.0, 1.5)),
)


def chance(logits: Shares) -> Shares:
    return 1 / (1 + np.exp(-logits))


def difficulties(setting: Setting, generator: np.random.Generator) -> Shares:
    return generator.normal(setting.harder, DIFFICULTY, setting.tasks)


def played(setting: Setting, difficulty: Shares, generator: np.random.Generator) -> Shares:
    """By task, the mean over training seeds."""
    shape = (setting.seeds, setting.tasks)
    right = chance(generator.normal(0, setting.own, shape) - difficulty)
    shares: Shares = (generator.binomial(setting.samples, right) / setting.samples).mean(axis=0)
    return shares


def by_tasks(setting: Setting, ours: Shares, theirs: Shares) -> tuple[str, float]:
    return paired_test((ours - theirs).tolist())


def by_proportions(setting: Setting, ours: Shares, theirs: Shares) -> tuple[str, float]:
    count = setting.samples * setting.seeds * setting.tasks
    pairs = (min(float(count), float(share.mean()) * count) for share in (ours, theirs))
    first, second = pairs
    return "z", proportions_z_test(first, count, second, count)[1]


def false_positives(setting: Setting, test: Callable[[Setting, Shares, Shares], tuple[str, float]]) -> list[str]:
    """Of each level the share, and which tests were made."""
    generator = np.random.default_rng(0)
    tests: list[tuple[str, float]] = []
    for _ in range(RUNS):
        difficulty = difficulties(setting, generator)
        tests.append(test(setting, *(played(setting, difficulty, generator) for _ in range(2))))
    names = [name for name, _ in tests]
    most = sorted(set(names), key=names.count, reverse=True)
    return [*(f"{np.mean([p < level for _, p in tests]):.3f}" for level in LEVELS), ", ".join(most)]


def covered(setting: Setting, interval: Callable[..., tuple[float, float]], truth: float) -> float:
    generator = np.random.default_rng(1)
    inside = 0
    for _ in range(RUNS):
        values = played(setting, difficulties(setting, generator), generator)
        low, high = interval(values.tolist(), resamples=1_000)
        inside += low <= truth <= high
    return inside / RUNS


def true_mean(setting: Setting) -> float:
    """Over all tasks that could have been drawn."""
    generator = np.random.default_rng(2)
    many = generator.normal(0, np.hypot(DIFFICULTY, setting.own), 4_000_000) - setting.harder
    return float(chance(many).mean())


def main(report: Report) -> None:
    report.head("setting", "own deviation", "paired .05", "paired .01", "by", "paper .05", "paper .01")
    for setting in SETTINGS:
        *paired, by = false_positives(setting, by_tasks)
        *paper, _ = false_positives(setting, by_proportions)
        report.row(setting.describe(), f"{setting.own:g}", *paired, by, *paper)
    report.head("95 % interval", "true mean", "shown", "bootstrap alone")
    for setting in (setting for setting in SETTINGS if setting.own == 1.5 and setting.seeds == 1):
        truth = true_mean(setting)
        shares = (f"{covered(setting, interval, truth):.3f}" for interval in (share_interval, bootstrap_interval))
        report.row(setting.describe(), f"{truth:.3f}", *shares)
    report.note(f"{RUNS:,} runs each: a share of .05 is known to +- .010, one of .01 to +- .004.")


if __name__ == "__main__":
    with Report(parser(__doc__).parse_args()) as shown:
        main(shown)
