"""Code that only tests call is code that nobody runs: each function and class is named somewhere outside tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.paths import ROOT

PACKAGES = ("rlsys", "envs", "actors", "learners", "launch")
CALLERS = (*PACKAGES, "benchmarks", "deploy", "docs")
TEXTS = ("configs", "deploy", "pyproject.toml", "Makefile", "mkdocs.yml")  # name code too: entry points, rewards
CALLED_BY_LIBRARIES = {
    "emit": "logging",
    "compute_hash": "vLLM, of its configuration",
    "log_engine_initialized": "vLLM, of a logger of statistics",
    "on_message_begin": "llhttp",
    "on_header": "llhttp",
    "on_body": "llhttp",
    "on_message_complete": "llhttp",
    "start_call": "Arrow Flight, of a middleware",
    "preserves_storage_sharing": "DeepSpeed",
    "get_source": "jinja2",
}
A_NAME = re.compile(r"[\w.:/-]+")  # of a text that may name code: "rl_load", "launch.cli:main"
IN_TEXT = re.compile(r"\w+")


def uses(tree: ast.AST) -> Iterator[str]:
    """Names that are read, and texts that are nothing but a name. An import alone is no use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and A_NAME.fullmatch(node.value):
            yield from IN_TEXT.findall(node.value)


def definitions(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("__"):
            yield node.name


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


def files(names: Iterable[str], *endings: str) -> Iterator[Path]:
    for name in names:
        path = ROOT / name
        yield from [path] if path.is_file() else (file for file in path.rglob("*") if file.suffix in endings)


def unused(defined: Iterable[Path], callers: Iterable[Path], texts: Iterable[Path]) -> dict[str, str]:
    """Definitions that no caller and no text names: name -> file."""
    used = {name for path in callers for name in uses(tree_of(path))}
    used |= {name for path in texts for name in IN_TEXT.findall(path.read_text(encoding="utf-8"))}
    return {name: str(path) for path in defined for name in definitions(tree_of(path)) if name not in used}


def test_nothing_is_there_for_tests_alone() -> None:
    names = unused(files(PACKAGES, ".py"), files(CALLERS, ".py"), files(TEXTS, ".yaml", ".yml", ".sh", ".toml"))
    assert {name: file for name, file in names.items() if name not in CALLED_BY_LIBRARIES} == {}
    assert set(CALLED_BY_LIBRARIES) <= set(names), "what is used by now needs no exception"


def test_a_function_that_nothing_calls_is_seen(tmp_path: Path) -> None:
    code, text = tmp_path / "code.py", tmp_path / "recipe.yaml"
    code.write_text(
        """
def called(): "It does not call `dead`, nor _dead."
def dead(): ...
def _dead(): ...
def by_recipe(): ...
class Kept:
    def remote(self): ...
    def dead_method(self): ...
called(); Kept(); ask("remote")
"""
    )
    text.write_text("reward: code.by_recipe\n")
    assert set(unused([code], [code], [text])) == {"dead", "_dead", "dead_method"}
