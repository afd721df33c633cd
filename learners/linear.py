"""Matrix products of float32 models on CPUs, by oneDNN.

torch multiplies float32 matrices with MKL, which leaves half of the vector width unused on processors of other makers.
oneDNN uses it all, and vLLM's engine computes with it as well. `benchmarks/products.py` measures both.
"""

from __future__ import annotations

import platform
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

# oneDNN copies both factors of a weight's gradient. It gets so many tokens at a time, and at least so many per row or
# column of the weight: then the copies stay in the cache, and adding up the products costs next to nothing.
_BLOCK, _BLOCK_PER_WIDTH = 512, 2


def serves(weight: torch.Tensor) -> bool:
    """Whether oneDNN multiplies by this weight: float32 in host memory, on x86."""
    ours = weight.device.type == "cpu" and weight.dtype == torch.float32 and platform.machine() == "x86_64"
    return ours and torch.backends.mkldnn.is_available()


def use_onednn(model: nn.Module) -> None:
    """Let the linear layers of `model` multiply with oneDNN, where it serves. Their parameters stay as they are."""
    for module in model.modules():
        if type(module) is nn.Linear and serves(module.weight):
            module.__class__ = _Linear


def linear(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
    """x [..., K] times weight, plus bias: [..., M]. As torch's function of that name, by oneDNN where it serves."""
    if not serves(weight_MK) or x.numel() == 0:
        return F.linear(x, weight_MK, bias_M)
    product: torch.Tensor = _Product.apply(x, weight_MK, bias_M)
    return product


class _Linear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.weight, self.bias)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight_MK)
        ctx.biased = bias_M is not None
        return _times(x, weight_MK, bias_M)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight_MK = ctx.saved_tensors
        grad_NM = grads[0].reshape(-1, weight_MK.shape[0]).contiguous()
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _times(grad_NM, weight_MK.t()).view_as(x)
        if ctx.needs_input_grad[1]:
            of_weight = _transposed_times(grad_NM, x.reshape(-1, weight_MK.shape[1]))
        if ctx.biased and ctx.needs_input_grad[2]:
            of_bias = grad_NM.sum(0)
        return of_x, of_weight, of_bias


def _times(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None = None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_MK, bias_M, "none", [], "")
    return product


def _transposed_times(grad_NM: torch.Tensor, x_NK: torch.Tensor) -> torch.Tensor:
    """[M, K], added up over blocks of tokens."""
    block = max(_BLOCK, _BLOCK_PER_WIDTH * min(grad_NM.shape[1], x_NK.shape[1]))
    total, *others = map(_block_product, grad_NM.split(block), x_NK.split(block))
    for product in others:
        total += product
    return total


def _block_product(grad_NM: torch.Tensor, x_NK: torch.Tensor) -> torch.Tensor:
    """The narrower of the two is transposed, and the product with it where that is x."""
    if grad_NM.shape[1] <= x_NK.shape[1]:
        return _times(grad_NM.t(), x_NK.t())
    return _times(x_NK.t(), grad_NM.t()).t()
