"""A folder of the user's own: its `envs` does not stand in for ours, its modules are found beside their recipe."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

MAZES = """
from __future__ import annotations
from dataclasses import dataclass
from envs.worlds.calculator import CalculatorConfig, CalculatorWorld

@dataclass(frozen=True, kw_only=True)
class MazeConfig(CalculatorConfig):
    name: str = "mazes.Maze"
    walls: int = 3

class Maze(CalculatorWorld):
    def __init__(self, config: MazeConfig) -> None:
        super().__init__(config)
"""
THEIRS = "raise ImportError('somebody else is found')\n"
RECIPE = "name: maze\nenv: {name: mazes.Maze, walls: 5, train_tasks: 8}\nstages: [{name: rl, kind: rl, steps: 2}]\n"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    (folder / "envs").mkdir(parents=True)
    (folder / "envs" / "__init__.py").write_text(THEIRS)
    (folder / "mazes.py").write_text(MAZES)
    (folder / "maze.yaml").write_text(RECIPE)
    return folder


def python(*argv: str, cwd: Path) -> tuple[int, str]:
    behind = {"PYTHONPATH": os.pathsep.join((str(cwd), str(ROOT)))}  # as Ray has it in a worker of a job
    result = subprocess.run(
        [sys.executable, *argv], cwd=cwd, env={**os.environ, **behind}, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout + result.stderr


def test_a_recipe_is_read_in_its_folder_and_from_elsewhere(own: Path, tmp_path: Path) -> None:
    (own / "learners").mkdir()
    (own / "learners" / "__init__.py").write_text(THEIRS)
    code, output = python("-m", "launch", "train", "maze.yaml", "--dry-run", cwd=own)
    assert code == 0 and "walls: 5" in output, output
    code, output = python("-m", "launch", "train", str(own / "maze.yaml"), "--dry-run", cwd=tmp_path)
    assert code == 0 and "walls: 5" in output, output
    code, output = python("-m", "launch", "train", "maze.yaml", "env.name=envs.mazes.Maze", "--dry-run", cwd=own)
    assert (code, output.count("\n")) == (2, 1)
    assert "expected envs to be the package of rlsys: give a folder of your own another name" in output


@pytest.mark.parametrize("module", ["actors.scoring", "learners.algorithms.sft", "launch.config.compose"])
def test_whoever_imports_one_of_our_packages_gets_the_others_too(own: Path, module: str) -> None:
    code, output = python("-c", f"import {module}, envs; print(envs.WORLDS['graph'], envs.__file__)", cwd=own)
    assert code == 0 and str(ROOT) in output, output


def test_a_ray_worker_of_a_job_from_there_finds_ours_and_the_recipes_module(own: Path) -> None:
    code = """
import os, ray
from actors.scoring import RewardService, ScoringSpec
from launch.config.compose import compose
from launch.driver.run.wire import environment
from rlsys.config.cluster import ClusterConfig
world = compose("maze.yaml", []).recipe.env
env_vars = environment(ClusterConfig(), {})
ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20,
         runtime_env={"working_dir": os.getcwd()})

def there(actor, config):
    import envs
    return envs.make_world(config).tasks("train")[0].task_id, envs.__file__

ours = ray.remote(num_cpus=0, runtime_env={"env_vars": env_vars})(RewardService)
actor = ours.remote(ScoringSpec(grader_workers=1, grader_deadline_s=1.0))
print(ray.get(actor.__ray_call__.remote(there, world)))
"""
    exit_code, output = python("-c", code, cwd=own)
    assert exit_code == 0 and str(ROOT / "envs") in output, output[-2000:]


def test_an_unpacked_archive_is_as_good_as_a_clone(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone")
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    folder = tmp_path / "rlsys"
    folder.mkdir()
    subprocess.run(["tar", "x"], cwd=folder, input=archive, check=True)
    (folder / "configs" / "quickstart.yaml").rename(folder / "configs" / "only_there.yaml")
    command = [sys.executable, "-m", "launch", "train", "only_there", "--dry-run"]
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    result = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "it can start" in result.stdout
