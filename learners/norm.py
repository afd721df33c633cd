"""RMS norms of float32 models on CPUs, with a gradient in few passes over memory.

transformers writes the norm in single operations, and autograd then makes about twenty passes over the tensor for its
gradient. Here there are seven. On a GPU, and with 16-bit numbers, whose roundings are part of a model, nothing changes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def use_fused_norms(model: nn.Module) -> None:
    """Let the norms of `model` that are x / rms(x) * weight compute as here. Their parameters stay as they are."""
    for module in model.modules():
        if _is_rms_norm(module):
            module.__class__ = _Norm


def _is_rms_norm(module: nn.Module) -> bool:
    """Asked of the module itself: some norms of that name add one to their weight, or round on the way."""
    weights, epsilon = list(module.parameters()), getattr(module, "variance_epsilon", None)
    if len(weights) != 1 or weights[0] is not getattr(module, "weight", None) or not isinstance(epsilon, float):
        return False
    if weights[0].ndim != 1 or weights[0].dtype != torch.float32 or weights[0].device.type != "cpu":
        return False
    weight = weights[0].detach()
    x = torch.linspace(-1, 2, 3 * len(weight)).view(3, -1)
    with torch.no_grad():
        return torch.allclose(module(x), rms_norm(x, weight, epsilon), rtol=1e-5, atol=1e-6)


def rms_norm(x: torch.Tensor, weight_H: torch.Tensor, epsilon: float) -> torch.Tensor:
    """[..., H] float32, as x: x over the root of (its mean square + epsilon), times weight."""
    normed: torch.Tensor = _RMSNorm.apply(x, weight_H, epsilon)
    return normed


class _Norm(nn.Module):
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return rms_norm(hidden_states, self.weight, self.variance_epsilon)


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight_H: torch.Tensor, epsilon: float) -> torch.Tensor:
        inverse = (x * x).mean(-1, keepdim=True).add_(epsilon).rsqrt_()
        ctx.save_for_backward(x, weight_H, inverse)
        return (x * inverse).mul_(weight_H)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        x, weight_H, inverse = ctx.saved_tensors
        width = x.shape[-1]
        normed, grad = x * inverse, grads[0].contiguous()
        product_NH = (grad * normed).view(-1, width)
        shares = torch.mv(product_NH, weight_H).div_(-width).view(inverse.shape)
        of_x = (grad * weight_H).addcmul_(normed, shares).mul_(inverse)
        return of_x, product_NH.sum(0), None
