"""A report without what names machines, files or tasks: curves, numbers and sentences stay."""

from __future__ import annotations

import re
from typing import Any

from launch.report.headline import BETWEEN

PATH = re.compile(r"(?<![\w.:/])(?:~|\.{1,2})?/[^\s,;'\"]+")  # /data/x, ~/runs/a; not 3/4 and not http://
ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
HIDDEN = "[hidden]"
QUOTING = ("ended_early", "health: raised")  # advice that quotes an error, in which anything can stand
TABLES = ("advice", "run", "attempts", "machines", "data", "paid", "damage", "differences", "last_events")
TEXTS = ("text",)  # of events: what a tool or a task wrote may stand in them


def redact(report: dict[str, Any]) -> dict[str, Any]:
    """Keys without their values, no command, no machine, no data, no text of a task or an event."""
    tables = {name: each for name, each in report["tables"].items() if name not in TABLES}
    if "incidents" in tables:
        rows = [[*row[:-1], ""] for row in tables["incidents"]["rows"]]
        tables["incidents"] = {**tables["incidents"], "rows": rows}
    kept: dict[str, Any] = {
        **report,
        "runs": [_without_reason(each) for each in report["runs"]],
        "advice": [_without_error(each) for each in report["advice"]],
        "tables": tables,
        "config": {"differs": [], "text": "left out (--redact)"},
        "events": [{key: own for key, own in each.items() if key not in TEXTS} for each in report["events"]],
        "sections": [
            {**each, "tables": [name for name in each["tables"] if name in tables]} for each in report["sections"]
        ],
    }
    without: dict[str, Any] = _without_paths(kept)
    return without


def _without_reason(run: dict[str, Any]) -> dict[str, Any]:
    """`failed at step 23 in 1:09: KeyError ...`: what follows was raised by somebody's code."""
    ended, *rest = run["headline"].split(BETWEEN)
    return {**run, "headline": BETWEEN.join([ended.partition(": ")[0], *rest])} if run["status"] == "failed" else run


def _without_error(advice: dict[str, Any]) -> dict[str, Any]:
    if advice["rule"] not in QUOTING:
        return advice
    text = advice["text"].partition("; the first:")[0] if advice["rule"] == QUOTING[1] else advice["text"]
    return {**advice, "text": text.partition(": ")[0] + "." if advice["rule"] == QUOTING[0] else text}


def _without_paths(value: Any) -> Any:
    """Links into the page begin with # and are no paths."""
    if isinstance(value, str):
        return value if value.startswith("#") else ADDRESS.sub(HIDDEN, PATH.sub(HIDDEN, value))
    if isinstance(value, dict):
        return {key: _without_paths(own) for key, own in value.items()}
    return [_without_paths(own) for own in value] if isinstance(value, list) else value
