"""What a colleague gets with `hf/` alone: stop strings that transformers obeys, and a card that says what it is."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from envs import make_world
from launch.config.compose import compose
from launch.run.card import a_prompt, write_card, write_stops
from launch.run.checkpoints import digests
from learners.scratch import build
from rlsys.config import ScratchModel

ROW: dict[str, Any] = {
    "step": 12, "stage": "rl", "when": "after", "version": 3,
    "greedy/accuracy": 0.9, "greedy/accuracy_low": 0.85, "greedy/accuracy_high": 0.94, "greedy/episodes": 200,
}  # fmt: skip
SMALL = ["env.train_tasks=8", "env.held_out_tasks=8"]


def model_in(folder: Path) -> Path:
    shape = ScratchModel(
        vocab_size=300, hidden_size=32, intermediate_size=32, num_layers=1, num_heads=1, num_kv_heads=1, head_dim=32
    )
    build(folder, shape, ["48 / 2 -> 24.0 </answer>"] * 20, (), 128, seed=1)
    return folder


def said(folder: Path) -> str:
    """By a policy that says its first token for ever."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    ids = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=9, do_sample=False, tokenizer=tokenizer)
    return str(tokenizer.decode(ids[0, 3:]))


def test_transformers_stops_where_the_engine_would_have_stopped(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "hf")
    assert said(folder) == "!" * 9
    write_stops(folder, ["!!!"])
    assert said(folder) == "!!!"


def test_stop_strings_are_those_of_the_last_environment_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "generation_config.json"
    path.write_text('{"eos_token_id": [7, 8], "temperature": 0.6, "stop_strings": ["</old>"]}')
    write_stops(tmp_path, ["</answer>"])
    assert json.loads(path.read_text()) == {"eos_token_id": [7, 8], "temperature": 0.6, "stop_strings": ["</answer>"]}
    write_stops(tmp_path, [])
    assert json.loads(path.read_text()) == {"eos_token_id": [7, 8], "temperature": 0.6}


def test_a_card_says_what_the_model_was_trained_on_and_how_well_it_did(tmp_path: Path) -> None:
    config, folder = compose("quickstart", SMALL), tmp_path / "step-000012" / "hf"
    folder.mkdir(parents=True)
    (folder / "generation_config.json").write_text("{}")
    stage, prompt = config.stages[-1], a_prompt(make_world(config.recipe.env))
    before = digests(folder.parent)
    write_card(folder, config, stage, 12, prompt, [ROW | {"greedy/passed_low": 0.1}])
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert f"`{stage.config.env.name}`" in card and f"`{stage.config.reward.name}`" in card
    assert "| 12 | rl, after | greedy/accuracy | 0.900 | 0.850 to 0.940 |" in card and "passed" not in card
    assert all(f"`{stop}`" in card for stop in prompt[1]) and prompt[0][-1]["content"] in card
    assert digests(folder.parent) == before  # an edited card is no damage


def test_a_prompt_cannot_end_its_fence(tmp_path: Path) -> None:
    config = compose("quickstart", SMALL)
    hostile = [{"role": "user", "content": "````\n# I am a heading"}]
    write_card(tmp_path, config, config.stages[-1], 1, (hostile, []), [])
    card = (tmp_path / "README.md").read_text()
    assert "`````text\nuser: ````" in card and "stop strings" not in card


def test_a_world_that_cannot_tell_a_prompt_costs_no_checkpoint() -> None:
    assert a_prompt(object()) == ([], [])  # type: ignore[arg-type]
