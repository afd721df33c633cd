"""A configuration that names a class by the place where it was still means it."""

import pytest

from envs import REWARDS, WORLDS
from launch.config.compose import compose
from rlsys.choices import MOVED, choose, load

CLASSES = {path.rpartition(".")[0]: (key, path) for key, table in (("env", WORLDS), ("reward", REWARDS))
           for path in table.values()}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), MOVED.items(), ids=MOVED)
def test_an_old_dotted_path_names_the_same_class(old: str, new: str) -> None:
    key, path = CLASSES[new]
    assert choose(key, {}, f"{old}.{path.rpartition('.')[2]}").build is load(path)


def test_a_recipe_may_hold_one() -> None:
    env, reward = "envs.worlds.graph.GraphWorld", "envs.rewards.graph_rl.GraphRLReward"
    recipe = compose("worlds/graph", [f"env.name={env}", f"reward.name={reward}"]).recipe
    assert (recipe.env.name, recipe.reward.name) == (env, reward)
