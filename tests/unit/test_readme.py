"""README.md: its reward is run as it stands there; links of all pages lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from launch.cli import run
from tests.paths import ROOT

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "configs").rglob("*.md"))]


def test_the_reward_of_the_readme_prints_what_the_readme_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = re.findall(r"```python\n# my_rewards.py\n(.*?)```", README, re.DOTALL)
    (shown,) = re.findall(r"```\n\$ cat answers.jsonl\n(.*?)```", README, re.DOTALL)
    lines, command, output = re.split(r"(?m)^\$ rlsys (.*)\n", shown)
    (tmp_path / "my_rewards.py").write_text(code)
    (tmp_path / "answers.jsonl").write_text(lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    assert run(command.split()) == 0
    assert capsys.readouterr().out == output


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"(?s)```.*?```|`[^`]*`", "", page.read_text())
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paper_is_linked_by_its_number(page: Path) -> None:
    for shown, linked in re.findall(r"arXiv (\d{4}\.\d{5})\]\(([^)]*)\)", page.read_text()):
        assert linked == f"https://arxiv.org/abs/{shown}"


def test_how_rlsys_comes_on_the_path_is_said_where_it_is_installed() -> None:
    way = "source .venv/bin/activate"
    first = README.index("$ rlsys ")
    assert way in README[:first]
    for target in ("setup", "quickstart"):
        said = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert way in said
