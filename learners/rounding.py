"""How far rounding alone moves a model's log-probabilities: every result is rounded once more, at random, and compared.

Two right implementations of one model, learner and engine, add in other orders and round in other places. How much
that is in nats depends on the weights: it is 1e-6 for a small new model in float32, and whole nats for a deep one in
bfloat16 whose weights were disturbed. So it is measured, on the very weights and tokens that are compared, by what is
known as Monte Carlo arithmetic: each layer's result takes a random error of the size of its rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from rlsys.system.device import RoundingUnits

# How the names of layers begin that make keys and values, some of them with queries.
KEYS_AND_VALUES = ("k_", "v_", "kv_", "qkv_", "query_key_value", "c_attn")


@contextmanager
def round_again(model: nn.Module, units: RoundingUnits, seed: int = 0) -> Iterator[None]:
    """Inside, what every layer of `model` gives carries a relative error, uniform between plus and minus its unit.

    The error is drawn again in each pass, and is the same in every process that makes the same passes. Nothing else
    changes: weights, shapes and collectives are those of a plain pass.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def disturb(value: Any, unit: float) -> Any:
        if isinstance(value, tuple):
            return tuple(disturb(part, unit) for part in value)
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if value.device not in generators:
            generators[value.device] = torch.Generator(device=value.device).manual_seed(seed)
        wide = value.float()
        draw = torch.rand(wide.shape, generator=generators[value.device], device=value.device) * 2 - 1
        return wide.addcmul(wide, draw, value=unit).to(value.dtype)

    hooks = [
        module.register_forward_hook(lambda _module, _inputs, output, unit=unit: disturb(output, unit))
        for module, unit in _rounding_modules(model, units)
    ]
    try:
        with torch.compiler.set_stance("force_eager"):  # a compiled layer would not see its hooks
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _rounding_modules(model: nn.Module, units: RoundingUnits) -> Iterator[tuple[nn.Module, float]]:
    """What rounds: every module without parts, and every block of a list, whose last operation adds a residual."""
    blocks = {id(block) for parts in model.modules() if isinstance(parts, nn.ModuleList) for block in parts}
    cached = {id(module) for name, module in model.named_modules() if _makes_cached(name)}
    coarse = max(units.products, units.cached or 0.0)
    for module in model.modules():
        if isinstance(module, nn.Linear | Conv1D):
            yield module, coarse if id(module) in cached or not cached else units.products
        elif id(module) in blocks or not any(True for _ in module.children()):
            yield module, units.rest


def _makes_cached(name: str) -> bool:
    return any(part.startswith(KEYS_AND_VALUES) for part in name.split("."))
