"""`rlsys new`, then the commands that the README of what it makes names, as a person types them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.runs import ROOT, rows, summary

SHORT = ["stages.sft.steps=1", "stages.rl.steps=1", "stages.rl.loop.groups_per_step=2", "eval.tasks=2"]


def python(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", *argv], cwd=folder, env=environment, capture_output=True, text=True, timeout=400
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("own")
    result = python(where, "launch", "new", "world", "lamp_hall")
    assert result.returncode == 0, result.stderr
    return where


def test_its_own_test_passes_and_it_dry_runs(folder: Path) -> None:
    tested = python(folder, "pytest", "lamp_hall", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout
    dry = python(folder, "launch", "train", "lamp_hall/lamp_hall.yaml", "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "name: lamp_hall.world.LampHallWorld" in dry.stdout


def test_the_test_of_a_new_reward_passes(tmp_path: Path) -> None:
    assert python(tmp_path, "launch", "new", "reward", "brief").returncode == 0
    tested = python(tmp_path, "pytest", "brief", "-q", "-p", "no:cacheprovider")
    assert tested.returncode == 0, tested.stdout


@pytest.mark.slow
def test_it_trains(folder: Path) -> None:
    trained = python(folder, "launch", "train", "lamp_hall/lamp_hall.yaml", *SHORT, "--run-dir", str(folder / "run"))
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert summary(folder / "run")["status"] == "done"
    assert rows(folder / "run")[-1]["reward/part/steps"] <= 0.0


pytestmark = pytest.mark.e2e
