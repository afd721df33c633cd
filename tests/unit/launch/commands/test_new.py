"""`rlsys new`: what it makes runs at once, a bad name is one line, and nothing is overwritten."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.cli import run

FILES = ["README.md", "__init__.py", "lamp_hall.yaml", "reward.py", "test_lamp_hall.py", "world.py"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["new", "world", "lamp_hall"]) == 0
    assert "rlsys play lamp_hall/lamp_hall.yaml" in capsys.readouterr().out
    yield tmp_path / "lamp_hall"
    for name in [name for name in sys.modules if name.partition(".")[0] == "lamp_hall"]:
        del sys.modules[name]


def test_what_is_made_is_complete_and_has_its_own_names(made: Path) -> None:
    assert sorted(path.name for path in made.iterdir()) == FILES
    text = "".join(path.read_text() for path in made.iterdir())
    assert "`rlsys play lamp_hall/lamp_hall.yaml`" in (made / "__init__.py").read_text()
    assert "LampHallWorld" in text and "PACKAGE" not in text and "NAME" not in text


def test_it_is_played_and_scored_at_once(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "said.txt").write_text("<go>left</go>\n" * 8)
    argv = ["lamp_hall/lamp_hall.yaml", "--seed", "1", "--answers", "lamp_hall/said.txt", "--output", "played.jsonl"]
    assert run(["play", *argv]) == 0
    played = capsys.readouterr().out
    assert "state {" in played and "the lamp is in cell" in played
    assert run(["score", argv[0], "--input", "played.jsonl", "--explain"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == played.splitlines()[-1]


def test_a_reward_scores_its_answers_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert run(["new", "reward", "brief_talk"]) == 0
    assert "rlsys score brief_talk/brief_talk.yaml --input brief_talk/answers.jsonl" in capsys.readouterr().out
    assert run(["score", "brief_talk/brief_talk.yaml", "--input", "brief_talk/answers.jsonl"]) == 0
    parts = [json.loads(line)["parts"] for line in capsys.readouterr().out.splitlines()]
    assert [scores["correct"] for scores in parts] == [1.0, 0.0, 0.0]
    assert [scores["length"] for scores in parts] == pytest.approx([-0.05, -0.01, -0.03])


def test_nothing_is_overwritten(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / "world.py").write_text("mine")
    assert run(["new", "world", "lamp_hall"]) == 2
    assert "is there already" in capsys.readouterr().err
    assert (made / "world.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["envs", "json", "rlsys", "2x", "Maze", "a-b", "class", "../x", "_x", "é", "a.b", ""])
def test_a_name_that_python_would_not_import_from_there(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["new", "world", name, "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "world", "lamp_hall", "--output", str(tmp_path / "nowhere")]) == 2
    assert "nowhere/lamp_hall: cannot be made (No such file" in capsys.readouterr().err
