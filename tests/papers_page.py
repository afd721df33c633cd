"""docs/papers.md as a table: of each of its eighty rows the commands and the tests."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
_COMMAND = re.compile(r"`((?:rlsys|python benchmarks/\w+\.py) [^`]*)`")
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


@dataclass(frozen=True)
class Row:
    number: int
    commands: tuple[str, ...]
    tests: tuple[tuple[str, str], ...]  # (file below tests/, name)


def rows() -> list[Row]:
    """The numbered rows of all tables of the page."""
    table = []
    for line in PAGE.read_text().splitlines():
        number = re.match(r"\| (\d+) \|", line)
        if number is not None:
            *_, commands, tests = line.strip("|").split(" | ")
            table.append(Row(int(number[1]), tuple(_COMMAND.findall(commands)), tuple(_TEST.findall(tests))))
    return table


def commands() -> list[str]:
    """All of the page, in its rows or not."""
    return sorted(set(_COMMAND.findall(PAGE.read_text())))


@cache
def collected_in(file: str) -> frozenset[str]:
    """The tests that pytest would collect of a file below tests/; none of a file that is not there."""
    path = ROOT / "tests" / file
    if not path.is_file():
        return frozenset()
    nodes = ast.parse(path.read_text()).body
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
