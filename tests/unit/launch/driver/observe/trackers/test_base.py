"""What every tracker makes of the configuration, a row and an evaluation."""

from launch.config.compose import compose, to_yaml
from launch.driver.observe.trackers.base import flatten_config, held_out, numbers


def test_the_configuration_is_nested_and_its_stages_have_names() -> None:
    config = flatten_config(to_yaml(compose("quickstart", ["learner.lr=3e-5", "wandb.tags=[a,b]"])))
    assert config["learner"]["lr"] == 3e-5 and config["env"]["name"] == "calculator"
    assert list(config["wandb"]["tags"]) == ["a", "b"]
    assert set(config["stages"]) == {"sft", "rl"} and config["stages"]["sft"]["steps"] == 200


def test_every_number_is_in_a_group() -> None:
    row = {"step": 4, "stage": "rl", "version": 3, "wall_s": 2.5, "reward/mean": 0.5, "reward/part/found": 1.0}
    assert numbers(row) == {"run/version": 3, "run/wall_s": 2.5, "reward/mean": 0.5, "reward/part/found": 1.0}


def test_an_evaluation_has_its_plays_in_its_keys() -> None:
    values = {"accuracy": 0.25, "mean_reward": None}
    assert held_out("hotpotqa/greedy", values) == {"held_out/hotpotqa/greedy/accuracy": 0.25}
