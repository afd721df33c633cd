"""Every ablation of a recipe is a configuration: not among the unit tests, since there are so many."""

from pathlib import Path

import pytest

from launch.config.compose import compose
from launch.config.layers import CONFIGS

pytestmark = pytest.mark.e2e
ABLATIONS = sorted(CONFIGS.glob("*/ablations/*.yaml"))


@pytest.mark.parametrize("path", ABLATIONS, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_every_ablation_loads(path: Path) -> None:
    assert compose(str(path), []).stages
