"""docs/recipes.md says what the recipes and the planner say."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[5]


def test_the_table_of_needs_is_that_of_the_recipes() -> None:
    """If it is not: `python docs/make_needs.py`."""
    make = runpy.run_path(str(ROOT / "docs" / "make_needs.py"))
    table, page = make["make_table"](), (ROOT / "docs" / "recipes.md").read_text()
    assert table in page
    assert {f"`{name}`" for name in ("research", "icrl", "graph_rl", "swirl", "long_cot")} <= set(table.split())


@pytest.fixture(scope="module")
def costs() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "make_costs.py"))


def test_every_recipe_for_gpus_has_its_cost_on_the_page(costs: dict[str, Any]) -> None:
    """If one has not, or another: `python docs/make_costs.py`."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    table = page.partition(costs["BEGIN"])[2].partition(costs["END"])[0]
    assert [name for name in costs["recipes"]() if f"`{name}`" not in table] == []
    lines = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    shown = {name: cells for names, *cells in lines for name in names.strip("| ").split(", ")}
    for name in ("research", "icrl", "graph_rl", "swirl", "long_cot"):
        assert " | ".join(shown[f"`{name}`"]).removesuffix("|").strip(" |") == " | ".join(
            costs["cost_of"](name).cells()
        ).strip(" |"), name


@pytest.mark.slow
def test_the_whole_table_of_costs_is_that_of_the_planner(costs: dict[str, Any]) -> None:
    assert costs["make_table"]() in (ROOT / "docs" / "recipes.md").read_text()


def test_a_cost_by_hand(costs: dict[str, Any]) -> None:
    cost = costs["Cost"](gpus=4, tokens=10, hours={"a": 1.5, "b": 10}, at_limit=30, verdicts=400_000, judge="m")
    costs["MODELS"]["m"] = SimpleNamespace(prices=(1.0, 2.0))
    assert cost.cells() == ("4", "10", "46", "a 6, b 40", "120", "400,000 verdicts of `m`: 1,200 USD")
    assert [costs["rounded"](number) for number in (0.4, 1.6, 99.4, 1234, 98765)] == ["0", "2", "99", "1,200", "99,000"]
