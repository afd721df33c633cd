"""Operations of a model that compute otherwise here: products and norms on CPUs, logits in float32.

torch multiplies float32 matrices with MKL, which leaves half of the vector width unused on processors of other makers.
oneDNN uses it all, and vLLM's engine computes with it as well. `benchmarks/products.py` measures both.

Narrow products (`model.dtype: bfloat16` on a CPU that multiplies bfloat16): both factors of a linear layer and its
result are rounded to bfloat16, sums are float32, as torch's autocast does. The rest stays float32: weights, norms,
attention, losses, and the head, whose rounded logits would lie on a grid of an eighth. oneDNN could also be allowed to
round float32 factors by itself, but on processors without matrix tiles it then multiplies float32. Attention stays out:
torch's kernel for CPUs takes three times as long for the gradient of short bfloat16 samples.

transformers writes the RMS norm in single operations, and autograd then makes about twenty passes over the tensor for
its gradient. Here there are seven. On a GPU, and with 16-bit numbers, whose roundings are part of a model, nothing
changes.

A head of 16-bit weights gives logits in float32, as the engine's `head_dtype` does too, so that both sides round alike.
A product of two bfloat16 numbers is exact in float32. What a 16-bit head loses is the sum: logits of 16 to 32 lie on a
grid of an eighth.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

# oneDNN copies both factors of a weight's gradient. It gets so many tokens at a time, and at least so many per row or
# column of the weight: then the copies stay in the cache, and adding up the products costs next to nothing.
BLOCK, BLOCK_PER_WIDTH = 512, 2
# (x [..., K], weight [M, K], bias [M] or None) -> [..., M]
Product = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


def serves(weight: torch.Tensor) -> bool:
    """Whether oneDNN multiplies by this weight: float32 in host memory, on x86."""
    ours = weight.device.type == "cpu" and weight.dtype == torch.float32 and platform.machine() == "x86_64"
    return ours and torch.backends.mkldnn.is_available()


def use_onednn(model: nn.Module, *, narrow: bool = False) -> None:
    """Let the linear layers of `model` multiply with oneDNN, where it serves. Their parameters stay as they are.

    narrow: round factors and products to bfloat16, where the processor multiplies that.
    """
    for module in model.modules():
        if type(module) is nn.Linear and serves(module.weight):
            module.__class__ = _NarrowLinear if narrow and multiplies_bfloat16() else _Linear


def multiplies_bfloat16() -> bool:
    """Whether this processor does, and torch's oneDNN knows how."""
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def product_of(head: nn.Module) -> Product:
    """How this head multiplies."""
    return wide_linear if isinstance(head, WideHead) else linear


def linear(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
    """x [..., K] times weight, plus bias: [..., M]. As torch's function of that name, by oneDNN where it serves."""
    if not serves(weight_MK) or x.numel() == 0:
        return F.linear(x, weight_MK, bias_M)
    product: torch.Tensor = _Product.apply(x, weight_MK, bias_M)
    return product


class _Linear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return linear(input, self.weight, self.bias)


class _NarrowLinear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return narrow_linear(input, self.weight, self.bias)


def narrow_linear(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
    """x [..., K] times weight, plus bias: [..., M] float32, as they are. Factors and product have bfloat16's 8 bits."""
    product: torch.Tensor = _NarrowProduct.apply(x.reshape(-1, x.shape[-1]), weight_MK)
    product = product.view(*x.shape[:-1], weight_MK.shape[0])
    return product if bias_M is None else product + bias_M


class _NarrowProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NK: torch.Tensor, weight_MK: torch.Tensor) -> torch.Tensor:
        narrow_NK = x_NK.bfloat16()
        ctx.save_for_backward(narrow_NK, weight_MK)
        return (narrow_NK @ weight_MK.bfloat16().t()).float()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        narrow_NK, weight_MK = ctx.saved_tensors
        grad_NM = grads[0].bfloat16()
        of_x = (grad_NM @ weight_MK.bfloat16()).float() if ctx.needs_input_grad[0] else None
        of_weight = (grad_NM.t() @ narrow_NK).float() if ctx.needs_input_grad[1] else None
        return of_x, of_weight


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(x, weight_MK)
        ctx.biased = bias_M is not None
        return _onednn_product(x, weight_MK, bias_M)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight_MK = ctx.saved_tensors
        grad_NM = grads[0].reshape(-1, weight_MK.shape[0]).contiguous()
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _onednn_product(grad_NM, weight_MK.t()).view_as(x)
        if ctx.needs_input_grad[1]:
            of_weight = _multiply_transposed(grad_NM, x.reshape(-1, weight_MK.shape[1]))
        if ctx.biased and ctx.needs_input_grad[2]:
            of_bias = grad_NM.sum(0)
        return of_x, of_weight, of_bias


def _onednn_product(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None = None) -> torch.Tensor:
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_MK, bias_M, "none", [], "")
    return product


def _multiply_transposed(grad_NM: torch.Tensor, x_NK: torch.Tensor) -> torch.Tensor:
    """[M, K], added up over blocks of tokens."""
    block = max(BLOCK, BLOCK_PER_WIDTH * min(grad_NM.shape[1], x_NK.shape[1]))
    total, *products = map(_block_product, grad_NM.split(block), x_NK.split(block))
    for product in products:
        total += product
    return total


def _block_product(grad_NM: torch.Tensor, x_NK: torch.Tensor) -> torch.Tensor:
    """The narrower of the two is transposed, and the product with it where that is x."""
    if grad_NM.shape[1] <= x_NK.shape[1]:
        return _onednn_product(grad_NM.t(), x_NK.t())
    return _onednn_product(x_NK.t(), grad_NM.t()).t()


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


class WideHead(nn.Linear):
    """A linear head whose output is float32. Its parameters stay as they are."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return wide_linear(input, self.weight, self.bias)


def widen(head: nn.Module) -> None:
    """In place. Nothing to do for a float32 head, and nothing is done to a head of another kind."""
    if isinstance(head, _NarrowLinear):
        head.__class__ = _Linear  # type: ignore[assignment]
    elif type(head) is nn.Linear and head.weight.dtype.itemsize == 2:
        head.__class__ = WideHead


def wide_linear(x: torch.Tensor, weight_MK: torch.Tensor, bias_M: torch.Tensor | None) -> torch.Tensor:
    """x [..., K] times weight, plus bias: [..., M] float32."""
    product: torch.Tensor = _WideProduct.apply(x.reshape(-1, x.shape[-1]), weight_MK)
    product = product.view(*x.shape[:-1], weight_MK.shape[0])
    return product if bias_M is None else product + bias_M.float()


class _WideProduct(torch.autograd.Function):
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
