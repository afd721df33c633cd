"""Every constant that stands for a time, a size, a level or a count has its reason beside it, or none is needed.

`test_sizes` plays what follows from a model's size through three runs. Here a new number is found that nobody has
justified: put a comment on its line or above it, derive it, or make it a key.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("rlsys", "actors", "learners", "launch")
HARMLESS = {  # why: what it is true of, as `file: constant`
    "letters of a digest": r"blake2b\(digest_size\)|commit_of\(digits\)",
    "a unit": r" (GB|MIB|DAY_S|HOUR|UNITS|BYTES)$",
    "facts of a model": r"launch/checks/(known_models|packaged)\.py",
    "facts of a published step, each with its page": r"launch/tools/plan/published\.py: (PublishedStep|replace)\(",
    "columns and letters of what people read": r" (WIDE|WIDTH)$|launch/tools/analysis/|nearest\(alike\)|most_zero",
    "rounding": r" (TINY)$|\(eps\)$",
    "statistics, each with its reason": r"/(evaluation|run_dir)/.* (RESAMPLES|\w+\((confidence|resamples)\))$",
    "a warm-up that is thrown away": r"actors/engine\.py: TurnRequest\(max_tokens\)|simulate\(skip\)",
    "the table of devices, with its reasons above each": r"rlsys/system/device\.py: ",
    "levels, each a record with its reason": r"launch/driver/observe/signs\.py: Proof",
    "fields of a table with a name for each": r"launch/driver/observe/exported\.py: |SHARES$",
}
SIZED = re.compile(  # names of arguments that hold a time, a size or a count
    r"timeout|deadline|limit|most|least|max_|capacity|attempts|retries|maxlen|maxsize|_(s|mb|bytes|tokens)$"
)
TAKING = ("LRUCache", "lru_cache", "deque", "Semaphore", "ThreadPoolExecutor", "Queue", "sleep", "wait", "join")
Found = tuple[str, int, int]  # its name, first and last line


def is_number(node: ast.AST | None) -> bool:
    """Of numbers alone: 60.0, 2 * LOOK_S, (5, 0.05), {"cpu": 4}; but 0 and 1, which are no size."""
    if not isinstance(node, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.List | ast.Dict):
        return False
    if isinstance(node, ast.Dict):
        return bool(node.values) and all(map(is_number, node.values))
    if isinstance(node, ast.Tuple | ast.List):
        return bool(node.elts) and all(map(is_number, node.elts))
    leaves = [child for child in ast.walk(node) if isinstance(child, ast.expr)]
    values = [leaf.value for leaf in leaves if isinstance(leaf, ast.Constant)]
    names = [leaf for leaf in leaves if not isinstance(leaf, ast.Constant | ast.BinOp | ast.UnaryOp)]
    are_constants = all(isinstance(leaf, ast.Name) and leaf.id.isupper() for leaf in names)
    numbers = bool(values) and all(type(value) in (int, float) for value in values)
    return numbers and are_constants and not (isinstance(node, ast.Constant) and node.value in (0, 1))


def assigned(body: list[ast.stmt], where: str = "") -> Iterator[Found]:
    """Constants of a module, or fields of a class; what follows with a docstring is a key of the configuration."""
    for node, after in zip(body, [*body[1:], None], strict=False):
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value):
            documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if not (where and documented):
                yield where + ast.unparse(target), node.lineno, node.end_lineno or node.lineno


def constants(tree: ast.Module) -> Iterator[Found]:
    yield from assigned(tree.body)
    for node in ast.walk(tree):
        pairs: list[tuple[str, ast.expr | None]] = []
        if isinstance(node, ast.ClassDef):
            yield from assigned(node.body, f"{node.name}.")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).split(".")[-1]
            pairs = [(f"{name}({kw.arg})", kw.value) for kw in node.keywords if SIZED.search(kw.arg or "")]
            pairs += [(f"{name}()", arg) for arg in node.args if name in TAKING]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [*node.args.posonlyargs, *node.args.args]
            defaults = zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True)
            keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            pairs = [(f"{node.name}({arg.arg})", value) for arg, value in [*defaults, *keywords]]
        yield from ((name, value.lineno, value.end_lineno or 0) for name, value in pairs if value and is_number(value))


def read(path: str, source: str) -> Iterator[tuple[str, str, bool]]:
    """Of each constant: where it is, `file: name`, and whether a comment is on its lines or on the one above."""
    lines = source.split("\n")
    for name, first, last in constants(ast.parse(source)):
        has_comment = "#" in "".join(lines[first - 1 : last]) or lines[first - 2].strip().startswith("#")
        yield f"{path}:{first}", f"{path}: {name}", has_comment


def unreasoned(entries: Iterable[tuple[str, str, bool]]) -> list[str]:
    harmless = re.compile("|".join(HARMLESS.values()))
    return [f"{where} {name}" for where, name, has_comment in entries if not has_comment and not harmless.search(name)]


@cache
def every() -> list[tuple[str, str, bool]]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return [constant for path in paths for constant in read(path.relative_to(ROOT).as_posix(), path.read_text())]


def test_each_constant_has_its_reason() -> None:
    assert unreasoned(every()) == []


@pytest.mark.parametrize(
    "source",
    [
        "X_S = 60.0",
        "A_S, B_S = 5, 0.05",
        "MOST = {'cpu': 4}",
        "KEEP: int = 10_000",
        "TWICE_S = 2 * WAIT_S",
        "CACHE = LRUCache(4096)",
        "class A:\n    deadline_s: float = 900.0",
        "def f(*, limit_s=60.0): ...",
        "call(x, timeout=30)",
    ],
)
def test_a_number_without_one_is_found(source: str) -> None:
    assert len(unreasoned(read("learners/new.py", source))) == 1
    assert unreasoned(read("learners/new.py", f"{source}  # as long as an update takes")) == []


def test_no_reason_is_left_for_what_is_gone() -> None:
    bare = [name for _, name, has_comment in every() if not has_comment]
    assert [why for why, pattern in HARMLESS.items() if not any(re.search(pattern, name) for name in bare)] == []
