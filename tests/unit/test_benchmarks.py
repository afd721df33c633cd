"""Every benchmark starts: its options are read, and what it builds of the project is what the project has."""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from launch.config.compose import compose
from tests.paths import ROOT

FOLDER = ROOT / "benchmarks"
PARTS = {"report", "study", "http_load"}  # of other benchmarks
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in PARTS)
STUDIES = {
    "curriculum": "curve",
    "graph_rl": "numbers",
    "long_cot": "numbers",
    "swirl": "numbers",
    "learning": "numbers",
}


@pytest.fixture(autouse=True)
def beside_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def called(pattern: str, *files: str) -> set[str]:
    """The methods of an actor that these files call."""
    return {name for file in files for name in re.findall(pattern, (ROOT / file).read_text())} - {"__ray_call__"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_its_options_are_read(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert not ended.value.code and "--json" in capsys.readouterr().out


def test_the_scripted_worker_has_what_a_pool_calls() -> None:
    from actors.worker import RolloutWorker

    asked = called(r"handle\.(\w+)\.(?:remote|options)", "actors/pool.py", "actors/weights/publisher.py")
    assert {"start", "run_group", "load_weights", "connect"} <= asked
    agree(load("driver").ScriptedWorker, RolloutWorker, asked)


def test_the_scripted_rank_has_what_a_group_calls_and_touches_no_model() -> None:
    from learners.actor import LearnerActor

    scripted = load("driver").ScriptedRank
    asked = called(r"rank\.(\w+)\.remote", "learners/group.py")
    assert {"start", "snapshot", "write", "export"} <= asked
    agree(scripted, LearnerActor, asked)
    for name in asked:
        assert not re.search(r"self\.(rank|_snapshot)\b", inspect.getsource(getattr(scripted, name))), name


def agree(scripted: type, real: type, asked: set[str]) -> None:
    own = {name for name, each in vars(scripted).items() if inspect.isfunction(each) and not name.startswith("_")}
    for name in asked:
        assert callable(getattr(scripted, name, None)), f"{scripted.__name__} lacks {name}"
    for name in own & asked:
        ours, theirs = (list(inspect.signature(getattr(each, name)).parameters) for each in (scripted, real))
        assert len(ours) == len(theirs), f"{name}{ours}, expected {theirs}"


def test_the_driver_builds_its_run(tmp_path: Path) -> None:
    numbers = {"workers": 1, "ranks": 1, "groups": 1, "tokens": 8, "turns": 1, "lag": 1, "steps": 1, "keep": 0}
    run = load("driver").make_run(argparse.Namespace(**numbers, deadline=1.0, json=None), tmp_path)
    assert run.learner.num_ranks == 1 and run.config.stages[0].steps == 1


def test_the_learner_builds_its_batch_and_its_algorithms() -> None:
    learner = load("learner")
    batch = learner.make(argparse.Namespace(tokens=50, row=256, vocab=64))
    assert batch.num_tokens >= 50 and all(make() for make in learner.ALGORITHMS.values())


def test_the_comparison_with_trl_composes_its_recipe(tmp_path: Path) -> None:
    trl, options = load("trl"), argparse.Namespace(steps=1, seed=0)
    trl.prepare(options, tmp_path)
    assert compose(str(tmp_path / "recipe.yaml"), []).stages[0].steps == 1


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_composes_each_of_its_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, made = load(name), []

    def train(config: str, folder: Path, changes: list[str]) -> None:
        made.append(compose(config, changes))

    found: Callable[[Path], dict[str, Any]] = lambda folder: {"made": len(made)}  # noqa: E731
    monkeypatch.setattr(module.study, "train", train)
    monkeypatch.setattr(module, STUDIES[name], found)
    arms = module.play_seed(0, tmp_path) if hasattr(module, "play_seed") else module.play(1, tmp_path)
    assert len(arms) >= 2
    assert made and all(config.stages for config in made)
