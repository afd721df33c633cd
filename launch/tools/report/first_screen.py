"""The first screen of a report in a few lines, for a terminal: did it learn, may it be trusted, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TRUST = {"good": "To be trusted", "bad": "Not to be trusted", "unknown": "Not known whether to be trusted"}
LEVELS = {"broken": "error", "wrong": "warning", "slow": "slow", "cheap": "cost"}  # of advice


def first_screen_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """report: as `build_report` makes it, of one run or of several."""
    runs, trust, advice = report["runs"], report.get("trust"), report.get("advice")
    for setting in report.get("settings", ()):
        yield f"{setting['label']}: {setting['text']}"
    for run in runs:
        name = f"{run.get('label') or run['name']}: " if len(runs) > 1 else ""
        yield name + run["verdict"]["text"]
    if trust:
        yield f"{TRUST[trust['level']]} {trust['text']}"
    if advice:
        key = f" ({advice[0]['key']})" if advice[0].get("key") else ""
        yield f"{LEVELS[advice[0]['level']]}: {advice[0]['text']}{key}"
