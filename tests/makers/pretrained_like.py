"""A made model with what pretrained ones have and random ones have not, built in seconds: no download.

As SmolLM2-135M has it (measured there): the first token of a sample has one channel of 25,000 from layer 12 to the last
but one, which the last layers take back to hundreds; most heads look at that token and take next to nothing from it;
norms are far from 1 and each channel has its own; the head is tied; there are more words than a test ever uses, and
fewer positions than the default window.

How the first token is told from the others, without a mark: head 0 of layer 0 looks at all tokens alike, so that it
gives the mean of their random signs, and the first token alone agrees with that mean in every sign. Layer 0 counts the
agreement, layer 1 makes some hundreds of it, layer 11 ten thousands, and the last two subtract as much.
"""

from __future__ import annotations

import itertools
import string
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, LAYERS, POSITIONS, WIDTH = 49_152, 30, 256, 64
HEADS, HEAD = 4, 64  # of a size that vLLM has kernels for on CPUs, in both formats
INNER = 96
FEW = 3  # neurons that write the massive channel
# Channels of the residual stream: one that is the same for all, the massive one, the agreement, signs and their mean.
CONSTANT, MASSIVE, AGREEMENT, SIGNS, MEANS = 0, 1, 2, slice(3, 19), slice(19, 35)
COUNT = 16  # of signs, and of their means
SIGN, EARLY, PEAK = 0.5, 800.0, 24_000.0


def save(folder: Path, dtype: str = "float32", *, seed: int = 0) -> Path:
    """A Hugging Face folder: config, weights in this format, tokenizer with a chat template."""
    from transformers import GenerationConfig

    tokenizer, model = made_tokenizer(), made_model(seed)
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    model.config.update(ends)
    model.generation_config = GenerationConfig(**ends)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def made_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, then two letters, four and three as one token, until all ids are taken."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from learners.scratch import CHAT_TEMPLATE, END, PAD, START

    special = [PAD, START, END]
    words = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    pairs = ["".join(pair) for pair in itertools.product(string.ascii_lowercase, repeat=2)]
    merges = [(pair[0], pair[1]) for pair in pairs]
    merges += itertools.product(pairs, string.ascii_lowercase)
    merges += itertools.product(pairs, pairs)
    merges = merges[: VOCABULARY - len(words)]
    words += [left + right for left, right in merges]
    bpe = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=END, pad_token=PAD, model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@torch.no_grad()
def made_model(seed: int = 0) -> LlamaForCausalLM:
    """In float32."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=2, head_dim=HEAD, max_position_embeddings=POSITIONS,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        bos_token_id=None, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.copy_(torch.randn(parameter.shape).mul(0.3).exp().mul(0.4))  # far from 1, each its own
            else:
                torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
        _set_embedding(model.model.embed_tokens.weight)
        for number, layer in enumerate(model.model.layers):
            _leave_roles_alone(layer)
            _add_sink(layer, number)
        _find_the_first_token(model.model.layers)
        for number, size in ((11, PEAK - EARLY), (LAYERS - 2, -0.6 * PEAK), (LAYERS - 1, -0.4 * PEAK)):
            _write_massive(model.model.layers[number], size)
        model.model.norm.weight.mul_(4.0)[MASSIVE] = 0.1
    return model


def _set_embedding(weight: torch.Tensor) -> None:
    weight.copy_(0.4 * torch.randn(weight.shape))
    weight[:, CONSTANT] = 1.0
    weight[:, SIGNS] = SIGN * weight[:, SIGNS].sign()
    weight[:, [MASSIVE, AGREEMENT]] = 0.0
    weight[:, MEANS] = 0.0


def _leave_roles_alone(layer: Any) -> None:
    """What a layer adds goes into the other channels."""
    for writes in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
        writes.mul_(0.3)
        writes[: MEANS.stop] = 0.0
    for norm in (layer.input_layernorm.weight, layer.post_attention_layernorm.weight):
        norm[[CONSTANT, MASSIVE]] = 1.0
    for reads in (layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight, layer.self_attn.v_proj.weight):
        reads[:, MASSIVE] = 0.0  # next to nothing is taken from a first token
    layer.self_attn.k_proj.weight[:, MASSIVE] = layer.self_attn.q_proj.weight[:, MASSIVE] = 0.0


def _add_sink(layer: Any, number: int) -> None:
    """The slowest pair of a head's dimensions does not turn within so few positions: keys of first tokens lie there."""
    if number < 2:
        return
    slow = HEAD // 2 - 1
    layer.self_attn.k_proj.weight[slow::HEAD, MASSIVE] = 2.0  # of a channel that is 8 there, all that a norm leaves
    query = layer.self_attn.q_proj.weight
    query[slow::HEAD, CONSTANT] = 1.0


def _find_the_first_token(layers: Any) -> None:
    first, second = layers[0], layers[1]
    attention, mlp = first.self_attn, first.mlp
    for norm in (first.input_layernorm, first.post_attention_layernorm, second.post_attention_layernorm):
        norm.weight[: MEANS.stop] = 1.0
    attention.q_proj.weight[:HEAD] = 0.0
    attention.v_proj.weight[:HEAD] = 0.0
    attention.v_proj.weight[:COUNT, SIGNS] = torch.eye(COUNT)
    attention.o_proj.weight.zero_()
    attention.o_proj.weight[MEANS, :COUNT] = 0.2 * torch.eye(COUNT)  # little: a norm sees all signs alike then
    for sign, rows in ((1.0, slice(0, COUNT)), (-1.0, slice(COUNT, 2 * COUNT))):  # silu(a) b + silu(-a) (-b) = a b
        mlp.gate_proj.weight[rows] = mlp.up_proj.weight[rows] = 0.0
        mlp.gate_proj.weight[rows, SIGNS] = sign * torch.eye(COUNT)
        mlp.up_proj.weight[rows, MEANS] = sign * torch.eye(COUNT)
        mlp.down_proj.weight[:, rows] = 0.0
        mlp.down_proj.weight[AGREEMENT, rows] = 3.0 / COUNT
    gate, up, down = (linear.weight for linear in (second.mlp.gate_proj, second.mlp.up_proj, second.mlp.down_proj))
    gate[:FEW], up[:FEW], down[:, :FEW] = 0.0, 0.0, 0.0
    gate[:FEW, AGREEMENT], gate[:FEW, CONSTANT] = 16.0, -21.0
    up[:FEW, CONSTANT], down[MASSIVE, :FEW] = 4.0, 4.0


def _write_massive(layer: Any, size: float) -> None:
    """Where the massive channel is all that a norm leaves, it is sqrt(WIDTH). No weight is above 5, as in SmolLM2."""
    gate, up, down = (linear.weight for linear in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj))
    gate[:FEW], up[:FEW], down[:, :FEW] = 0.0, 0.0, 0.0
    gate[:FEW, MASSIVE] = up[:FEW, MASSIVE] = 5.0
    gate[:FEW, CONSTANT] = -6.0  # next to nothing there, and what closes the gate of every other token
    down[MASSIVE, :FEW] = size / (FEW * 25.0 * WIDTH)
