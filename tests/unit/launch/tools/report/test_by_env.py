"""A stage with several environments: what its report says of each, from the raw rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launch.config.compose import compose, to_yaml
from launch.run_dir.directory import RunDirectory, read_directory
from launch.run_dir.solved import rewards_by_env
from launch.tools.report.build import build_report
from launch.tools.report.by_env import rows_by_env
from launch.tools.report.facts import Stage, main_stage
from tests.makers.run_directory import run_directory

STAGES = [{"name": "rl", "kind": "rl", "steps": 4}]
ENVS = [
    {"name": "questions", "label": "sums", "weight": 1.0, "reward": {"name": "long_cot"}},
    {"name": "calculator", "label": "words", "weight": 2.0, "reward": {"name": "answer", "correct": 2.0}},
]


def row(n: int) -> dict[str, Any]:
    whole = {"reward/mean": 0.5, "groups/trained": 5, "groups/filtered": 1, "groups/failed": 0, "time/step": 1.0}
    apart = {
        "by_env/sums/reward/mean": 0.1 * n,
        "by_env/sums/reward/part/outcome": 0.1 * n,
        "by_env/sums/groups/trained": 1,
        "by_env/sums/groups/filtered": 1,
        "by_env/sums/groups/failed": 0,
        "by_env/sums/episode/count": 16,
        "by_env/sums/episode/tokens": 10.0,
        "by_env/words/reward/mean": 0.2 * n,
        "by_env/words/reward/part/correct": 0.4 * n,
        "by_env/words/groups/trained": 4,
        "by_env/words/groups/filtered": 0,
        "by_env/words/groups/failed": 0,
        "by_env/words/episode/count": 32,
        "by_env/words/episode/tokens": 30.0,
    }
    return {"step": n, "stage": "rl", "stage_step": n, "time": 1e9 + n, "wall_s": float(n), **whole, **apart}


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    config = {"stages": STAGES, "env": None, "reward": None, "envs": ENVS}
    run_directory(tmp_path / "run", [row(n) for n in range(1, 5)], summary={"status": "done", "steps": 4}, **config)
    return read_directory(tmp_path / "run")


def stage_of(run: RunDirectory) -> Stage:
    stage = main_stage(run)
    assert stage is not None
    return stage


def test_right_answers_are_those_of_each_environments_own_reward(run: RunDirectory) -> None:
    """words: 0.4 n of the 2 that a right answer pays. Together 16 episodes of the one and 32 of the other."""
    stage = stage_of(run)
    assert stage.right_by_env["sums"] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert stage.right_by_env["words"] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert stage.right == pytest.approx([(0.1 * n * 16 + 0.2 * n * 32) / 48 for n in range(1, 5)])


def test_each_environment_has_a_row(run: RunDirectory) -> None:
    sums, words = rows_by_env(stage_of(run))
    assert sums == ["sums", "8", "33 %", "50 %", "0", "0.15", "0.35", "15 %", "35 %", "10"]
    assert words[:3] == ["words", "16", "67 %"]


def test_the_page_has_a_table_and_a_line_for_each(run: RunDirectory) -> None:
    page = build_report([run], [None])
    assert [cells[1] for cells in page["tables"]["environments"]["rows"]] == ["sums", "words"]
    labels = {curve["label"] for curve in page["charts"]["env_reward"]["series"]}
    assert labels == {"sums", "words"} <= {curve["label"] for curve in page["charts"]["right"]["series"]}
    assert "share of" in page["charts"]["right"]["about"]


def test_a_stage_has_several_where_the_recipe_has_one(tmp_path: Path) -> None:
    """A run writes `env: null` for it."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "env: {name: calculator}\nreward: {name: answer, correct: 3.0}\nstages:\n- {name: sft, kind: sft, steps: 1}\n"
        "- {name: rl, kind: rl, steps: 1, envs: [{name: calculator, reward: {correct: 2.0}}, "
        "{name: questions, style: answer_tag}]}\n"
    )
    run_directory(tmp_path / "run", [row(1)])
    (tmp_path / "run" / "config.yaml").write_text(to_yaml(compose(str(recipe), [])))
    run = read_directory(tmp_path / "run")
    pays = {name: reward["correct"] for name, reward in rewards_by_env(run, "rl").items()}
    assert pays == {"calculator": 2.0, "questions": 3.0}
    assert list(rewards_by_env(run, "sft")) == [""] and run.setting("env.name", "sft") == "calculator"
    assert run.setting("env.name", "rl") is None and run.setting("no.such", "rl") is None


def test_a_stage_with_one_environment_has_none_of_it(tmp_path: Path) -> None:
    plain = {key: value for key, value in row(1).items() if not key.startswith("envs/")}
    run_directory(tmp_path / "run", [plain], stages=STAGES, reward={"name": "answer", "correct": 1.0})
    stage = stage_of(read_directory(tmp_path / "run"))
    assert list(stage.right_by_env) == [""] and list(rows_by_env(stage)) == []
