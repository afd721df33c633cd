"""Would the unit tests notice a mistake? `python benchmarks/mutants.py PACKAGE... [--count N] [--seed S]`.

Each mutant changes one place of one file in a copy of the tree: a comparison, an operator, a constant, a condition, a
default, a statement. Its mirrored test file runs first, then the unit tests that name the module, then the rest. A
mutant that no test notices is printed with its place; whether it is equivalent is for the reader to say.
"""

import ast
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import Report, parser

ROOT = Path(__file__).resolve().parents[1]
# Imported once, before a process is forked for each mutant: the tests' seconds go there otherwise.
THIRD_PARTY = "aiohttp hypothesis numpy omegaconf pydantic pytest ray sympy torch transformers"
SWAPPED = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
           ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
           ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*", ast.And: "or", ast.Or: "and"}  # fmt: skip
DEFAULTED = {"get": 1, "pop": 1, "next": 1, "getattr": 2}  # the place of the default among the arguments
QUIET = {"debug", "info", "warning", "error", "exception", "print", "say", "sleep", "warn"}
UNREAD = {"annotation", "returns", "decorator_list", "exc", "msg", "bases"}  # fields of nodes: messages and types
# Whose tests lie elsewhere: docs/configuration.md has every default.
ELSEWHERE = {
    Path(folder): Path("launch/commands/test_config.py")
    for folder in ("rlsys/config", "learners/algorithms", "envs/rewards", "envs/worlds")
}
SECONDS = 120.0  # for each file of tests: a mutant may turn for ever, and a machine may be busy


@dataclass(frozen=True, slots=True)
class Mutant:
    path: Path  # relative to the tree
    line: int
    kind: str
    before: str
    after: str
    source: str  # of the whole file


def find_mutants(path: Path) -> Iterator[Mutant]:
    data, starts = (ROOT / path).read_bytes(), [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in walk(ast.parse(data)):
        for kind, after in changes(node):
            begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
            source = (data[:begin] + after.encode() + data[end:]).decode()
            yield Mutant(path, node.lineno, kind, data[begin:end].decode(), after, source)


def walk(node: ast.AST) -> Iterator[Any]:
    """Every node but messages, log lines and types."""
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            match child:
                case ast.Expr(value=ast.Call() as call) if called(call) in QUIET:
                    pass
                case ast.AST() if field not in UNREAD and not isinstance(child, ast.JoinedStr):
                    yield from walk(child)


def called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What could stand in a node's place, with the kind of the change."""
    write = ast.unparse
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            yield "comparison", f"({write(left)} {SWAPPED[type(op)]} {write(right)})"
        case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED:
            yield "arithmetic", f"(({write(left)}) {SWAPPED[type(op)]} ({write(right)}))"
        case ast.BoolOp(op=op, values=values):
            yield "condition", "(" + f" {SWAPPED[type(op)]} ".join(f"({write(value)})" for value in values) + ")"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", f"({write(operand)})"
        case ast.Constant(value=bool() as value):
            yield "constant", str(not value)
        case ast.Constant(value=(int() | float()) as value):
            yield "constant", repr(value + 1)
        case ast.Return(value=ast.expr() as value) if write(value) != "None":
            yield "return", "return None"
        case ast.Continue():
            yield "loop", "break"
        case (
            ast.If(orelse=[], body=[ast.Raise() | ast.Return() | ast.Continue()])
            | ast.Expr(value=ast.Call() | ast.Await())
            | ast.AugAssign()
        ):
            yield "deletion", "pass"
        case ast.Call(func=func, args=[*args, default], keywords=words):
            if DEFAULTED.get(called(node)) == len(args) and write(default) != "None":
                yield "default", write(ast.Call(func, [*args, ast.Constant(None)], words))
        case ast.Slice(lower=ast.expr() as lower, upper=upper, step=None):
            yield "slice", f"({write(lower)}) + 1:{write(upper) if upper else ''}"
        case ast.Slice(lower=None, upper=ast.expr() as upper, step=None):
            yield "slice", f":({write(upper)}) - 1"


def sample(package: str, count: int, seed: int, without: Path) -> list[Mutant]:
    """No line twice, and no kind of change more than a quarter: files are full of constants."""
    paths = sorted(path.relative_to(ROOT) for path in (ROOT / package).rglob("*.py"))
    mutants = [candidate for path in paths if without not in path.parents for candidate in find_mutants(path)]
    random.Random(f"{package} {seed}").shuffle(mutants)
    draws, kinds = dict[tuple[Path, int], Mutant](), Counter[str]()
    for mutant in mutants:
        if len(draws) < count and (mutant.path, mutant.line) not in draws and kinds[mutant.kind] < max(1, count // 4):
            draws[mutant.path, mutant.line] = mutant
            kinds[mutant.kind] += 1
    return list(draws.values())


def tests_of(path: Path, tree: Path) -> Iterator[list[str]]:
    """The mirrored test file, then the other unit tests that name the module, then the rest of its folder's."""
    unit, package, past_files = tree / "tests" / "unit", ".".join(path.parent.parts), set[Path]()
    names = (package,) if path.stem == "__init__" else (f"{package}.{path.stem}", f"from {package} import {path.stem}")
    siblings = sorted((unit / path.parent).glob("test_*.py"))
    mirrored = [file for file in siblings if file.stem == f"test_{path.stem}"]
    mirrored += [unit / test for folder, test in ELSEWHERE.items() if folder in path.parents]
    naming = [file for file in sorted(unit.rglob("test_*.py")) if any(name in file.read_text() for name in names)]
    for files in (mirrored, naming, siblings):
        if new_files := [file for file in files if file not in past_files]:
            past_files.update(new_files)
            yield list(map(str, new_files))


def is_noticed(mutant: Mutant, tree: Path) -> bool:
    place = tree / mutant.path
    original = place.read_text()
    place.write_text(mutant.source)
    try:
        return any(fail(files, tree) for files in tests_of(mutant.path, tree))
    finally:
        place.write_text(original)


def fail(files: list[str], tree: Path) -> bool:
    """Whether one of these tests fails, or they never end."""
    if not (child := os.fork()):
        os.setsid()
        os.chdir(tree)
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        sys.path.insert(0, str(tree))
        sys.dont_write_bytecode = True
        os._exit(importlib.import_module("pytest").main(["-xq", "-p", "no:cacheprovider", "--timeout", "60", *files]))
    until = time.monotonic() + SECONDS * len(files)
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status != 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def copy_to(tree: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name)


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("packages", nargs="+", metavar="PACKAGE", help="a folder of the source, such as envs/rewards")
    cli.add_argument("--count", type=int, default=40, help="mutants of each package (40)")
    cli.add_argument("--seed", type=int, default=0, help="of the sample (0)")
    cli.add_argument("--without", type=Path, default=Path("tests"), metavar="PACKAGE", help="a part that is left out")
    options = cli.parse_args()
    list(map(importlib.import_module, THIRD_PARTY.split()))
    totals, noticed = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder, Report(options) as report:
        copy_to(tree := Path(folder))
        report.head("survivor", "kind", "was", "is")
        for package in options.packages:
            for mutant in sample(package, options.count, options.seed, options.without):
                totals[package] += 1
                if is_noticed(mutant, tree):
                    noticed[package] += 1
                    continue
                was, now = (" ".join(code.split())[:60] for code in (mutant.before, mutant.after))
                report.row(f"{mutant.path}:{mutant.line}", mutant.kind, was, now)
        report.head("package", "mutants", "noticed", "share (%)")
        for package, count in totals.items():
            report.row(package, count, noticed[package], 100 * noticed[package] / count)


if __name__ == "__main__":
    main()
