"""What the tests under tests/gpu ask for, told without a GPU."""

from __future__ import annotations

import ast

import pytest

from launch.driver.run import wire
from rlsys.system.device import resolve
from tests import device
from tests.paths import ROOT

FILES = sorted((ROOT / "tests" / "gpu").glob("test_*.py"))


def played(tree: ast.Module) -> list[str]:
    """The text of the files whose tests a file under tests/gpu runs."""
    names = [name.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "tests.e2e"
             for name in node.names]  # fmt: skip
    return [(ROOT / "tests" / "e2e" / f"{name}.py").read_text() for name in names]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_cluster_that_a_gpu_test_starts_is_as_large_as_all(path) -> None:  # type: ignore[no-untyped-def]
    module = ast.parse(path.read_text())
    for call in (node for tree in [module, *map(ast.parse, played(module))] for node in ast.walk(tree)):
        if not isinstance(call, ast.Call):
            continue
        if ast.unparse(call.func) == "ray.init":
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert keywords.get("num_cpus") in ("RAY_CPUS", "device.RAY_CPUS"), f"{path.name}: {ast.unparse(call)}"


def test_what_the_canary_starts_at_a_time_can_be_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.e2e import test_canary

    monkeypatch.setenv(device.VARIABLE, "cuda")
    recipe = test_canary.recipe()
    needs = wire.engine_needs(recipe, wire.services([]), device.device()) + wire.rank_needs(recipe, device.device())
    assert {need.gpus for need in needs} == {1} and len(needs) == 2  # of one engine; the other comes after it
    assert 8 < sum(need.cpus for need in needs) <= device.RAY_CPUS
    assert resolve(recipe, device.device()) == recipe
