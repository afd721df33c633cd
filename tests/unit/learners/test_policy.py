"""Packed log-probabilities: nothing leaks between samples, and no shortcut changes a number."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AttentionInterface,
    AutoModelForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    RecurrentGemmaConfig,
    RecurrentGemmaForCausalLM,
)
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

from learners import attention
from learners.policy import PolicyModel, load_policy
from learners.proofs import LENGTHS
from learners.rope import copy_scaled
from learners.rows import pack_ids
from rlsys.errors import BadInput
from rlsys.system.device import DEVICES
from tests.refused import refused

VOCAB = 50
SAMPLES = ([3, 14, 15, 9, 26, 5], [35, 8], [9, 7, 9, 3, 2, 3, 8, 46, 26, 43, 3], [38, 32, 7])
SHAPE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


def save_llama(folder: Path) -> str:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPE, initializer_range=0.2)).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="module")
def policy(path: str) -> PolicyModel:
    return load_policy(path, dtype="float32", attention_key="packed_sdpa")


def logprobs(policy: PolicyModel, samples, temperature: float = 1.0, chunk: int = 1000, needed=None):
    return policy(*pack_ids(list(samples), "cpu"), temperature, chunk, needed)


def full_logprobs(path: str, sample: list[int], temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    """transformers' own attention and logits of one sample alone: (logp, entropy) of its tokens but the first."""
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    ids = torch.tensor([sample])
    with torch.no_grad():
        logp = (model(ids).logits[0, :-1].double() / temperature).log_softmax(-1)
    return logp.gather(1, ids[0, 1:, None]).squeeze(1), -(logp.exp() * logp).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk", [1, 4, 1000])
def test_a_packed_row_gives_each_sample_what_the_plain_model_gives_it_alone(policy, path, temperature, chunk) -> None:
    logp, entropy = logprobs(policy, SAMPLES, temperature, chunk)
    assert logp.dtype == entropy.dtype == torch.float32
    start = 0
    for sample in SAMPLES:
        expected, expected_entropy = full_logprobs(path, sample, temperature)
        end = start + len(sample)
        assert logp[start] == 0 and entropy[start] == 0
        torch.testing.assert_close(logp[start + 1 : end].double(), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(entropy[start + 1 : end].double(), expected_entropy, atol=1e-5, rtol=0)
        start = end


def gradients(policy: PolicyModel, rows: list[tuple[list[int], ...]], chunk: int = 1000) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    for row in rows:
        logprobs(policy, row, chunk=chunk)[0].sum().backward()
    return {name: parameter.grad.clone() for name, parameter in policy.named_parameters()}


@pytest.mark.parametrize("rows", [[SAMPLES[:2], SAMPLES[2:]], [(sample,) for sample in SAMPLES], [SAMPLES[::-1]]])
@pytest.mark.parametrize("chunk", [3, 1000])
def test_the_gradient_does_not_depend_on_how_samples_are_packed_or_chunked(policy, rows, chunk) -> None:
    together, apart = gradients(policy, [SAMPLES]), gradients(policy, rows, chunk)
    for name, expected in together.items():
        torch.testing.assert_close(apart[name], expected, atol=1e-5 * float(expected.abs().max()), rtol=0, msg=name)


def test_another_neighbour_changes_no_bit(policy) -> None:
    ours = slice(len(SAMPLES[0]), len(SAMPLES[0]) + len(SAMPLES[1]))
    logp, _ = logprobs(policy, SAMPLES)
    other, _ = logprobs(policy, ([1] * 6, SAMPLES[1], [2] * 11, [4] * 3))
    assert torch.equal(logp[ours], other[ours])


def test_a_sample_gets_no_gradient_from_its_neighbour(policy) -> None:
    embedding = policy.model.get_input_embeddings()
    rows: list[torch.Tensor] = []
    hook = embedding.register_forward_hook(lambda module, inputs, output: rows.append(output.requires_grad_()) or None)
    logp, _ = logprobs(policy, SAMPLES)
    hook.remove()
    (grad,) = torch.autograd.grad(logp[6:8].sum(), rows[0])
    assert grad[0, :6].abs().max() == 0 and grad[0, 8:].abs().max() == 0 and grad[0, 6:8].abs().max() > 0


def test_positions_that_nobody_needs_are_zero_and_the_others_unchanged(policy) -> None:
    everywhere, entropy = logprobs(policy, SAMPLES)
    needed = torch.zeros(len(everywhere), dtype=torch.bool)
    needed[[0, 3, 7, 12]] = True  # 0 is a first token: nothing predicts it
    logp, some_entropy = logprobs(policy, SAMPLES, needed=needed)
    expected = torch.where(needed, everywhere, 0.0)
    torch.testing.assert_close(logp, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(some_entropy, torch.where(needed, entropy, 0.0), atol=1e-6, rtol=0)
    assert needed[0]  # the caller's mask is not written to


def test_a_row_where_nothing_is_needed_still_reaches_every_parameter(policy) -> None:
    policy.zero_grad()
    logp, _ = logprobs(policy, SAMPLES, needed=torch.zeros(22, dtype=torch.bool))
    logp.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in policy.parameters())


def test_no_gradient_flows_through_the_entropy(policy) -> None:
    assert not logprobs(policy, SAMPLES)[1].requires_grad


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("chunk", [3, 1000])
def test_the_entropy_has_its_gradient_where_asked_for_in_chunks_too(policy, path, temperature, chunk) -> None:
    plain = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    for sample in SAMPLES:
        logp = (plain(torch.tensor([sample])).logits[0, :-1] / temperature).log_softmax(-1)
        (-(logp.exp() * logp).sum() + logp[torch.arange(len(sample) - 1), sample[1:]].sum()).backward()
    policy.zero_grad()
    logp, entropy = policy(*pack_ids(list(SAMPLES), "cpu"), temperature, chunk, None, True)
    (entropy + logp).sum().backward()
    for ours, theirs in zip(policy.model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    policy.zero_grad()


class Largest(TorchDispatchMode):
    """The largest tensor that any operation gives, forwards and backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        outputs = [result] if torch.is_tensor(result) else result if isinstance(result, (tuple, list)) else []
        self.numel = max([self.numel, *(part.numel() for part in outputs if torch.is_tensor(part))])
        return result


@pytest.mark.parametrize("entropy_gradient", [False, True])
def test_no_tensor_of_tokens_by_vocabulary_exists(tmp_path, entropy_gradient) -> None:
    tokens, vocab, chunk = 384, 3000, 32
    LlamaForCausalLM(LlamaConfig(**(SHAPE | {"vocab_size": vocab}))).save_pretrained(tmp_path)
    policy = load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    row = pack_ids([list(range(tokens // 2))] * 2, "cpu")
    with Largest() as largest:
        logp, entropy = policy(*row, 1.0, chunk, None, entropy_gradient)
        (logp.sum() + (entropy.sum() if entropy_gradient else 0.0)).backward()
    weights = vocab * SHAPE["hidden_size"]
    assert chunk * vocab <= largest.numel <= max(chunk * vocab, weights) < tokens * vocab / 5


def test_a_larger_rope_base_is_applied_once_and_saved_with_the_model(path, tmp_path) -> None:
    plain, scaled = (
        load_policy(path, dtype="float32", attention_key="packed_sdpa", rope_theta_scale=scale) for scale in (1.0, 10.0)
    )
    assert scaled.model.config.rope_parameters["rope_theta"] == 10 * plain.model.config.rope_parameters["rope_theta"]
    assert not torch.equal(logprobs(plain, SAMPLES)[0], logprobs(scaled, SAMPLES)[0])
    scaled.model.save_pretrained(tmp_path / "saved")
    scaled.own_config().save_pretrained(tmp_path / "saved")
    for scale in (1.0, 10.0):  # what was saved stands: the next stage asks for the same, an evaluation for nothing
        again = load_policy(
            str(tmp_path / "saved"), dtype="float32", attention_key="packed_sdpa", rope_theta_scale=scale
        )
        assert torch.equal(logprobs(again, SAMPLES)[0], logprobs(scaled, SAMPLES)[0]), scale


def test_a_scaled_copy_is_what_engines_can_load(path, tmp_path) -> None:
    copy = copy_scaled(path, 10.0, tmp_path / "run" / "copy")
    assert copy_scaled(path, 10.0, tmp_path / "run" / "copy") == copy  # as a run that goes on does
    scaled = load_policy(path, dtype="float32", attention_key="packed_sdpa", rope_theta_scale=10.0)
    plain = AutoModelForCausalLM.from_pretrained(copy)
    logp = plain(torch.tensor([SAMPLES[0]])).logits[0, :-1].log_softmax(-1)
    expected = logp[torch.arange(len(SAMPLES[0]) - 1), SAMPLES[0][1:]]
    torch.testing.assert_close(logprobs(scaled, SAMPLES[:1])[0][1:], expected, rtol=1e-5, atol=1e-5)
    assert copy_scaled(path, 1.0, tmp_path / "other") == path and not (tmp_path / "other").exists()
    assert copy_scaled(copy, 10.0, tmp_path / "third") == copy
    assert copy_scaled(path, 2.0, tmp_path / "twice") == str(tmp_path / "twice")


def test_a_model_without_rope_cannot_be_scaled(tmp_path) -> None:
    OPTForCausalLM(OPTConfig(vocab_size=VOCAB, hidden_size=16, ffn_dim=16, num_hidden_layers=1,
                             num_attention_heads=2, word_embed_proj_dim=16)).save_pretrained(tmp_path)  # fmt: skip
    with refused("learner.rope_theta_scale", says="has no rope_theta"):
        load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa", rope_theta_scale=10.0)


def test_gradient_checkpointing_changes_no_number(policy, path) -> None:
    saving = load_policy(path, dtype="float32", attention_key="packed_sdpa", gradient_checkpointing=True)
    expected, result = gradients(policy, [SAMPLES]), gradients(saving, [SAMPLES])
    assert all(torch.equal(result[name], expected[name]) for name in expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_every_token_has_one_slot_and_no_sample_is_padded_by_more_than_a_quarter(lengths) -> None:
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    layout = attention.packed_layout(cu_seqlens)
    padding = layout.padding
    tokens = torch.cat([group.tokens for group in padding.groups])
    assert torch.equal(tokens[padding.slots], torch.arange(sum(lengths)))
    assert len(tokens) <= sum(lengths) / 0.8


def test_a_sliding_window_sees_what_transformers_lets_it_see(tmp_path) -> None:
    torch.manual_seed(0)
    config = Qwen2Config(
        **SHAPE,
        initializer_range=0.2,
        use_sliding_window=True,
        sliding_window=4,
        max_window_layers=0,
        layer_types=["sliding_attention"] * 2,
    )
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    policy = load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    logp, _ = logprobs(policy, SAMPLES)
    expected, _ = full_logprobs(str(tmp_path), SAMPLES[2], 1.0)
    torch.testing.assert_close(logp[9:19].double(), expected, atol=1e-5, rtol=0)


def save_gemma(folder: Path, attention_cap: float | None, scale: float = 0.2) -> str:
    torch.manual_seed(0)
    config = Gemma2Config(
        **SHAPE,
        head_dim=8,
        query_pre_attn_scalar=8,
        final_logit_softcapping=2.0,
        attn_logit_softcapping=attention_cap,
        sliding_window=4,
        initializer_range=scale,
    )
    Gemma2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


def test_a_soft_capped_head_is_noticed_and_its_own_logits_are_used(tmp_path) -> None:
    path = save_gemma(tmp_path, None)
    policy = load_policy(path, dtype="float32", attention_key="packed_sdpa")
    assert not policy.linear_head
    logp, _ = logprobs(policy, SAMPLES)
    expected, _ = full_logprobs(path, SAMPLES[2], 1.0)
    torch.testing.assert_close(logp[9:19].double(), expected, atol=1e-5, rtol=0)


def test_a_soft_cap_is_noticed_where_untrained_logits_are_too_small_to_feel_it(tmp_path) -> None:
    assert not load_policy(save_gemma(tmp_path, None, 1e-6), dtype="float32", attention_key="packed_sdpa").linear_head


@pytest.mark.parametrize("block", [3, 512])
@pytest.mark.parametrize("key", ["packed_sdpa", "packed_varlen"])
def test_soft_capped_attention_gives_each_sample_what_the_plain_model_gives_it_alone(
    tmp_path, monkeypatch, block, key
) -> None:
    """Gemma 2, whose layers take turns with a window of 4. The cap is low enough to change every number."""
    monkeypatch.setattr(attention, "CAPPED_QUERIES", block)
    path = save_gemma(tmp_path, 0.5)
    policy = load_policy(path, dtype="float32", attention_key=key)
    logp, _ = logprobs(policy, SAMPLES)
    start = 0
    for sample in SAMPLES:
        expected, _ = full_logprobs(path, sample, 1.0)
        torch.testing.assert_close(logp[start + 1 : start + len(sample)].double(), expected, atol=1e-5, rtol=0)
        start += len(sample)
    uncapped = load_policy(save_gemma(tmp_path / "uncapped", None), dtype="float32", attention_key=key)
    assert (logprobs(uncapped, SAMPLES)[0] - logp).abs().max() > 1e-3


def test_the_gradient_of_soft_capped_attention_is_that_of_the_plain_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(attention, "CAPPED_QUERIES", 4)
    path = save_gemma(tmp_path, 0.5)
    ours = gradients(load_policy(path, dtype="float32", attention_key="packed_sdpa"), [SAMPLES])
    plain = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    for sample in SAMPLES:
        ids = torch.tensor([sample])
        plain(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None]).sum().backward()
    for name, parameter in plain.named_parameters():
        gradient = ours[f"model.{name}"]
        torch.testing.assert_close(gradient, parameter.grad, atol=1e-4 * float(parameter.grad.abs().max()), rtol=0)


def test_a_plain_head_is_noticed(policy) -> None:
    assert policy.linear_head


def deep(layers: int, dtype: torch.dtype) -> LlamaForCausalLM:
    torch.manual_seed(0)
    attention.register()
    config = LlamaConfig(**SHAPE | {"num_hidden_layers": layers}, attn_implementation="packed_sdpa")
    return LlamaForCausalLM(config).to(dtype)


def other_kernels(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Products of rows of this many tokens are rounded otherwise, as on a GPU that sums them in another order."""
    plain, noise = F.linear, torch.Generator().manual_seed(1)

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if x.shape[-2] != rows:
            return plain(x, weight, bias)
        exact = plain(x, weight, bias)
        return exact * (1 + 2**-7 * (torch.rand(exact.shape, generator=noise) - 0.5).sign()).to(exact.dtype)

    monkeypatch.setattr(F, "linear", linear)


@pytest.mark.parametrize("layers", [28, 64])
def test_rounding_of_a_deep_model_is_no_leak(layers: int, monkeypatch) -> None:
    other_kernels(monkeypatch, rows=LENGTHS[0])  # of the sample alone
    assert PolicyModel(deep(layers, torch.bfloat16)).linear_head


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layers", [2, 64])
def test_samples_that_see_each_other_are_refused(layers: int, dtype: torch.dtype, monkeypatch) -> None:
    whole = attention.packed_layout

    def leaking(cu_seqlens: torch.Tensor, *_: object) -> attention.PackedLayout:
        return whole(torch.stack([cu_seqlens[0], cu_seqlens[-1]]))  # one sample, from the first token to the last

    monkeypatch.setattr(attention, "packed_layout", leaking)
    with refused(says="see each other"):
        PolicyModel(deep(layers, dtype))


def test_the_head_is_found_linear_whatever_another_pass_rounds(monkeypatch, caplog) -> None:
    model, calls = deep(28, torch.bfloat16), []
    plain = F.linear

    def linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        calls.append(weight.shape)
        if len(calls) <= 28 * 7 + 1:  # the first pass, with the head
            return plain(x, weight, bias)
        half = x.shape[-1] // 2
        return plain(x[..., :half], weight[:, :half], bias) + plain(x[..., half:], weight[:, half:])

    monkeypatch.setattr(F, "linear", linear)
    assert PolicyModel(model).linear_head and not caplog.records
    assert len(calls) > 28 * 7 + 1


def test_an_architecture_that_carries_state_from_sample_to_sample_is_refused(tmp_path) -> None:
    torch.manual_seed(0)
    config = RecurrentGemmaConfig(**SHAPE, lru_width=32, attention_window_size=8, block_types=["recurrent"] * 2)
    RecurrentGemmaForCausalLM(config).save_pretrained(tmp_path)
    with refused(says="see each other"):
        load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")


def test_a_model_with_dropout_gives_the_same_numbers_twice_and_its_config_keeps_the_probabilities(tmp_path) -> None:
    torch.manual_seed(0)
    config = OPTConfig(
        vocab_size=VOCAB, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=2,
        word_embed_proj_dim=32, max_position_embeddings=64, dropout=0.5, attention_dropout=0.25, layerdrop=0.5,
        init_std=0.2,
    )  # fmt: skip
    OPTForCausalLM(config).save_pretrained(tmp_path)
    policy = load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    assert policy.training
    first, again = (logprobs(policy, SAMPLES)[0] for _ in range(2))
    assert torch.equal(first, again)
    expected, _ = full_logprobs(str(tmp_path), SAMPLES[2], 1.0)
    torch.testing.assert_close(first[9:19].double(), expected, atol=1e-5, rtol=0)
    own = policy.own_config()
    assert (own.dropout, own.attention_dropout, own.layerdrop) == (0.5, 0.25, 0.5)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (
            lambda: BloomForCausalLM(BloomConfig(vocab_size=VOCAB, hidden_size=32, n_layer=1, n_head=2)),
            "does not support",
        ),
        (
            lambda: FalconForCausalLM(
                FalconConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
            ),
            "KeyError: 'packed_sdpa'",
        ),
        (
            lambda: Llama4ForCausalLM(
                Llama4TextConfig(
                    **SHAPE, head_dim=8, intermediate_size_mlp=48, num_local_experts=1, attention_chunk_size=4
                )
            ),
            "attention_chunk_size=4",
        ),
    ],
    ids=["bloom", "falcon", "llama4"],
)
def test_attention_that_cannot_be_packed_is_bad_input_in_one_line(model, reason, tmp_path) -> None:
    model().save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=reason) as caught:
        load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    assert str(caught.value).startswith(f"model {tmp_path}: ") and "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("content", [None, b"{"], ids=["missing", "broken"])
def test_a_folder_that_does_not_hold_a_whole_model_is_bad_input_in_one_line(file, content, tmp_path) -> None:
    save_llama(tmp_path)
    (tmp_path / file).unlink()
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(BadInput, match=f"^model {tmp_path}: transformers cannot load it") as caught:
        load_policy(str(tmp_path), dtype="float32", attention_key="packed_sdpa")
    assert "\n" not in str(caught.value)


def test_the_kernel_is_the_first_that_is_there_and_knows_the_numbers(monkeypatch) -> None:
    gpu, narrow = DEVICES["cuda"].attention, torch.bfloat16
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: True)
    assert attention.first_usable(gpu, narrow) == "flash_attention_2"
    assert attention.first_usable(gpu, torch.float32) == "packed_sdpa"  # flash kernels know 16-bit types only
    monkeypatch.setattr(attention, "is_flash_attn_2_available", lambda: False)
    assert attention.first_usable(gpu, narrow) == "packed_varlen"
    assert attention.first_usable(DEVICES["cpu"].attention, narrow) == "packed_sdpa"


def varlen_by_hand(query, key, value, cu_q, cu_k, max_q, max_k, *, scale, window_size, enable_gqa):
    """torch's kernel as its page describes it, which needs a GPU: [T, heads, dim] in and out, a window of (left, right)
    tokens, -1 for no bound."""
    assert cu_q.dtype == torch.int32 and torch.equal(cu_q, cu_k) and max_q == max_k == int(cu_q.diff().max())
    assert window_size[1] == 0 and enable_gqa == (query.shape[1] != key.shape[1])
    groups, outputs = query.shape[1] // key.shape[1], []
    for start, end in pairwise(cu_q.tolist()):
        q, k, v = (x[start:end].transpose(0, 1) for x in (query, key, value))
        steps = torch.arange(end - start)
        left = steps[:, None] - steps[None, :]
        seen = (left >= 0) & ((left <= window_size[0]) | torch.tensor(window_size[0] < 0))
        k, v = k.repeat_interleave(groups, 0), v.repeat_interleave(groups, 0)
        scores = (q @ k.transpose(1, 2) * scale).masked_fill(~seen, float("-inf"))
        outputs.append((scores.softmax(-1) @ v).transpose(0, 1))
    return torch.cat(outputs)


@pytest.mark.parametrize("window", [None, 4])
def test_the_kernel_of_a_gpu_is_asked_for_what_packed_sdpa_computes(monkeypatch, window) -> None:
    """The call alone: the kernel itself has run nowhere yet."""
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", varlen_by_hand)
    torch.manual_seed(0)
    cu_seqlens = torch.tensor([0, 6, 8, 19, 22], dtype=torch.int32)
    layout = attention.packed_layout(cu_seqlens)
    query, key, value = (torch.randn(1, heads, 22, 8) for heads in (4, 2, 2))
    expected, _ = attention.packed_sdpa(
        torch.nn.Module(), query, key, value, None, 0.3, sliding_window=window, packed_layout=layout
    )
    result = attention.attend_varlen(query, key, value, layout, 0.3, window)
    torch.testing.assert_close(result, expected, atol=1e-6, rtol=0)


def test_without_a_gpu_the_kernel_of_a_gpu_is_packed_sdpa(policy, path) -> None:
    """A reference in host memory is probed there."""
    other = load_policy(path, dtype="float32", attention_key="packed_varlen")
    assert torch.equal(logprobs(other, SAMPLES)[0], logprobs(policy, SAMPLES)[0])


def test_every_layer_of_a_flash_kernel_is_told_where_samples_begin(policy, path) -> None:
    """What a GPU runs, but for the kernel: this one attends within the bounds that transformers hands on to it."""
    calls = []

    def kernel(module, query, key, value, attention_mask, scaling=None, **row):
        calls.append(row)
        assert attention_mask is None and row["cu_seq_lens_q"].dtype == torch.int32
        groups, bounds = module.num_key_value_groups, row["cu_seq_lens_q"].tolist()
        parts = [x.split([end - start for start, end in pairwise(bounds)], dim=2) for x in (query, key, value)]
        return torch.cat(
            [
                F.scaled_dot_product_attention(
                    q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), is_causal=True, scale=scaling
                )
                for q, k, v in zip(*parts, strict=True)
            ],
            dim=2,
        ).transpose(1, 2), None

    AttentionInterface.register("varlen_kernel", kernel)
    AttentionMaskInterface.register("varlen_kernel", ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])
    flash = load_policy(path, dtype="float32", attention_key="varlen_kernel")
    calls.clear()
    for ours, theirs in zip(logprobs(flash, SAMPLES), logprobs(policy, SAMPLES), strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert len(calls) == SHAPE["num_hidden_layers"]
    assert all(row["max_length_q"] == row["max_length_k"] == max(map(len, SAMPLES)) for row in calls)
    assert all(torch.equal(row["cu_seq_lens_q"], row["cu_seq_lens_k"]) for row in calls)
