"""What is known of a run before anything is started, from its stages together."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checks.teachers import served_to
from launch.cli import run as rlsys
from launch.config.compose import compose
from launch.driver.run import wire
from launch.driver.stages.base import recipes_with_rollouts
from launch.driver.stages.train import gpus_of_services, services_of
from learners.scratch import build
from rlsys.config.model import ScratchModel
from rlsys.system.device import DEVICES
from tests.refused import refused

SERVED = ["learner.reference=/teacher", "learner.serve_reference=true"]


@pytest.mark.parametrize(("recipe", "stage"), [("quickstart", "rl"), ("swirl/tiny", "swirl")])
def test_every_stage_that_learns_from_what_engines_play_may_have_its_reference_served(recipe: str, stage: str) -> None:
    keys = [f"stages.{stage}.{key}" for key in (*SERVED, "learner.reference_gpus=2", "algorithm.kl_coef=0.1")]
    config = compose(recipe, keys)
    assert "reference" in [need.name for need in services_of(config, DEVICES["cpu"])]
    assert gpus_of_services(config) == 2
    assert "reference" in wire.services([], recipes_with_rollouts(config)).addresses


TWO_STAGES = """
env: {name: calculator, train_tasks: 16, held_out_tasks: 4}
algorithm: {name: opd}
rollout: {workers: 1}
loop: {group_size: 1, groups_per_step: 4}
learner: {reference: /teacher, serve_reference: true}
stages: [{name: a, kind: rl, steps: 1}, {name: b, kind: rl, steps: 1}]
"""


@pytest.mark.parametrize("key", ["learner.reference=/another", "learner.reference_gpus=4"])
def test_stages_that_want_different_references_are_refused_before_anything_starts(
    key: str,
    tmp_path: Path,
) -> None:
    recipe = tmp_path / "two.yaml"
    recipe.write_text(TWO_STAGES)
    config = compose(str(recipe), [f"stages.b.{key}"])
    with refused(key.partition("=")[0]):
        services_of(config, DEVICES["cpu"])
    with refused(key.partition("=")[0]):
        wire.services([], recipes_with_rollouts(config))
    loaded = compose(
        str(recipe), [f"stages.b.{key.replace('_gpus=4', '=/another')}", "stages.b.learner.serve_reference=false"]
    )
    assert served_to(recipes_with_rollouts(loaded)) == loaded.stages[0].config


def test_a_served_teacher_that_cannot_answer_is_found_by_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its config.json alone: two heads are not divided by three GPUs, and a context of 64 is too short."""
    teacher = tmp_path / "teacher"
    build(teacher, ScratchModel(), ["a few words"] * 9, [], max_positions=64, seed=0)
    keys = ["algorithm.name=opd", f"learner.reference={teacher}", "learner.serve_reference=true"]

    def dry(*more: str) -> tuple[int, str]:
        code = rlsys(["train", "quickstart", "--dry-run", *keys, *more])
        return code, capsys.readouterr().err

    code, error = dry("engine.max_model_len=65")
    assert code == 2 and "engine.max_model_len=64 at most" in error and len(error.splitlines()) == 1
    assert dry("engine.max_model_len=64")[0] == 0
    divided = ["engine.max_model_len=64", "cluster.device=cuda", "cluster.gpu_memory_gb=80"]
    code, error = dry(*divided, "learner.reference_gpus=3")
    assert code == 2 and "learner.reference_gpus=3" in error
    assert dry(*divided, "learner.reference_gpus=2")[0] == 0
