"""An evaluation never plays what the checkpoint was trained on."""

from dataclasses import replace

from envs.worlds.calculator import CalculatorConfig
from launch.commands.eval import split_to_evaluate

GENERATED = CalculatorConfig()
FILE = CalculatorConfig(data="train.jsonl")


def test_only_a_file_that_the_checkpoint_has_not_seen_is_played_whole() -> None:
    assert split_to_evaluate(GENERATED, GENERATED) == "held_out"
    assert split_to_evaluate(replace(GENERATED, held_out_tasks=50), GENERATED) == "held_out"  # still its own world
    assert split_to_evaluate(GENERATED, None) == "held_out"
    assert split_to_evaluate(FILE, GENERATED) == "all"
    assert split_to_evaluate(FILE, None) == "all"
    assert split_to_evaluate(FILE, replace(FILE, max_turns=9)) == "held_out"
    assert split_to_evaluate(replace(FILE, data="./train.jsonl"), FILE) == "held_out"
    assert split_to_evaluate(replace(FILE, eval_data="test.jsonl"), None) == "held_out"
