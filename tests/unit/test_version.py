"""One version and one licence, wherever they stand."""

import re
import tomllib

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
