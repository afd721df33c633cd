"""The lines of the doctor, and the same as JSON."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from launch.tools.doctor.facts import ClusterFacts, Wanted
from launch.tools.doctor.findings import Finding
from launch.tools.doctor.links import LINKS
from launch.tools.doctor.looks import LOOKS
from rlsys.untrusted import visible

WIDE = 120
NAMED = 5  # nodes in the title
MARGIN = 9  # of the level's column


def judge(facts: ClusterFacts, requirements: Wanted) -> list[Finding]:
    """Every look, in order."""
    return [finding for look in (*LOOKS, *LINKS) for finding in look(facts, requirements)]


def format_report(facts: ClusterFacts, findings: Sequence[Finding], seconds: float) -> list[str]:
    title = facts.names[0]
    if facts.network:
        more = [f"{len(facts.names) - NAMED} more"] if len(facts.names) > NAMED else []
        title = f"{len(facts.names)} nodes: {', '.join((f'{title} (driver)', *facts.names[1:NAMED], *more))}"
    lines = [f"{title:<{WIDE - 8}}{seconds:>6.0f} s"]
    for finding in findings:
        node = f"{finding.node}: " if finding.node and facts.network else ""
        lines += _wrap(f"{finding.level:<{MARGIN}}", node + finding.text)
        if finding.cure:
            lines += _wrap(" " * MARGIN, finding.cure)
    return [*lines, summarize(findings)]


def _wrap(start: str, text: str) -> list[str]:
    margin = " " * MARGIN
    return textwrap.wrap(
        visible(text),
        WIDE,
        initial_indent=start,
        subsequent_indent=margin,
        break_long_words=False,
        break_on_hyphens=False,
    )


def summarize(findings: Sequence[Finding]) -> str:
    count = Counter(finding.level for finding in findings)
    errors, warnings = count["error"], count["warning"]
    if not errors and not warnings:
        return "everything looked at is as it should be"
    return f"{errors} error{'s' * (errors != 1)}, {warnings} warning{'s' * (warnings != 1)}"


def format_json(facts: ClusterFacts, findings: Sequence[Finding], seconds: float) -> str:
    report = {
        "format": 1,
        "seconds": round(seconds, 1),
        "nodes": list(facts.names),
        "errors": sum(finding.level == "error" for finding in findings),
        "warnings": sum(finding.level == "warning" for finding in findings),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=1)
