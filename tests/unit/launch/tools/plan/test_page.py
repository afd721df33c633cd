"""What docs/how-to/plan-a-run.md shows is what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from launch.checks import machine
from launch.cli import run
from tests.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "plan-a-run.md").read_text()
SHOWN = re.findall(r"(?s)```\n\$ rlsys (plan [^\n]+)\n(.*?)```", PAGE)


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_the_page_shows_real_output(
    command: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(machine, "DRIVERS", ())
    code = run(shlex.split(command))
    parts = [re.escape(part) for part in output.split("...\n")]  # a line of dots: lines that the page leaves out
    assert re.fullmatch("(?s:.*)".join(parts), capsys.readouterr().out)
    assert code == (2 if "does not fit" in output else 0)


def test_two_commands_are_shown() -> None:
    assert len(SHOWN) == 2
