"""Several runs side by side: how they differ, what each came to, and whether the difference is more than chance."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from launch.driver.evaluation.against import Paired, describe_config_differences, pair_settings
from launch.run_dir.directory import RunDirectory
from launch.run_dir.played import EvalResult
from launch.run_dir.settings import SeedGroup, differing_keys, flatten
from launch.run_dir.significance import mean_and_spread
from launch.tools.report.advice import Advice
from launch.tools.report.charts import round_value
from launch.tools.report.facts import main_stage
from launch.tools.report.headline import last_step
from launch.tools.report.tables import make_table
from launch.tools.report.tiles import make_tiles
from launch.tools.report.verdict import Verdict, points_by_play
from launch.tools.report.words import mean, number, p_value, plural, score
from rlsys.untrusted import visible

MOST_DRAWN = 8  # runs in charts; more are a table
IGNORED = ("wandb", "about")
Groups = Sequence[SeedGroup[RunDirectory]]


def compare_tables(
    runs: Sequence[RunDirectory], labels: Sequence[str], verdicts: Sequence[Verdict], groups: Groups
) -> dict[str, Any]:
    tables = {
        "differences": _config_table(runs),
        "verdicts": _verdict_table(runs, labels, verdicts),
        "settings": _setting_table(groups),
        "trust": _trust_table(runs),
        "tests": _significance_table(groups),
    }
    return {name: content for name, content in tables.items() if content is not None}


def _config_table(runs: Sequence[RunDirectory]) -> dict[str, Any] | None:
    """Keys that not all runs have the same value of."""
    flats = [dict(flatten({key: value for key, value in run.config.items() if key not in IGNORED})) for run in runs]
    rows = [
        [key, *(_config_text(flat[key]) if key in flat else "absent" for flat in flats)]
        for key in differing_keys(flats)
    ]
    return make_table("Differences of configuration", ("key", *(run.path.name for run in runs)), rows)


def _config_text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _verdict_table(
    runs: Sequence[RunDirectory], labels: Sequence[str], verdicts: Sequence[Verdict]
) -> dict[str, Any] | None:
    rows = []
    for run, label, verdict in zip(runs, labels, verdicts, strict=True):
        stage, before, after, paired = main_stage(run), verdict.before, verdict.after, verdict.paired
        reward = mean(stage.last.known("reward/mean")) if stage is not None else None
        moved = f"{paired.difference:+.3f} [{paired.low:+.3f}, {paired.high:+.3f}]" if paired else ""
        ends = [after.play if after else "", before.describe() if before else "", after.describe() if after else ""]
        tests = [moved, p_value(paired.p) if paired else ""]
        rows.append([run.path.name, label, run.state, last_step(run), *ends, *tests, number(reward)])
    columns = ("run", "setting", "state", "steps", "play", "before", "after", "difference", "p", "reward, last steps")
    return make_table("Verdicts", columns, rows)


def _trust_table(runs: Sequence[RunDirectory]) -> dict[str, Any] | None:
    """The tiles of a single run's page, a row for each run."""
    stages = [main_stage(run) for run in runs]
    tiles = [{tile.label: tile for tile in make_tiles(stage)} if stage is not None else {} for stage in stages]
    labels = list(dict.fromkeys(label for run_tiles in tiles for label in run_tiles))
    rows = []
    for run, page in zip(runs, tiles, strict=True):
        cells = (f"{page[label].value} ({page[label].note})" if label in page else "" for label in labels)
        rows.append([run.path.name, *cells])
    return make_table("May they be trusted?", ("run", *labels), rows)


def _last_results(runs: Sequence[RunDirectory]) -> dict[str, list[EvalResult]]:
    """By play, the last evaluation of each run, of those that came as far as the one that came furthest."""
    by_play: dict[str, list[EvalResult]] = {}
    ends = [(play, points[-1]) for run in runs for play, points in points_by_play(run).items()]
    for play in dict.fromkeys(play for play, _ in ends):
        last_points = [point for name, point in ends if name == play]
        furthest = max(point.of.step for point in last_points)
        by_play[play] = [point.result for point in last_points if point.of.step == furthest]
    return by_play


def _setting_table(groups: Groups) -> dict[str, Any] | None:
    """The mean over seeds, where a setting has several."""
    if all(len(group.runs) == 1 for group in groups):
        return None
    rows = []
    for group in groups:
        for play, results in _last_results(group.runs).items():
            value, spread = mean_and_spread([result.numbers[result.key].value for result in results])
            deviation = score(spread) if len(results) > 1 else "unknown"
            rows.append([group.label, play, len(results), score(value), deviation])
    columns = ("setting", "play", "seeds", "last evaluation, mean", "standard deviation")
    return make_table("Settings", columns, rows)


def _significance_table(groups: Groups) -> dict[str, Any] | None:
    """Every setting against the first, on the tasks that both have played; seeds are averaged first."""
    rows = []
    first = _last_results(groups[0].runs)
    for group in groups[1:]:
        theirs = _last_results(group.runs)
        for play in (name for name in first if name in theirs):
            paired = pair_settings(theirs[play], first[play])
            pair = f"{group.label} against {groups[0].label}"
            if isinstance(paired, Paired):
                remark = describe_config_differences(theirs[play], first[play])
                moved = [f"{paired.difference:+.3f}", f"{paired.low:+.3f} to {paired.high:+.3f}"]
                rows.append([pair, play, paired.tasks, *moved, paired.test, p_value(paired.p), remark])
            else:
                rows.append([pair, play, None, "", "", "", "", paired])
    columns = ("settings", "play", "tasks", "difference", "95 % interval", "test", "p", "remark")
    return make_table("Last evaluations on the same tasks", columns, rows)


def advise_more_seeds(groups: Groups) -> list[Advice]:
    """A difference of two runs may be that of two seeds."""
    alone = [group for group in groups if len(group.runs) == 1]
    if len(groups) < 2 or not alone:
        return []
    cause = "One seed each" if len(alone) == len(groups) else f"{plural(len(alone), 'setting')} with a single seed"
    text = f"{cause}: this difference may be chance. Run each setting with other seeds, and give all of them."
    used_seeds = [run.config.get("seed") for group in groups for run in group.runs]
    free = next(seed for seed in itertools.count() if seed not in used_seeds)
    return [Advice(rule="seeds", level="wrong", text=text, key=f"seed={free}", numbers={"alone": float(len(alone))})]


def merge_seeds(charts: Mapping[str, Any], labels: Sequence[str]) -> dict[str, Any]:
    """Series of one setting become one: their mean, with the standard deviation over seeds as a band.

    labels: of the runs, equal for seeds of one setting.
    """
    return {name: {**chart, "series": _merge_series(chart["series"], labels)} for name, chart in charts.items()}


def _merge_series(series: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[dict[str, Any]]:
    by_line: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for line in series:
        by_line.setdefault((labels[line["run"]], line["label"], line["stage"], line["kind"]), []).append(line)
    return [dict(seeds[0]) if len(seeds) == 1 else _mean_series(seeds) for seeds in by_line.values()]


def _mean_series(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """At each step over the seeds that have it."""
    values: dict[int, list[float]] = {}
    for line in seeds:
        for x, y in zip(line["x"], line["y"], strict=True):
            values.setdefault(x, []).extend([] if y is None else [y])
    xs = sorted(values)
    points = [mean_and_spread(values[x]) if values[x] else None for x in xs]
    several = [len(values[x]) > 1 for x in xs]
    ends = [
        [
            round_value(point[0] + sign * point[1]) if point and more else None
            for point, more in zip(points, several, strict=True)
        ]
        for sign in (-1, 1)
    ]
    label = f"{visible(str(seeds[0]['label']))} ({plural(len(seeds), 'seed')})"
    y = [round_value(point[0]) if point else None for point in points]
    return {**seeds[0], "label": label, "x": xs, "y": y, "low": ends[0], "high": ends[1], "hours": None, "tokens": None}
