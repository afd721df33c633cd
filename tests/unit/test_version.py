"""One version and one licence, wherever they stand; how the project is installed."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from launch.cli import run
from rlsys import VERSION
from tests.paths import ROOT


def test_every_file_names_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changes = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {project["version"], str(citation["version"]), changes[0]} == {VERSION}
    assert project["license"] == citation["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in (ROOT / project["license-files"][0]).read_text()
    with pytest.raises(SystemExit) as ended:
        run(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"rlsys {VERSION}\n")


def test_a_wheel_without_recipes_and_prompts_is_not_built(tmp_path: Path) -> None:
    shutil.copy(ROOT / "setup.py", tmp_path)
    built = subprocess.run(
        [sys.executable, "setup.py", "-q", "bdist_wheel"], cwd=tmp_path, capture_output=True, text=True
    )
    assert built.returncode != 0 and not (tmp_path / "dist").exists()
    assert built.stderr.splitlines()[-1].startswith("rlsys: error: ") and "pip install -e ." in built.stderr
