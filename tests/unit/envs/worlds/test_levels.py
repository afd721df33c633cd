"""What the worlds say of how hard their tasks are: what a curriculum draws by."""

import pytest

from envs import make_world
from launch.config.compose import compose


@pytest.mark.parametrize(
    ("config", "keys", "levels"),
    [
        ("worlds/calculator", [], {"1", "2"}),
        ("worlds/graph", ["env.connectivity_nodes=[4,11]"], {"connectivity 0+", "connectivity 5+", "connectivity 10+"}),
        ("worlds/blocksworld", ["env.max_blocks=4"], {"3", "4"}),
    ],
)
def test_made_up_tasks_have_levels(config: str, keys: list[str], levels: set[str]) -> None:
    small = ["env.train_tasks=40", "env.held_out_tasks=4"]
    world = make_world(compose(config, small + keys).recipe.env)
    assert {world.level(task) for task in world.tasks("train")} >= levels
