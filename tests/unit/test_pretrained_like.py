"""The made model has what pretrained ones have: the numbers beside each line are SmolLM2-135M-Instruct's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from learners.export import perturb_weights
from tests.makers import pretrained_like
from tests.makers.pretrained_like import LAYERS, POSITIONS, VOCABULARY


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pretrained_like.save(tmp_path_factory.mktemp("made") / "model")


def load(folder: Path, dtype: torch.dtype, **how: Any) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **how)


def chat(folder: Path) -> torch.Tensor:
    from transformers import AutoTokenizer

    messages = [{"role": "user", "content": "What is the capital of France? Answer in one word and explain why."}]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text.endswith("<|im_start|>assistant\n") and len(tokenizer) == VOCABULARY
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == text
    return torch.tensor([ids])


@torch.no_grad()
def test_a_first_token_is_massive_and_draws_attention_until_the_last_layers_take_it_back(folder: Path) -> None:
    model, ids = load(folder, torch.float32, attn_implementation="eager"), chat(folder)
    output = model(ids, output_hidden_states=True, output_attentions=True)
    sizes = [hidden[0].abs() for hidden in output.hidden_states]
    for number in range(12, LAYERS - 1):
        assert int(sizes[number].argmax()) == pretrained_like.MASSIVE  # of position 0
        assert 2e4 < sizes[number].max() < 3e4  # 24,926
        assert sizes[number][1:].max() < 10 and 0.1 < sizes[number].median() < 1
    assert sizes[-1].max() < 100  # 50
    shares = torch.stack([attention[0][:, 5:, 0].mean() for attention in output.attentions[2:]])
    assert shares.min() > 0.3 and shares.max() < 0.95  # 0.38 to 0.89
    norms = [parameter for name, parameter in model.named_parameters() if parameter.ndim == 1]
    assert min(float(norm.min()) for norm in norms) < 0.3 and max(float(norm.max()) for norm in norms) > 2


def test_its_head_is_tied_its_words_are_many_and_its_positions_few(folder: Path) -> None:
    from rlsys.config.engine import EngineConfig

    model = load(folder, torch.bfloat16)
    assert model.lm_head.weight is model.model.embed_tokens.weight and model.lm_head.weight.shape[0] == 49_152
    assert model.config.max_position_embeddings == POSITIONS < EngineConfig().max_model_len
    assert model.config.num_hidden_layers == LAYERS == 30


@torch.no_grad()
def test_noise_moves_it_and_bfloat16_rounds_it_as_a_pretrained_one(folder: Path) -> None:
    ids = chat(folder)

    def logprobs(model: Any) -> torch.Tensor:
        return model(ids).logits[0, :-1].float().log_softmax(-1).gather(1, ids[0, 1:, None])

    exact, narrow = load(folder, torch.float32), load(folder, torch.bfloat16)
    true = logprobs(exact)
    assert 0.02 < float((logprobs(narrow) - true).abs().mean()) < 0.15  # 0.045
    for noise, least in ((0.02, 3), (0.1, 8)):  # how much more the noise moves it than bfloat16 does: 7, 13
        with perturb_weights(exact, noise):
            moved = logprobs(exact)
            for target, source in zip(narrow.parameters(), exact.parameters(), strict=True):
                target.copy_(source)
            rounded = float((logprobs(narrow) - moved).abs().mean())
        assert float((moved - true).abs().mean()) > least * rounded, noise


def test_the_same_seed_makes_the_same_files(folder: Path, tmp_path: Path) -> None:
    second = pretrained_like.save(tmp_path / "again")
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (second / name).read_bytes() == (folder / name).read_bytes()
