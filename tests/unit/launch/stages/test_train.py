"""What is known of a run before anything is started, from its stages together."""

from __future__ import annotations

import pytest

from launch.config.compose import compose
from launch.run import wire
from launch.stages.base import trained_on_engines
from launch.stages.train import gpus_of_services, services_of
from rlsys.system.device import DEVICES

SERVED = ["learner.reference=/teacher", "learner.serve_reference=true"]


@pytest.mark.parametrize(("recipe", "stage"), [("quickstart", "rl"), ("swirl/tiny", "swirl")])
def test_every_stage_that_learns_from_what_engines_play_may_have_its_reference_served(recipe: str, stage: str) -> None:
    keys = [f"stages.{stage}.{key}" for key in (*SERVED, "learner.reference_gpus=2", "algorithm.kl_coef=0.1")]
    config = compose(recipe, keys)
    assert "reference" in [need.name for need in services_of(config, DEVICES["cpu"])]
    assert gpus_of_services(config) == 2
    assert "reference" in wire.services([], trained_on_engines(config)).addresses
