"""What `rlsys data prepare` makes of public sets is what each recipe reads, its evaluation sets included.

tests/e2e/test_ablations.py has all recipes and all ablations.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from launch.cli import run
from tests.makers.public_sets import prepare_all

GPUS = {"swirl": 34, "graph_rl": 16, "icrl": 4, "icrl/code": 4, "research": 64, "long_cot": 16}  # with those of judges


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare_all(folder)
    return folder


@pytest.mark.parametrize(("name", "gpus"), GPUS.items())
def test_a_recipe_starts_with_what_is_prepared_and_fits_on_its_gpus(
    name: str, gpus: int, prepared: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prepared)
    monkeypatch.setattr("envs.made_worlds", {})  # by paths that are relative to that folder
    code = run(["train", name, "--dry-run"])
    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert f" = {gpus}\n" in out
    filled = re.findall(r" (?:rank|engine) +[\d.]+ +(\d+) ", out)
    assert filled == 2 * ["40" if name == "graph_rl" else "80"]  # GB of a card, of a rank's line and an engine's
