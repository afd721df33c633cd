"""RMS norms with their own gradient are transformers', and norms of another kind are left alone."""

import pytest
import torch
from torch import nn
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from learners.norm import rms_norm, use_fused_norms


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_number_by_hand() -> None:
    """The mean square of 1 and 7 is 25: 1/5 and 7/5, times 10 and 100."""
    found = rms_norm(torch.tensor([[1.0, 7.0]]), torch.tensor([10.0, 100.0]), 0.0)
    torch.testing.assert_close(found, torch.tensor([[2.0, 140.0]]))


@pytest.mark.parametrize("shape", [(6,), (1, 5, 6), (2, 3, 4, 6)], ids=str)
def test_values_and_gradients_are_those_of_autograd(shape: tuple[int, ...]) -> None:
    x, weight, towards = draw(*shape, seed=1).requires_grad_(), draw(6, seed=2).requires_grad_(), draw(*shape, seed=3)
    expected = x * (x.square().mean(-1, keepdim=True) + 1e-3).rsqrt() * weight
    expected.backward(towards)
    ours = [part.detach().float().requires_grad_() for part in (x, weight)]
    found = rms_norm(*ours, 1e-3)
    # a gradient as autograd may hand it over: not contiguous
    found.backward(towards.float().transpose(0, -1).contiguous().transpose(0, -1))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    for mine, exact in zip(ours, (x, weight), strict=True):
        assert mine.grad is not None and exact.grad is not None
        torch.testing.assert_close(mine.grad.double(), exact.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [LlamaRMSNorm, Qwen3RMSNorm])
def test_transformers_norms_keep_their_parameters_and_their_numbers(kind: type[nn.Module]) -> None:
    model = nn.Sequential(kind(8, eps=1e-5))
    with torch.no_grad():
        model[0].weight.copy_(draw(8, seed=1))
    x, names = draw(3, 8, seed=2).float(), list(model.state_dict())
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
    weight = draw(6, seed=1).float().requires_grad_()
    rms_norm(torch.zeros(0, 6), weight, 1e-6).sum().backward()
    assert weight.grad is not None and not weight.grad.any()
