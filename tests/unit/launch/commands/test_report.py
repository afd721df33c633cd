"""What `rlsys report` says on the terminal, with a browser and without one."""

import json
import webbrowser
from pathlib import Path

import pytest

from launch.cli import run as rlsys
from tests.makers.run_directory import result, run_directory

ENDS = [{"step": 1, "stage": "rl", "when": "before"}, {"step": 3, "stage": "rl", "when": "after"}]


@pytest.mark.parametrize("browser", [True, False])
@pytest.mark.parametrize("options", [[], ["--open"], ["--open", "--redact"]])
def test_the_first_screen_is_said_with_and_without_a_browser(
    options: list[str],
    browser: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or browser)
    run = run_directory(tmp_path / "run", [{"step": step, "reward/mean": 0.5} for step in (1, 2, 3)], evaluations=ENDS)
    for name, right in (("rl-before", 10), ("rl-after", 30)):
        result(run, name, {f"t:{task}": float(task < right) for task in range(40)})
    assert rlsys(["report", str(run), *options]) == 0
    output, report = capsys.readouterr().out, json.loads((run / "report.json").read_text())
    first, *others = output.splitlines()
    assert first == report["runs"][0]["verdict"]["text"] and first.startswith("It learned. ")
    assert any(line.endswith(report["trust"]["text"]) for line in others)
    assert not report["advice"] or report["advice"][0]["text"] in output
    assert opened == [(run / "report.html").as_uri()] * ("--open" in options)
    assert ("copy the file" in output) == ("--open" in options and not browser)
    assert (f"rlsys view {run}" in output) == (options == ["--open"] and not browser)
