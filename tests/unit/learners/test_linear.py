"""Products by oneDNN are those of torch's own linear function, forwards and backwards."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from learners.linear import linear, serves, use_onednn

WIDE, NARROW = (5, 12), (12, 5)


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
    expected, found = F.linear(*exact), linear(*ours)  # type: ignore[arg-type]
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    # a gradient as autograd may hand it over: not contiguous
    expected.backward(towards)
    found.backward(towards.float().transpose(0, -1).contiguous().transpose(0, -1))
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
        monkeypatch.setattr("learners.linear._BLOCK", block)
        monkeypatch.setattr("learners.linear._BLOCK_PER_WIDTH", per_width)
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
