"""The tables of a report: what was evaluated, run, paid, filtered, broken, spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from launch.driver.evaluation.against import Paired, pair_settings
from launch.run_dir.directory import RunDirectory
from launch.run_dir.episodes import Episodes
from launch.tools.report.advice import Advice
from launch.tools.report.by_env import rows_by_env
from launch.tools.report.facts import Stage, count_groups
from launch.tools.report.kept import wrong_answer_threshold
from launch.tools.report.rules import EXAMPLES
from launch.tools.report.seconds import phase_label, seconds_by_phase, tokens_by_fate
from launch.tools.report.split import MEMORY, memory_slope
from launch.tools.report.verdict import compare_ends, points_by_play
from launch.tools.report.words import json_scalar, mean, number, p_value, plural, score, share, total

INCIDENTS = ("restart", "lost", "refused", "stall", "delivery_late", "stop")
MOST = 1_000  # rows of a table
TAIL = 8  # events
TEXT = 500  # characters of a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource:
    """What tables are made of."""

    run: RunDirectory
    stages: Sequence[Stage]
    episodes: Episodes | None
    advice: Sequence[Advice]


def make_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], links: Sequence[Sequence[Any]] | None = None
) -> dict[str, Any] | None:
    """None of no rows. links: [row, address]."""
    if not rows:
        return None
    cells = [[_table_cell(value) for value in row] for row in rows[:MOST]]
    more = f" ({MOST:,} of {len(rows):,})" if len(rows) > MOST else ""
    kept_links = [list(link) for link in links if link[0] < MOST] if links else None
    return {"title": title + more, "columns": list(columns), "rows": cells, "links": kept_links}


def _table_cell(value: Any) -> Any:
    cell = json_scalar(value)
    if isinstance(cell, str) and len(cell) > TEXT:
        return f"{cell[:TEXT]} ... ({len(cell):,} characters)"
    return cell


def make_tables(looked: TableSource) -> dict[str, Any]:
    tables = {name: make(looked) for name, make in TABLES.items()}
    return {name: content for name, content in tables.items() if content is not None}


def _evaluation_table(looked: TableSource) -> dict[str, Any] | None:
    rows: list[list[Any]] = []
    links: list[list[Any]] = []
    for play, points in points_by_play(looked.run).items():
        for point in points:
            row, low_high = point.of.row, point.interval
            passes = [
                f"{key} {score(rate.value)}" for key, rate in point.result.numbers.items() if key.startswith("pass@")
            ]
            links.append([len(rows), f"#t?step={point.of.step}&play=={play}&when=={point.of.when}"])
            rows.append(
                [
                    *(point.of.step, point.of.stage, point.of.when, play, point.result.measure, score(point.value)),
                    f"{score(low_high[0])} to {score(low_high[1])}" if low_high else "",
                    row.get(f"{play}/episodes"),
                    row.get(f"{play}/failures"),
                    ", ".join(passes),
                ]
            )
    columns = ("step", "stage", "when", "play", "measure", "value", "95 % interval", "episodes", "failures", "pass@k")
    return make_table("Evaluations on held-out tasks", columns, rows, links)


def _paired_test_table(looked: TableSource) -> dict[str, Any] | None:
    """Of each play, and of each stage that has an evaluation before and after."""
    rows = []
    for play, points in points_by_play(looked.run).items():
        pairs = [("whole run", compare_ends(points))]
        for stage in dict.fromkeys(point.of.stage for point in points):
            ends = compare_ends([point for point in points if point.of.stage == stage])
            if ends != pairs[0][1]:
                pairs.append((f"stage {stage}", ends))
        for name, ends in pairs:
            paired = pair_settings([ends[1].result], [ends[0].result]) if ends else None
            if ends and isinstance(paired, Paired):
                moved = f"{paired.difference:+.3f}", f"{paired.low:+.3f} to {paired.high:+.3f}"
                row = [name, play, score(ends[0].value), score(ends[1].value), paired.tasks, *moved]
                rows.append([*row, paired.test, p_value(paired.p)])
            elif isinstance(paired, str):
                rows.append([name, play, "", "", None, "", paired, "", ""])
    columns = ("of", "play", "before", "after", "tasks", "difference", "95 % interval", "test", "p")
    return make_table("Before and after, on the same tasks", columns, rows)


def _run_table(looked: TableSource) -> dict[str, Any] | None:
    run, newest = looked.run, looked.run.newest_start
    words = " ".join(newest.command) or str(run.summary.get("command") or "")
    lock = newest.lock
    rows: list[Sequence[Any]] = [
        ("recipe", str(run.record.get("recipe") or run.config.get("name"))),
        ("seed", str(run.config.get("seed"))),
        ("command", words),
        ("overrides", " ".join(newest.overrides or ())),
        ("continues with", f"{words} (the same command)" if words and run.state != "done" else ""),
        ("version", newest.version or ""),
        ("commit", (newest.commit or "") + (" with changes" if newest.dirty else "")),
        ("source", newest.source or ""),
        ("python", newest.python or ""),
        ("platform", newest.platform or ""),
        ("lock", f"{lock.file} {str(lock.sha256)[:12]}" if lock is not None else ""),
        ("not as in the lock", _format_pairs(newest.differs)),
        ("packages", _format_pairs(newest.packages) or _format_pairs(run.summary.get("versions"))),
    ]
    return make_table("This run", ("", ""), [row for row in rows if row[1]])


def _format_pairs(values: Any) -> str:
    """torch 2.13.0, ray 2.60.0"""
    if not isinstance(values, dict):
        return ""
    texts = {key: " != ".join(map(str, value)) if isinstance(value, list) else value for key, value in values.items()}
    return ", ".join(f"{key} {value}" for key, value in texts.items())


def _attempt_table(looked: TableSource) -> dict[str, Any] | None:
    starts = looked.run.starts
    if len(starts) < 2:
        return None
    rows = [
        [at, str(start.utc), start.from_step, str(start.version), " ".join(start.overrides or ())]
        for at, start in enumerate(starts, start=1)
    ]
    return make_table("Attempts", ("", "began (UTC)", "from step", "version", "overrides"), rows)


def _machine_table(looked: TableSource) -> dict[str, Any] | None:
    rows = []
    for node in looked.run.newest_start.nodes:
        gpus = f"{node.gpus.count} x {node.gpus.name}" if node.gpus is not None else "none"
        rows.append([str(node.name), node.cores, node.memory_gb, gpus, ", ".join(node.parts)])
    return make_table("Machines", ("node", "cores", "memory, GB", "GPUs", "parts"), rows)


def _data_table(looked: TableSource) -> dict[str, Any] | None:
    files = looked.run.newest_start.data
    rows = [[path, file.bytes, file.sha256 or "not computed"] for path, file in files.items()]
    return make_table("Data", ("file", "bytes", "SHA-256"), rows)


def _advice_table(looked: TableSource) -> dict[str, Any] | None:
    rows: list[list[Any]] = []
    links: list[list[Any]] = []
    for entry in looked.advice:
        if entry.href:
            links.append([len(rows), entry.href])
        steps = f"{entry.steps[0]} to {entry.steps[1]}" if entry.steps else ""
        rows.append([entry.level, entry.text, entry.key or "", steps])
    return make_table("Advice", ("level", "what", "key", "steps"), rows, links)


def _paid_but_wrong_table(looked: TableSource) -> dict[str, Any] | None:
    """The best paid training episodes whose answer is wrong: where a reward is gamed, it shows here first. The list
    shows the same by its link "paid but wrong"."""
    episodes = looked.episodes
    if episodes is None or not len(episodes):
        return None
    columns, paid = episodes.columns, wrong_answer_threshold(episodes)
    wrong = np.flatnonzero(episodes.in_training & (columns["correct"] == 0) & (columns["reward"] > paid))
    order = wrong[np.lexsort((wrong, -columns["reward"][wrong]))][:EXAMPLES]
    rows = [
        [
            f"{_file_stem(episodes, row)}:{columns['sequence'][row]}.{columns['sibling'][row]}",
            *(number(float(columns["reward"][row])), int(columns["tokens"][row]), episodes.text("end", row) or ""),
            episodes.text("task_id", row) or "",
        ]
        for row in order.tolist()
    ]
    links = [[at, f"#t/{row[0]}"] for at, row in enumerate(rows)]
    than = f"{number(paid)} for one, half of what a right one usually gets" if paid else "0 for one"
    title = f"Paid most with a wrong answer ({plural(len(wrong), 'episode')} paid more than {than})"
    return make_table(title, ("episode", "reward", "tokens", "end", "task"), rows, links)


def _file_stem(episodes: Episodes, row: int) -> str:
    return str(episodes.text("file", row)).removesuffix(".gz").removesuffix(".jsonl")


def _environment_table(looked: TableSource) -> dict[str, Any] | None:
    """Of stages with several: what each of them got and gave."""
    rows = [[stage.name, *row] for stage in looked.stages for row in rows_by_env(stage)]
    columns = (
        *("stage", "environment", "groups", "share", "without signal", "failed"),
        *("reward, first steps", "last steps", "right, first steps", "right, last steps", "tokens an episode"),
    )
    return make_table("Environments", columns, rows)


def _signal_table(looked: TableSource) -> dict[str, Any] | None:
    rows = []
    for stage in looked.stages:
        groups = count_groups(stage.rows)
        if groups.without_signal is not None:
            more = number(total(stage.rows.known("groups/oversampled")))
            counts = (number(count) for count in (groups.trained, groups.filtered, groups.failed))
            rows.append([stage.name, *counts, more, share(groups.without_signal)])
    columns = ("stage", "trained", "without signal", "failed", "replaced", "share without signal")
    return make_table("Groups", columns, rows)


def _episode_end_table(looked: TableSource) -> dict[str, Any] | None:
    """Of training episodes that were written."""
    return _count_table(looked, "end", "How training episodes ended", "end")


def _failure_table(looked: TableSource) -> dict[str, Any] | None:
    return _count_table(looked, "failure", "Failures by kind, of training episodes that were written", "failed")


def _count_table(looked: TableSource, name: str, title: str, ask: str) -> dict[str, Any] | None:
    episodes = looked.episodes
    if episodes is None or not len(episodes):
        return None
    column = episodes.columns[name][episodes.in_training]
    counts = np.bincount(column[column >= 0], minlength=len(episodes.texts[name]))
    order = sorted(np.flatnonzero(counts).tolist(), key=lambda at: -counts[at])
    texts = [episodes.texts[name][at] for at in order]
    rows = [[text, int(counts[at]), share(counts[at] / len(column))] for text, at in zip(texts, order, strict=True)]
    links = [[at, f"#t?{ask}={text}&play=none"] for at, text in enumerate(texts)]
    return make_table(title, (name, "episodes", "share"), rows, links)


def _incident_table(looked: TableSource) -> dict[str, Any] | None:
    rows = [
        [
            *(format_utc(event.time), event.step, event.kind, event.who),
            *(_format_seconds(event.detected_s), _format_seconds(event.recovered_s), event.groups, event.text),
        ]
        for event in looked.run.events_of(*INCIDENTS)
    ]
    columns = (
        "time (UTC)",
        "step",
        "what",
        "who",
        "noticed after, s",
        "recovered after, s",
        "groups played again",
        "line",
    )
    return make_table("Incidents", columns, rows)


def _last_event_table(looked: TableSource) -> dict[str, Any] | None:
    """Of a run that did not end by itself: what it did last."""
    if looked.run.state not in ("killed", "failed"):
        return None
    rows = [[format_utc(event.time), event.step, event.kind, event.text] for event in looked.run.events_of()[-TAIL:]]
    return make_table("The last events", ("time (UTC)", "step", "what", "line"), rows)


def format_utc(seconds: float) -> str:
    """2026-11-23 02:37:33; empty of what is no time."""
    if not 0 < seconds < 2**40:
        return ""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def _format_seconds(value: float | None) -> str:
    return "" if value is None else number(float(value))


def _damage_table(looked: TableSource) -> dict[str, Any] | None:
    lines = [*looked.run.damage, *(looked.episodes.damage if looked.episodes is not None else ())]
    return make_table("Damaged files", ("what could not be read",), [[line] for line in lines])


def _time_table(looked: TableSource) -> dict[str, Any] | None:
    rows = []
    for stage in looked.stages:
        spent = total(stage.rows.known("time/step"))
        for phase, seconds in seconds_by_phase(stage.rows).items():
            per = number(seconds / len(stage.rows))
            rows.append(
                [stage.name, phase_label(phase), number(seconds), per, share(seconds / spent if spent else None)]
            )
    return make_table("Seconds by stage", ("stage", "phase", "seconds", "a step", "share"), rows)


def _token_table(looked: TableSource) -> dict[str, Any] | None:
    rows = []
    for stage in looked.stages:
        sampled = total(stage.rows.known("tokens/generated"))
        fates = tokens_by_fate(stage.rows) if sampled else {}
        fates |= {"too old to train": total(stage.rows.known("tokens/stale"))} if sampled else {}
        fates |= {"of episodes that were cut off": total(stage.rows.known("tokens/truncated"))} if sampled else {}
        fates["trained"] = total(stage.rows.known("tokens/trained"))
        fates["through the learner"] = total(stage.rows.known("tokens/packed"))
        fates["discarded, with attempts that failed"] = total(stage.rows.known("tokens/discarded"))
        for fate, count in fates.items():
            if count:
                rows.append([stage.name, fate, number(count), share(count / sampled) if sampled else ""])
    return make_table("Tokens by stage", ("stage", "tokens", "count", "share of the sampled ones"), rows)


def _memory_table(looked: TableSource) -> dict[str, Any] | None:
    rows = []
    for stage in looked.stages:
        for key, role in MEMORY.items():
            values, slope = stage.rows.known(key), memory_slope(stage, key)
            if len(values):
                groups = mean(stage.rows.column("groups/trained") + stage.rows.column("groups/filtered"))
                size = stage.setting("loop.group_size")
                episodes = groups * size if groups and type(size) is int else None
                grows = number(1000 * slope / episodes) if slope is not None and episodes else "no slope"
                rows.append([stage.name, role, number(float(values[-1])), number(float(values.max())), grows])
    return make_table("Memory, MiB", ("stage", "role", "last", "most", "growth per 1,000 trajectories"), rows)


TABLES: Mapping[str, Callable[[TableSource], dict[str, Any] | None]] = {
    "evaluations": _evaluation_table,
    "paired": _paired_test_table,
    "run": _run_table,
    "attempts": _attempt_table,
    "machines": _machine_table,
    "data": _data_table,
    "advice": _advice_table,
    "paid": _paid_but_wrong_table,
    "environments": _environment_table,
    "signal": _signal_table,
    "ends": _episode_end_table,
    "failures": _failure_table,
    "incidents": _incident_table,
    "last_events": _last_event_table,
    "damage": _damage_table,
    "time": _time_table,
    "tokens": _token_table,
    "memory": _memory_table,
}
