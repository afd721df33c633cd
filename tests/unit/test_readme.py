"""README.md: its reward is run as it stands there, and its links lead somewhere."""

import re
import sys
from pathlib import Path

import pytest

from launch.cli import run
from tests.paths import ROOT

README = (ROOT / "README.md").read_text()


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


@pytest.mark.parametrize("page", ["README.md", "docs/README.md", "docs/laws.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not ((ROOT / page).parent / link).exists()]
    assert missing == []
