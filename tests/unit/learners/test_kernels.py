"""Operations that compute otherwise than torch and transformers: the same numbers, and the same gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import Gemma2Config, Gemma2ForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from learners.kernels import WideHead, linear, rms_norm, serves, use_fused_norms, use_onednn, wide_linear, widen
from learners.policy import PolicyModel, load_policy
from learners.rows import pack_ids

WIDE, NARROW = (5, 12), (12, 5)
SHAPE = dict(
    vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
    num_key_value_heads=2, initializer_range=0.5,
)  # fmt: skip
SAMPLES = [[3, 14, 15, 9, 26, 5], [35, 8, 9, 7]]


def draw(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype).requires_grad_()


@pytest.mark.parametrize("inputs", [(7,), (1, 9), (2, 3)], ids=str)
@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_values_and_gradients_are_those_of_torch(inputs: tuple[int, ...], shape: tuple[int, int], biased: bool) -> None:
    exact = [draw(*inputs, shape[1], seed=1), draw(*shape, seed=2), draw(shape[0], seed=3) if biased else None]
    ours = [None if part is None else part.detach().float().requires_grad_() for part in exact]
    assert ours[1] is not None and (serves(ours[1]) or not torch.backends.mkldnn.is_available())
    towards = draw(*inputs, shape[0], seed=4).detach()
    expected, result = F.linear(*exact), linear(*ours)  # type: ignore[arg-type]
    assert result.shape == expected.shape
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    # a gradient as autograd may hand it over: not contiguous
    expected.backward(towards)
    result.backward(towards.float().transpose(0, -1).contiguous().transpose(0, -1))
    for mine, other in zip(ours, exact, strict=True):
        if mine is not None and other is not None:
            assert mine.grad is not None and other.grad is not None
            torch.testing.assert_close(mine.grad.double(), other.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [WIDE, NARROW], ids=str)
def test_a_weights_gradient_does_not_depend_on_how_many_tokens_are_added_up_at_a_time(
    shape: tuple[int, int], monkeypatch
) -> None:
    x, towards = draw(7, shape[1], seed=1).float(), draw(7, shape[0], seed=2).float()
    gradients = []
    for block, per_width in ((1000, 0), (3, 0), (0, 1), (7, 0)):  # at once; 3, 3 and 1 tokens; 5 and 2; all 7
        monkeypatch.setattr("learners.kernels.BLOCK", block)
        monkeypatch.setattr("learners.kernels.BLOCK_PER_WIDTH", per_width)
        weight = draw(*shape, seed=3).float().detach().requires_grad_()
        linear(x.detach(), weight, None).backward(towards.detach())
        gradients.append(weight.grad)
    for gradient in gradients:
        torch.testing.assert_close(gradient, towards.detach().t() @ x.detach(), rtol=1e-5, atol=1e-5)


def test_what_onednn_does_not_serve_goes_torchs_way() -> None:
    assert not serves(torch.zeros(2, 3, dtype=torch.bfloat16)) and not serves(torch.zeros(2, 3, device="meta"))
    x, weight = draw(4, 3, seed=1), draw(2, 3, seed=2)
    assert torch.equal(linear(x, weight, None), F.linear(x, weight))


def test_a_row_without_tokens_still_reaches_every_parameter() -> None:
    weight = draw(2, 3, seed=1, dtype=torch.float32)
    linear(torch.zeros(0, 3), weight, None).sum().backward()
    assert weight.grad is not None and not weight.grad.any()


def test_a_model_keeps_its_parameters_and_their_names() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 2, bias=False)))
    x, before, names = draw(5, 3, seed=1, dtype=torch.float32), dict(model.state_dict()), list(model.state_dict())
    expected = model(x)
    use_onednn(model)
    assert list(model.state_dict()) == names and all(torch.equal(model.state_dict()[n], before[n]) for n in names)
    torch.testing.assert_close(model(x), expected)
    assert isinstance(model[0], nn.Linear) and type(model[0]) is not nn.Linear


def fixed(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_number_by_hand() -> None:
    """The mean square of 1 and 7 is 25: 1/5 and 7/5, times 10 and 100."""
    result = rms_norm(torch.tensor([[1.0, 7.0]]), torch.tensor([10.0, 100.0]), 0.0)
    torch.testing.assert_close(result, torch.tensor([[2.0, 140.0]]))


@pytest.mark.parametrize("shape", [(6,), (1, 5, 6), (2, 3, 4, 6)], ids=str)
def test_values_and_gradients_are_those_of_autograd(shape: tuple[int, ...]) -> None:
    x, weight, towards = (
        fixed(*shape, seed=1).requires_grad_(),
        fixed(6, seed=2).requires_grad_(),
        fixed(*shape, seed=3),
    )
    expected = x * (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * weight
    expected.backward(towards)
    ours = [part.detach().float().requires_grad_() for part in (x, weight)]
    result = rms_norm(*ours, 1e-3)
    # a gradient as autograd may hand it over: not contiguous
    result.backward(towards.float().transpose(0, -1).contiguous().transpose(0, -1))
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, exact in zip(ours, (x, weight), strict=True):
        assert mine.grad is not None and exact.grad is not None
        torch.testing.assert_close(mine.grad.double(), exact.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [LlamaRMSNorm, Qwen3RMSNorm])
def test_transformers_norms_keep_their_parameters_and_their_numbers(kind: type[nn.Module]) -> None:
    model = nn.Sequential(kind(8, eps=1e-5))
    with torch.no_grad():
        model[0].weight.copy_(fixed(8, seed=1))
    x, names = fixed(3, 8, seed=2).float(), list(model.state_dict())
    expected = model(x)
    use_fused_norms(model)
    assert type(model[0]) is not kind and list(model.state_dict()) == names
    assert torch.equal(model(x), expected)


def test_a_norm_that_computes_something_else_stays_as_it_is() -> None:
    """Gemma's adds one to its weight, LayerNorm takes the mean away, and 16-bit norms round before the weight."""
    others = [Gemma2RMSNorm(8), nn.LayerNorm(8), Qwen3RMSNorm(8).bfloat16(), nn.Linear(8, 8)]
    gemma = Gemma2RMSNorm(8)
    gemma.variance_epsilon = gemma.eps  # by its fields alone it could pass
    model = nn.Sequential(*others, gemma)
    kinds = [type(module) for module in model]
    use_fused_norms(model)
    assert [type(module) for module in model] == kinds


def test_a_norm_that_differs_by_little_is_another_kind() -> None:
    class Shifted(Qwen3RMSNorm):
        def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
            return super().forward(hidden_states) + 1e-3

    model = nn.Sequential(Shifted(8))
    use_fused_norms(model)
    assert type(model[0]) is Shifted


def test_a_row_without_tokens_still_reaches_the_weight() -> None:
    weight = fixed(6, seed=1).float().requires_grad_()
    rms_norm(torch.zeros(0, 6), weight, 1e-6).sum().backward()
    assert weight.grad is not None and not weight.grad.any()


def test_the_product_is_that_of_float32() -> None:
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(*size).bfloat16().requires_grad_() for size in ((3, 5, 64), (7, 64), (7,)))
    result = wide_linear(x, weight, bias)
    expected = x.float() @ weight.float().t() + bias.float()
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)
    target = torch.randn_like(result)
    ours = torch.autograd.grad((result * target).sum(), (x, weight, bias))
    theirs = torch.autograd.grad((expected * target).sum(), (x, weight, bias))
    for gradient, other in zip(ours, theirs, strict=True):
        assert gradient.dtype == torch.bfloat16
        torch.testing.assert_close(gradient.float(), other.float(), atol=0.02 * float(other.abs().max()), rtol=0)


def loaded(folder: Path, dtype: str, **options: bool) -> PolicyModel:
    return load_policy(str(folder), dtype=dtype, attention_key="packed_sdpa", **options)


def logprobs(policy: PolicyModel, chunk: int = 1000) -> torch.Tensor:
    logp, _ = policy(*pack_ids(SAMPLES, "cpu"), 1.0, chunk)
    return logp


def by_hand(policy: PolicyModel) -> torch.Tensor:
    """From the policy's own bfloat16 hidden states: logits in float32, then log-probabilities."""
    parts = []
    for sample in SAMPLES:
        hidden = policy.model.base_model(torch.tensor([sample]), use_cache=False).last_hidden_state[0, :-1]
        logits = hidden.float() @ policy.model.get_output_embeddings().weight.float().t()
        cap = getattr(policy.model.config, "final_logit_softcapping", None)
        logits = logits if cap is None else torch.tanh(logits / cap) * cap
        parts.append(logits.log_softmax(-1).gather(1, torch.tensor(sample)[1:, None]).squeeze(1))
    return torch.cat(parts)


@torch.no_grad()
def test_a_policy_gives_log_probabilities_of_wide_logits(tmp_path: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(tmp_path / "llama")
    gemma = Gemma2Config(**SHAPE, query_pre_attn_scalar=8, final_logit_softcapping=30.0)
    Gemma2ForCausalLM(gemma).save_pretrained(tmp_path / "gemma")
    for name in ("llama", "gemma"):  # a plain head, and one whose logits the model itself changes
        narrow, wide = (loaded(tmp_path / name, "bfloat16", fp32_head=head) for head in (False, True))
        assert wide.linear_head == (name == "llama")
        expected, trained = by_hand(wide), torch.tensor([1, 2, 3, 4, 5, 7, 8, 9])
        for chunk in (3, 1000):
            torch.testing.assert_close(logprobs(wide, chunk)[trained], expected, atol=2e-3, rtol=0)
        assert (logprobs(narrow)[trained] - expected).abs().max() > 5e-3


def test_float32_weights_and_what_is_no_linear_layer_stay_as_they_are() -> None:
    head = torch.nn.Linear(2, 3)
    widen(head)
    assert type(head) is torch.nn.Linear
    widen(head.bfloat16())
    assert type(head) is WideHead
    widen(torch.nn.Identity())
