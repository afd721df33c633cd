"""Logits in float32 from 16-bit weights: what the engine's `head_dtype` does too, so that both sides round alike.

A product of two bfloat16 numbers is exact in float32. What a 16-bit head loses is the sum: logits of 16 to 32 lie on a
grid of an eighth.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class WideHead(nn.Linear):
    """A linear head whose output is float32. Its parameters stay as they are."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return wide_linear(input, self.weight, self.bias)


def widen(head: nn.Module) -> None:
    """In place. Nothing to do for float32 weights, and nothing is done to a head of another kind."""
    if type(head) is nn.Linear and head.weight.dtype.itemsize == 2:
        head.__class__ = WideHead


def wide_linear(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
    """x [..., K] times weight, plus bias: [..., M] float32."""
    product: torch.Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), weight_MK)
    product = product.view(*x.shape[:-1], weight_MK.shape[0])
    return product if bias_M is None else product + bias_M.float()


class _Product(torch.autograd.Function):
    """The gradient of the logits is rounded to 16 bits, as it is with a 16-bit head: only the logits are wide."""

    @staticmethod
    def forward(ctx: Any, x_NK: torch.Tensor, weight_MK: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x_NK, weight_MK)
        if x_NK.is_cuda:  # tensor cores multiply 16-bit numbers and add up in float32 as it is
            return torch.mm(x_NK, weight_MK.t(), out_dtype=torch.float32)
        return x_NK.float() @ weight_MK.float().t()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x_NK, weight_MK = ctx.saved_tensors
        grad_NM = grads[0].to(x_NK.dtype)
        of_x = grad_NM @ weight_MK if ctx.needs_input_grad[0] else None
        of_weight = grad_NM.t() @ x_NK if ctx.needs_input_grad[1] else None
        return of_x, of_weight
