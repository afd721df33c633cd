"""Tests use what a module gives to others: no name of another module that begins with an underscore."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
LIBRARIES = {  # private names of libraries that tests read or set, where there is no public one
    "ray/test_services.py": 2,  # the node that Ray itself started, to end it
    "unit/actors/test_placement.py": 1,  # what Ray says is free
    "unit/actors/test_engine.py": 1,  # a torch module's parameters
    "unit/rlsys/system/test_orphans.py": 5,  # how multiprocessing names its semaphores
    "unit/learners/test_snapshot.py": 2,  # what torch writes into a state_dict
    "unit/learners/test_hub_folder.py": 1,  # which tensors transformers saves in no file
    "e2e/test_gradient.py": 2,  # DeepSpeed's state of an optimizer
    "e2e/test_fp32_head.py": 1,  # vLLM's product with the head
}
MAY_MATTER = re.compile(  # in a file that has none of these, nothing is parsed: most tests are such
    r"(?<!self)(?<!cls)(?<!\bos)(?<!sys)\._[a-zA-Z]|^\s+_\w+,?$|import .*\b_[a-zA-Z]|[\"'.]_[a-zA-Z]\w*[\"']", re.M
)
PRIVATE = re.compile(r"(?:.*\.)?_[a-zA-Z]\w*")
OWN = {"self", "cls", "super()", "os", "sys"}  # os._exit and sys._getframe are for everybody


def private_names(tree: ast.AST) -> Iterator[str]:
    """What is imported, read, or set by `monkeypatch.setattr`, of something that is not the test's own class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if PRIVATE.fullmatch(alias.name))
        elif isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr):
            if ast.unparse(node.value) not in OWN:
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            values = [arg.value for arg in node.args[:2] if isinstance(arg, ast.Constant)]
            if ast.unparse(node.args[0]) not in OWN:
                yield from (name for name in values if isinstance(name, str) and PRIVATE.fullmatch(name))


def test_no_test_reads_a_private_name_of_ours() -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    by_file = {
        path.relative_to(TESTS).as_posix(): list(private_names(ast.parse(text)))
        for path, text in texts.items()
        if MAY_MATTER.search(text)
    }
    assert {file: names for file, names in by_file.items() if len(names) > LIBRARIES.get(file, 0)} == {}
    assert sum(map(len, by_file.values())) == sum(LIBRARIES.values())


def test_each_kind_of_private_name_is_seen() -> None:
    text = """
from launch.driver.run.nodes import look, _told
pool._members[0].state = made(self.process._box, self._own, os._exit, super()._ask())
monkeypatch.setattr(hub, "_unreachable", None)
monkeypatch.setattr("launch.driver.run.engines._check", None)
monkeypatch.setattr(os, "_exit", None)
monkeypatch.setattr(hub, "reach", "_private")
"""
    assert MAY_MATTER.search(text)
    expected = {"launch.driver.run.nodes._told", "pool._members", "self.process._box", "_unreachable"}
    assert set(private_names(ast.parse(text))) == {*expected, "launch.driver.run.engines._check"}
