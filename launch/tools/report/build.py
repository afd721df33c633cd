"""The whole of a report as plain data: what report.json holds, and what the page shows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import yaml

from launch.driver.observe.meanings import meaning_of
from launch.run_dir.directory import RunDirectory
from launch.run_dir.episodes import Episodes
from launch.run_dir.settings import group_runs
from launch.tools.report.advice import ORDER
from launch.tools.report.advise import advise
from launch.tools.report.chart_table import SECTIONS
from launch.tools.report.charts import REST, colour_labels, make_charts
from launch.tools.report.compare import MOST_DRAWN, Groups, advise_more_seeds, compare_tables, merge_seeds
from launch.tools.report.cost import make_cost_table
from launch.tools.report.facts import all_stages, main_stage
from launch.tools.report.headline import headline
from launch.tools.report.over_seeds import judge_settings
from launch.tools.report.seconds import account_for_seconds
from launch.tools.report.tables import TableSource, make_tables
from launch.tools.report.tiles import make_tiles, most_serious_tiles, rollout_fidelity_verdict
from launch.tools.report.verdict import Verdict, judge_learning
from launch.tools.report.words import json_scalar
from rlsys.untrusted import visible

FORMAT = 1
EVENTS = 200  # the newest: a page's table, and events.jsonl has all
HOME = re.compile(r"(?<![\w.])/(?:home|Users)/[^/\s\"']+")
Report = dict[str, Any]


def build_report(
    runs: Sequence[RunDirectory],
    episodes: Sequence[Episodes | None],
    *,
    price: float | None = None,
    anonymous: bool = False,
) -> Report:
    """episodes: of each run; None where they are not looked at. One run by itself, or several side by side.

    anonymous: settings are numbered, for their names hold values of the configuration.
    """
    verdicts = [judge_learning(run) for run in runs]
    if len(runs) == 1:
        return _single_run_report(runs[0], verdicts[0], episodes[0], price)
    groups = group_runs(runs)
    if anonymous:
        groups = tuple(replace(group, label=f"setting {number}") for number, group in enumerate(groups, start=1))
    return _comparison_report(runs, verdicts, episodes, groups)


def _single_run_report(run: RunDirectory, verdict: Verdict, episodes: Episodes | None, price: float | None) -> Report:
    advice, stage = advise(run, verdict, episodes), main_stage(run)
    tables = make_tables(TableSource(run=run, stages=all_stages(run), episodes=episodes, advice=advice))
    cost = make_cost_table(run, price)
    if cost is not None:
        tables["cost"] = cost
    charts = make_charts([run], [""])
    colour_labels(charts)
    tiles = make_tiles(stage) if stage is not None else []
    return {
        "format": FORMAT,
        "title": visible(run.path.name),
        "runs": [_run_json(run, "", verdict)],
        "trust": rollout_fidelity_verdict(tiles, run.state) if stage is not None else None,
        "tiles": [tile.to_json() for tile in most_serious_tiles(tiles)],
        "advice": [entry.to_json() for entry in advice],
        "time": _with_phase_colours(account_for_seconds(stage), charts)
        if stage is not None
        else {"total_s": 0.0, "parts": []},
        "sections": _sections_with_content(charts, tables),
        "charts": charts,
        "tables": tables,
        "config": {"differs": _typed_overrides(run), "text": _config_text(run)},
        "numbers": column_summaries(run),
        "events": [_event_json(event) for event in run.events[-EVENTS:]],
    }


def _comparison_report(
    runs: Sequence[RunDirectory], verdicts: Sequence[Verdict], episodes: Sequence[Episodes | None], groups: Groups
) -> Report:
    label_of = {run: group.label for group in groups for run in group.runs}
    labels = [label_of[run] for run in runs]
    charts = merge_seeds(make_charts(runs, labels), labels) if len(runs) <= MOST_DRAWN else {}
    colour_labels(charts, compared=True)
    advice: list[dict[str, Any]] = [entry.to_json() for entry in advise_more_seeds(groups)]
    for at, (run, verdict, run_episodes) in enumerate(zip(runs, verdicts, episodes, strict=True)):
        for entry in advise(run, verdict, run_episodes):
            advice.append({"run": at, **entry.to_json(), "text": f"{visible(run.path.name)}: {entry.text}"})
    advice.sort(key=lambda entry: ORDER.index(entry["level"]))
    tables = compare_tables(runs, labels, verdicts, groups)
    return {
        "format": FORMAT,
        "title": visible(", ".join(run.path.name for run in runs[:4]) + (" ..." if len(runs) > 4 else "")),
        "settings": judge_settings(groups),
        "runs": [_run_json(run, label, verdict) for run, label, verdict in zip(runs, labels, verdicts, strict=True)],
        "tiles": [],
        "advice": advice,
        "time": {"total_s": 0.0, "parts": []},
        "sections": _sections_with_content(charts, tables),
        "charts": charts,
        "tables": tables,
        "config": {"differs": [], "text": _config_text(runs[0])},
        "numbers": {},
        "events": [],
    }


def _with_phase_colours(time: dict[str, Any], charts: Mapping[str, Any]) -> dict[str, Any]:
    """With the colour of each phase in the chart of seconds. The rest is grey."""
    colours = {series["label"]: series["colour"] for series in charts.get("seconds", {}).get("series", ())}
    parts = [{**part, "colour": colours.get(part["label"], REST)} for part in time["parts"]]
    return {**time, "parts": parts}


def _run_json(run: RunDirectory, label: str, verdict: Verdict) -> dict[str, Any]:
    name = visible(run.path.name)
    return {
        "name": name,
        "label": f"{name} ({label})" if label and label != name else name,
        "status": run.state,
        "headline": headline(run),
        "verdict": {"level": verdict.level, "text": verdict.text, **_paired_test_json(verdict)},
    }


def _paired_test_json(verdict: Verdict) -> dict[str, Any]:
    """The numbers of the sentence, unrounded."""
    paired, before, after = verdict.paired, verdict.before, verdict.after
    if paired is None or before is None or after is None:
        return {}
    numbers = {"tasks": paired.tasks, "difference": paired.difference, "low": paired.low, "high": paired.high}
    return {"paired": {**numbers, "test": paired.test, "p": paired.p, "before": before.value, "after": after.value}}


def _sections_with_content(charts: Mapping[str, Any], tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that have something to show. Tables of a comparison come first."""
    sections = [
        {"id": section.id, "question": section.question, "open": section.open}
        | {"charts": [name for name in section.charts if name in charts]}
        | {"tables": [name for name in section.tables if name in tables]}
        for section in SECTIONS
    ]
    placed = {name for section in SECTIONS for name in section.tables}
    unplaced = [name for name in tables if name not in placed]
    compared = {"id": "compared", "question": "How do they differ?", "open": True, "charts": [], "tables": unplaced}
    filled = [section for section in sections if section["charts"] or section["tables"]]
    return [compared, *filled] if unplaced else filled


def column_summaries(run: RunDirectory) -> dict[str, Any]:
    """Of every key of the rows: what it means, its last, its lowest and its highest value."""
    numbers = {}
    for key in sorted(run.rows.columns):
        values = run.rows.known(key)
        if len(values):
            ends = {"last": float(values[-1]), "min": float(np.min(values)), "max": float(np.max(values))}
            numbers[key] = {
                "about": meaning_of(key),
                **{n: end if math.isfinite(end) else None for n, end in ends.items()},
            }
    return numbers


def _typed_overrides(run: RunDirectory) -> list[str]:
    """What was typed in addition to the recipe."""
    overrides = run.newest_start.overrides
    if overrides is not None:
        return [visible(override) for override in overrides]
    words = str(run.summary.get("command") or "").split()
    return [visible(word) for word in words if "=" in word and not word.startswith("-")]


def _config_text(run: RunDirectory) -> str:
    """As YAML, without the names of home folders: the page is sent to others."""
    return HOME.sub("~", yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True))


def _event_json(event: Mapping[str, Any]) -> dict[str, Any]:
    """Texts are a model's or a tool's: bounded, and nothing in them drives a terminal."""
    bounded = {visible(str(key)[:80]): json_scalar(value) for key, value in list(event.items())[:20]}
    return {key: value[:2000] if isinstance(value, str) else value for key, value in bounded.items()}
