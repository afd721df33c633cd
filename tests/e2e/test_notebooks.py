"""The notebooks of docs/tutorials run as they stand, from their first cell to their last."""

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from tests.paths import ROOT

TUTORIALS = ROOT / "docs" / "tutorials"
NOTEBOOKS = sorted(path.name for path in TUTORIALS.glob("*.ipynb"))


def test_there_are_notebooks_and_none_holds_what_it_printed_once() -> None:
    assert NOTEBOOKS == ["first-run.ipynb", "own-reward.ipynb"]
    for name in NOTEBOOKS:
        assert not [cell for cell in read(TUTORIALS / name).cells if cell.get("outputs")], name


@pytest.mark.slow
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_trains_and_shows_what_came_of_it(name: str, tmp_path: Path) -> None:
    notebook = read(TUTORIALS / name)
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = {cell.source: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert not [text for text in printed.values() if "rlsys: error" in text or "rlsys: failed" in text]
    (run,) = (tmp_path / "runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["status"] == "done"
    assert any("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
    last = list(printed.values())[-1]
    assert "done after" in last if name == "first-run.ipynb" else "right answers, the least" in last, last


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)
