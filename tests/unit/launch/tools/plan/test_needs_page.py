"""docs/recipes.md says what the recipes and the planner say."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[5]


def test_the_table_of_needs_is_that_of_the_recipes() -> None:
    """If it is not: `python docs/make_needs.py`."""
    make = runpy.run_path(str(ROOT / "docs" / "make_needs.py"))
    table, page = make["make_table"](), (ROOT / "docs" / "recipes.md").read_text()
    assert table in page
    assert {f"`{name}`" for name in ("research", "icrl", "graph_rl", "swirl", "long_cot")} <= set(table.split())
