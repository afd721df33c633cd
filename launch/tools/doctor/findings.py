"""A line of the doctor's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

Level = Literal["ok", "warning", "error", "skipped"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    look: str  # "limits"
    level: Level
    text: str
    cure: str = ""
    node: str = ""  # where not all nodes agree


def where_text(count: int) -> str:
    """Of what all nodes share."""
    return {1: "", 2: ", on both nodes"}.get(count, f", on all {count} nodes")


def make_finding(look: str, text: str, cure: str, node: str = "", level: Level = "error") -> Finding:
    """A refusal of ours as a finding: what stands behind its first semicolon is the way out."""
    problem, mark, way = text.partition("; ")
    return Finding(look, level, problem, way if mark else cure, node)


def node_findings(
    nodes: Sequence[tuple[str, T]], judge: Callable[[str, T], Iterable[Finding]], fine: Callable[[T], Finding]
) -> list[Finding]:
    """The findings of all nodes or, where there are none, one line for all of them."""
    findings = [finding for node, value in nodes for finding in judge(node, value)]
    if findings or not nodes:
        return findings
    return [fine(nodes[0][1])]
