"""A report without what names machines, files or tasks: curves, numbers and sentences stay."""

from __future__ import annotations

import ipaddress
import re
from typing import Any

from launch.driver.evaluation.against import FIRST_TASK
from launch.driver.observe.meanings import meaning_of
from launch.tools.report.headline import BETWEEN

PATH = re.compile(
    r"""\b[A-Za-z][\w+.-]*://[^\s,;'"]+  # s3://bucket/x, file:///home/x
    | \b[\w.@-]+:/[^\s,;'"]+  # host:/home/x
    | \b[A-Za-z]:\\[^\s,;'"]+ | \\\\[\w.-]+\\[^\s,;'"]+  # C:\Users\x, \\host\x
    | (?<![\w.:/])(?:~\w*|\.{1,2})?/[^\s,;'"]+  # /data/x, ~/runs/a; not 3/4
    | (?<![\w./])(?:runs|[\w.-]+/[\w.-]+)/[\w./-]+  # runs/a, a/b/c; keys of rows are looked up""",
    re.VERBOSE,
)
ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
ADDRESS_6 = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f.]{0,15}(?![\w:])")
HIDDEN = "[hidden]"
ENDED, RAISED = "ended_early", "health: raised"  # advice that quotes an error, in which anything can stand
WRITTEN = "health"  # advice that is the text of an event without a sign
TABLES = ("advice", "run", "attempts", "machines", "data", "paid", "damage", "differences", "last_events")
REASONS = ("paired", "tests")  # tables with the reason why nothing is paired, which ends in a task
EVENT = ("time", "step", "stage", "kind", "detected_s", "recovered_s", "groups")  # all else may be a tool's or a task's
PARTS = ("restart", "checkpoint")  # kinds of marks that name a part of the run


def redact(report: dict[str, Any]) -> dict[str, Any]:
    """Keys without their values, no command, no machine, no data, no task, and of events the text of signs alone."""
    tables = {name: table for name, table in report["tables"].items() if name not in TABLES}
    if "incidents" in tables:
        mask = [name not in ("who", "line") for name in tables["incidents"]["columns"]]
        rows = [
            [cell if keep else "" for cell, keep in zip(row, mask, strict=True)] for row in tables["incidents"]["rows"]
        ]
        tables["incidents"] = {**tables["incidents"], "rows": rows}
    for name in (name for name in REASONS if name in tables):
        rows = [[_without_task(cell) for cell in row] for row in tables[name]["rows"]]
        tables[name] = {**tables[name], "rows": rows}
    redacted: dict[str, Any] = {
        **report,
        "runs": [_without_reasons(run) for run in report["runs"]],
        "advice": [_without_error(entry, report["runs"]) for entry in report["advice"]],
        "tables": tables,
        "config": {"differs": [], "text": "left out (--redact)"},
        "events": [{key: value for key, value in event.items() if key in EVENT} for event in report["events"]],
        "charts": {name: _without_parts(chart) for name, chart in report["charts"].items()},
        "sections": [
            {**block, "tables": [name for name in block["tables"] if name in tables]} for block in report["sections"]
        ],
    }
    without: dict[str, Any] = _without_paths(redacted)
    return without


def _without_task(cell: Any) -> Any:
    return cell.partition(FIRST_TASK)[0] + FIRST_TASK + HIDDEN if isinstance(cell, str) and FIRST_TASK in cell else cell


def _without_reasons(run: dict[str, Any]) -> dict[str, Any]:
    """`failed at step 23 in 1:09: KeyError ...`: what follows was raised by a user's code."""
    text = run["verdict"]["text"]
    if FIRST_TASK in text:  # behind the task the sentence goes on: (accuracy, greedy: 0.50 after step 23). ...
        run = {**run, "verdict": {**run["verdict"], "text": f"{_without_task(text)} ({text.rpartition(' (')[2]}"}}
    ended, *rest = run["headline"].split(BETWEEN)
    return {**run, "headline": BETWEEN.join([ended.partition(": ")[0], *rest])} if run["status"] == "failed" else run


def _without_parts(chart: dict[str, Any]) -> dict[str, Any]:
    marks = [{**mark, "label": mark["kind"]} if mark["kind"] in PARTS else mark for mark in chart["marks"]]
    return {**chart, "marks": marks}


def _without_error(advice: dict[str, Any], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Nor the command that continues the run."""
    of = f"{runs[advice['run']]['name']}: " if "run" in advice else ""  # of several runs, in which anything can stand
    text = advice["text"].removeprefix(of)
    if advice["rule"] == WRITTEN:
        return {**advice, "text": f"{of}The run's own checks found something: its events say what."}
    if advice["rule"] == ENDED:
        return {**advice, "text": f"{of}{text.partition(': ')[0].removesuffix('.')}.", "key": None}
    return {**advice, "text": of + text.partition("; the first:")[0]} if advice["rule"] == RAISED else advice


def _without_path(match: re.Match[str]) -> str:
    return match[0] if meaning_of(match[0].rstrip(".:)")) else HIDDEN


def _without_address(match: re.Match[str]) -> str:
    """0:01:09 is none."""
    try:
        ipaddress.IPv6Address(match[0].rstrip("."))
    except ValueError:
        return match[0]
    return HIDDEN


def _without_paths(value: Any) -> Any:
    """Links into the page begin with # and are no paths."""
    if isinstance(value, str):
        if value.startswith("#"):
            return value
        return ADDRESS_6.sub(_without_address, ADDRESS.sub(HIDDEN, PATH.sub(_without_path, value)))
    if isinstance(value, dict):
        return {key: _without_paths(child) for key, child in value.items()}
    return [_without_paths(child) for child in value] if isinstance(value, list) else value
