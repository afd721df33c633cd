"""How large the house may be: functions, files, packages. Read from the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlsys", "envs", "actors", "learners", "launch")
FUNCTION_LINES, FILE_LINES = 60, 400
# The most lines of Python in each folder. Growth is a decision: a change that needs more raises the number here, and
# its commit says what the lines are worth; one that removes lines lowers it.
BUDGET = {
    "rlsys": 9_288,
    "envs": 27_676,
    "actors": 6_167,
    "learners": 5_920,
    "launch": 40_802,
    "benchmarks": 10_058,
    "tests": 89_040,
}


def files_in(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {lines} lines"


@pytest.mark.parametrize("package", PACKAGES)
def test_functions_and_files_are_short(package: str) -> None:
    sizes = {path: path.read_bytes().count(b"\n") for path in files_in(package)}
    assert [f"{path.relative_to(ROOT)} has {size} lines" for path, size in sizes.items() if size > FILE_LINES] == []
    assert [line for path in sizes for line in long_functions(path)] == []


@pytest.mark.parametrize("folder", BUDGET)
def test_a_folder_keeps_to_its_budget(folder: str) -> None:
    assert sum(path.read_bytes().count(b"\n") for path in files_in(folder)) <= BUDGET[folder]


def test_every_package_says_what_it_is() -> None:
    packages = [path for package in PACKAGES for path in files_in(package) if path.name == "__init__.py"]
    assert [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text()))] == []
    folders = {path.parent for package in PACKAGES for path in files_in(package)}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
