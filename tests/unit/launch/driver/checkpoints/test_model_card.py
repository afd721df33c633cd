"""What a colleague gets with `hf/` alone: its stop strings, and a card that says what it is."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from envs import make_world
from launch.config.compose import compose
from launch.driver.checkpoints.checkpoint import file_digests
from launch.driver.checkpoints.model_card import example_prompt, renew_results, write_card, write_training_facts
from learners.scratch import build
from rlsys.config.model import ScratchModel

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


def said(folder: Path, **options: Any) -> str:
    """By a policy that says its first token for ever."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        model.lm_head.weight.zero_()
    if "stop_strings" in options:
        options["tokenizer"] = tokenizer
    ids = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=9, do_sample=False, **options)
    return str(tokenizer.decode(ids[0, 3:]))


def test_transformers_generates_as_before_and_stops_where_it_is_asked_to(tmp_path: Path) -> None:
    folder, config = model_in(tmp_path / "hf"), compose("quickstart", SMALL)
    before = (folder / "generation_config.json").read_bytes()
    write_training_facts(folder, config, config.stages[-1], ["!!!"])
    assert said(folder) == "!" * 9  # plain `generate`, without a tokenizer
    assert (folder / "generation_config.json").read_bytes() == before
    about = json.loads((folder / "rlsys.json").read_text())
    assert (about["recipe"], about["stage"], about["protocol"]) == ("quickstart", "rl", None)
    assert said(folder, stop_strings=about["stop_strings"]) == "!!!"


@pytest.mark.parametrize("adapted", [False, True])
def test_the_lines_of_a_card_load_its_model(adapted: bool, tmp_path: Path) -> None:
    base, config = model_in(tmp_path / "base"), compose("quickstart", SMALL)
    folder = base
    if adapted:  # with config.json and tokenizer, as checkpoints have them
        folder = tmp_path / "hf"
        lora = LoraConfig(target_modules=["q_proj"], init_lora_weights=False, base_model_name_or_path=str(base))
        get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(folder)
        for file in base.glob("*.json"):
            shutil.copy(file, folder)
    write_card(folder, config, config.stages[-1], 12, ([{"role": "user", "content": "1 + 1"}], None), [])
    lines = (folder / "README.md").read_text().split("```python\n")[1].split("ids = ")[0]
    names: dict[str, Any] = {"FOLDER": folder}
    exec(lines, names)  # noqa: S102
    assert any("lora_A" in name for name, _ in names["model"].named_parameters()) == adapted


def test_a_renewed_card_has_the_new_numbers_and_else_what_it_said(tmp_path: Path) -> None:
    """The stage that renews it may be another than the one that trained, with an environment of its own."""
    config, folder = compose("quickstart", SMALL), tmp_path / "step-000012" / "hf"
    folder.mkdir(parents=True)
    renew_results(folder, [ROW])  # of a checkpoint without a card
    assert not list(folder.iterdir())
    write_training_facts(folder, config, config.stages[-1], ["</answer>"])
    prompt = ([{"role": "user", "content": "\n## Held-out tasks\n"}], ["</answer>"])
    write_card(folder, config, config.stages[-1], 12, prompt, [])
    saved = file_digests(folder.parent)
    plain = (folder / "README.md").read_bytes()
    for _ in range(2):
        renew_results(folder, [ROW])
        card = (folder / "README.md").read_bytes()
        assert card.startswith(plain) and card.count(b"| 12 | rl, after | greedy/accuracy |") == 1
    write_card(folder, config, config.stages[-1], 12, prompt, [ROW])
    assert (folder / "README.md").read_bytes() == card
    assert file_digests(folder.parent) == saved


def test_a_card_says_what_the_model_was_trained_on_and_how_well_it_did(tmp_path: Path) -> None:
    config, folder = compose("quickstart", SMALL), tmp_path / "step-000012" / "hf"
    folder.mkdir(parents=True)
    stage, prompt = config.stages[-1], example_prompt(make_world(config.recipe.env))
    before = file_digests(folder.parent)
    write_card(folder, config, stage, 12, prompt, [ROW | {"greedy/passed_low": 0.1}])
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert f"`{stage.config.env.name}`" in card and f"`{stage.config.reward.name}`" in card
    assert "| 12 | rl, after | greedy/accuracy | 0.900 | 0.850 to 0.940 |" in card and "passed" not in card
    assert prompt[1] and all(f"`{stop}`" in card for stop in prompt[1]) and prompt[0][-1]["content"] in card
    assert file_digests(folder.parent) == before  # an edited card is no damage


def test_a_card_says_which_arguments_the_chat_template_was_given(tmp_path: Path) -> None:
    config = compose("quickstart", [*SMALL, "env.template_args={enable_thinking: false}"])
    write_training_facts(tmp_path, config, config.stages[-1], [])
    write_card(tmp_path, config, config.stages[-1], 1, ((), []), [])
    card = (tmp_path / "README.md").read_text()
    assert '`{"enable_thinking": false}`' in card and "add_generation_prompt=True, enable_thinking=False, " in card
    assert json.loads((tmp_path / "rlsys.json").read_text())["template_args"] == {"enable_thinking": False}


def test_a_prompt_cannot_end_its_fence(tmp_path: Path) -> None:
    config = compose("quickstart", SMALL)
    hostile = [{"role": "user", "content": "````\n# I am a heading"}]
    write_card(tmp_path, config, config.stages[-1], 1, (hostile, []), [])
    card = (tmp_path / "README.md").read_text()
    assert "`````text\nuser: ````" in card and "stop strings" not in card


def test_a_world_that_cannot_tell_a_prompt_costs_no_checkpoint_and_no_stop_strings() -> None:
    def failing() -> None:
        raise RuntimeError("no service here")

    assert example_prompt(object()) == ([], None)  # type: ignore[arg-type]
    env = SimpleNamespace(stop_strings=("</answer>",), first_messages=failing)
    world: Any = SimpleNamespace(tasks=lambda split: [1], env=lambda task: env)
    assert example_prompt(world) == ([], ["</answer>"])
