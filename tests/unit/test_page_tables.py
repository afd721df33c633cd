"""Tables in pages that say again what code says: each has all rows of the code."""

import json
import re
from pathlib import Path

import pytest

from envs.protocols import PROTOCOLS
from launch.checks.models import REFUSED, TRAINED
from launch.config.synonyms import load_synonyms
from launch.driver.observe.held_out import OF_EVALUATIONS
from launch.driver.observe.meanings import ENVS, OWN, STEP, UPDATE
from launch.driver.observe.signs import SIGNS
from launch.tools.analysis.figures import FIGURES
from learners.algorithms import ALGORITHMS
from learners.group import merge_reports
from rlsys.config.recipe import RecipeConfig
from rlsys.system.device import DEVICES, FILLED_IN, resolve
from tests.paths import ROOT
from tests.unit.learners.test_update_metrics import reports

DOCS = ROOT / "docs"


def rows(page: Path) -> list[list[str]]:
    """The cells of all table rows of a page."""
    return [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("|")]


def test_every_algorithm_has_a_row() -> None:
    assert {f"`{name}`" for name in ALGORITHMS} <= {cells[0] for cells in rows(DOCS / "algorithms.md")}


def test_every_metric_of_an_update_is_named() -> None:
    page = (DOCS / "algorithms.md").read_text()
    options = {"is_correction": "tis", "dual_clip": 3.0, "entropy_coef": 0.01, "value_clip": 0.2}
    names = merge_reports(reports(1, 1000, **options)).metrics
    assert not [name for name in names if not name.startswith("time/learner_") and f"`{name}`" not in page]


def test_every_metric_is_explained_in_the_page_as_in_the_code() -> None:
    page = (DOCS / "run-directory.md").read_text()
    for table in (STEP, UPDATE, ENVS, OWN):
        assert "\n".join(["| key | meaning |", "|---|---|", *(meaning.row() for meaning in table)]) + "\n" in page


def test_every_sign_of_health_has_a_row() -> None:
    table = [cells[0] for cells in rows(DOCS / "run-directory.md") if len(cells) == 3]
    names = {name for cell in table for name in re.findall("`([a-z_]+)`", cell)}
    assert set(SIGNS) | set(OF_EVALUATIONS) <= names


def test_every_figure_has_a_row_with_its_question_and_its_papers() -> None:
    table = {cells[0]: cells[1:3] for cells in rows(DOCS / "analyse.md")}
    assert {name: table.get(f"`{name}`") for name in FIGURES} == {
        name: [figure.question, figure.papers] for name, figure in FIGURES.items()
    }


def test_every_protocol_has_a_row_with_its_stop_strings() -> None:
    table = {cells[0]: cells[3] for cells in rows(DOCS / "environments" / "protocols.md") if len(cells) > 3}
    for protocol in PROTOCOLS.values():
        assert table[f"`{protocol.name}`"] == ", ".join(f"`{stop}`" for stop in protocol.stop)


def test_every_member_of_the_contract_of_environments_is_named() -> None:
    page = (DOCS / "environments" / "writing.md").read_text()
    methods = re.findall(r"^    (?:async )?def (\w+)\(", (ROOT / "envs" / "base.py").read_text(), re.MULTILINE)
    assert methods and [name for name in methods if f"{name}(" not in page and f"`{name}`" not in page] == []


def test_every_family_of_models_has_a_row_with_the_verdict_of_the_code() -> None:
    table = [cells for cells in rows(DOCS / "models.md") if len(cells) == 2]
    assert {kind: verdict for kinds, verdict in table for kind in re.findall(r"`([^`]+)`", kinds)} == dict.fromkeys(
        TRAINED, "can be trained"
    ) | {kind: f"refused: {reason}" for kind, reason in REFUSED.items()}


def test_every_value_that_follows_from_the_device_has_a_row() -> None:
    table = {cells[0]: cells[1:3] for cells in rows(DOCS / "gpu.md")}
    cpu, gpu = (resolve(RecipeConfig(), DEVICES[name]) for name in ("cpu", "cuda"))
    for part, key in FILLED_IN:
        values = [getattr(getattr(config, part), key) for config in (cpu, gpu)]
        assert table[f"`{part}.{key}`"] == [json.dumps(value).strip('"') for value in values]
    assert {f"`{key}`" for device in DEVICES.values() for key in device.attention} <= table.keys()


@pytest.mark.parametrize("page", ["from-trl.md", "from-verl.md"])
def test_a_name_of_another_system_leads_to_the_key_that_the_command_names(page: str) -> None:
    names = load_synonyms()
    table = [[cell.strip("`") for cell in cells[:2]] for cells in rows(DOCS / "how-to" / page) if cells[0][0] == "`"]
    assert len(table) > 20
    for theirs, ours in table:
        parts = theirs.split(".")
        ends = {".".join(parts[at:]) for at in range(len(parts))}
        aliases = {*names.equivalents.get(ours, ()), *(name for name, keys in names.several.items() if ours in keys)}
        match = ours.rpartition(".")[2] == parts[-1]
        assert match or ends & aliases or ours == "--run-dir", f"{theirs}: {ours}"
