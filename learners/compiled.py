"""Layers compiled by torch: one kernel where plain torch starts ten.

A layer's code is compiled once for all layers of its kind, for rows of any length: with a gradient, without one, and
for the first layer, whose input has none if the embedding is frozen. Attention over packed rows stays outside
(`attention.register`): it is one kernel already, and its layout is another for every row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from rlsys.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")
# Of one piece of code, at most: kinds of layers, times gradients, times policy and reference. Beyond it torch runs the
# code as it is written. Said at each call: torch's own setting of the process holds in the thread that makes it alone,
# and autograd recomputes layers in another.
GRAPHS = 64


def compiled(function: Callable[P, R], backend: str) -> Callable[P, R]:
    """For tensors of any length. backend: of torch.compile."""
    # torch's overloads leave the limit out
    return torch.compile(function, dynamic=True, backend=backend, recompile_limit=GRAPHS)  # type: ignore[call-overload, no-any-return]


def compile_layers(model: nn.Module, backend: str) -> None:
    """In place, from the next pass on. backend: of torch.compile. Raises BadInput for a model without known layers.
    What a hook of a module does from now on shows only inside `torch.compiler.set_stance("force_eager")`."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        why = f"false: transformers knows no layers of {type(model).__name__}"
        raise BadInput(key="learner.compile", found=True, expected=why)
    for layer in layers:
        layer.compile(dynamic=True, backend=backend, recompile_limit=GRAPHS)
