"""The policy built from nothing."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from transformers.utils import logging

from launch.checks.model_size import parameters
from launch.checks.models import parameters_in
from learners import scratch
from learners.scratch import build
from rlsys.config.model import ModelConfig, ScratchModel
from rlsys.config.recipe import RecipeConfig
from tests.refused import refused

TAGS = ("<calculator>", "</calculator>", "<answer>", "</answer>")
TEXTS = ["Ann has 12 and buys 305 more.\n<calculator>12+305</calculator>", "It is <answer>317</answer>, she says."] * 20
SHAPE = ScratchModel(hidden_size=64, intermediate_size=96, num_layers=2, num_heads=2, num_kv_heads=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scratch") / "model"
    build(folder, SHAPE, TEXTS, TAGS, max_positions=256, seed=3)
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


@pytest.mark.parametrize(
    "text", [*TEXTS[:2], " two  spaces ", "naïve 日本語 🙂", "a\ttab\n\n", "<answer>7</answer>", ""]
)
def test_every_text_comes_back(tokenizer, text) -> None:
    assert tokenizer.decode(ids(tokenizer, text)) == text


def test_tags_are_single_tokens_that_decoding_keeps(tokenizer) -> None:
    for tag in TAGS:
        (token,) = ids(tokenizer, tag)
        assert tokenizer.decode([token], skip_special_tokens=True) == tag
    assert len(ids(tokenizer, "<answer>7</answer>")) == 3


def test_chat_marks_are_special_and_tags_are_not(tokenizer) -> None:
    special = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    assert special >= {"<|im_start|>", "<|im_end|>"} and special.isdisjoint(TAGS)
    assert tokenizer.decode(ids(tokenizer, "<|im_start|>48<|im_end|>"), skip_special_tokens=True) == "48"


def test_digits_never_merge(tokenizer) -> None:
    assert len(ids(tokenizer, "305305")) == 6
    assert ids(tokenizer, "305") == [token for digit in "305" for token in ids(tokenizer, digit)]


def test_the_vocabulary_covers_every_id(folder, tokenizer) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert max(tokenizer.get_vocab().values()) < model.config.vocab_size == SHAPE.vocab_size
    assert model.dtype == torch.float32
    assert not model.config.tie_word_embeddings
    assert model.config.max_position_embeddings == 256
    recipe = RecipeConfig(model=ModelConfig(scratch=SHAPE))
    assert parameters(recipe) == parameters_in(folder, "model") == sum(tensor.numel() for tensor in model.parameters())


def test_the_end_of_a_message_ends_generation_and_chat_marks_are_not_text(folder, tokenizer) -> None:
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.eos_token_id == end == GenerationConfig.from_pretrained(folder).eos_token_id
    assert tokenizer.pad_token_id not in (None, end)
    assert tokenizer.decode([end], skip_special_tokens=True) == ""


def test_the_chat_template_is_chatml(tokenizer) -> None:
    messages = [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    assert text == "<|im_start|>user\n2 + 3?<|im_end|>\n<|im_start|>assistant\n5<|im_end|>\n"
    prompt = tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    assert prompt == "<|im_start|>user\n2 + 3?<|im_end|>\n<|im_start|>assistant\n"
    assert len(ids(tokenizer, "assistant")) == 1  # role names are learned, though no text holds them


def test_the_same_arguments_give_the_same_files(folder, tmp_path) -> None:
    build(tmp_path / "again", SHAPE, iter(TEXTS), TAGS, max_positions=256, seed=3)
    names = sorted(file.name for file in folder.iterdir())
    assert names == sorted(file.name for file in (tmp_path / "again").iterdir())
    for name in names:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name


def test_matrices_begin_by_their_fan_in_and_norms_at_one(folder) -> None:
    for name, tensor in load_file(folder / "model.safetensors").items():
        expected = 0.0 if tensor.ndim < 2 else tensor.shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            expected /= 2  # the root of twice the two layers
        if "embed_tokens" in name:
            expected = scratch.EMBEDDING_STD
        assert tensor.std() == pytest.approx(expected, rel=0.1), name
        assert tensor.ndim >= 2 or torch.equal(tensor, torch.ones_like(tensor)), name


def test_another_seed_gives_other_weights(folder, tmp_path) -> None:
    build(tmp_path, SHAPE, TEXTS, TAGS, max_positions=256, seed=4)
    assert (folder / "model.safetensors").read_bytes() != (tmp_path / "model.safetensors").read_bytes()


def test_building_leaves_the_callers_random_state_alone(tmp_path) -> None:
    before = torch.get_rng_state()
    logging.enable_progress_bar()
    build(tmp_path / "of" / "its" / "own", SHAPE, TEXTS, TAGS, max_positions=256, seed=3)
    assert torch.equal(before, torch.get_rng_state())
    assert not logging.is_progress_bar_enabled()  # the run has its own


def test_a_vocabulary_too_small_for_the_bytes_is_bad_input(tmp_path) -> None:
    tags = [f"<{number}>" for number in range(50)]
    with refused("model.scratch.vocab_size", found=300, expected="309"):  # 256 + 3 + 50
        build(tmp_path, ScratchModel(vocab_size=300), TEXTS, tags, max_positions=256, seed=3)
