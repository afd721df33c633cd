"""Layers compiled by torch: one kernel where plain torch starts ten.

A layer's code is compiled once for all layers of its kind, for rows of any length: with a gradient, without one, and
for the first layer, whose input has none if the embedding is frozen. Attention over packed rows stays outside
(`attention.register`): it is one kernel already, and its layout is another for every row.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from rlsys.errors import BadInput

# Of one piece of code, at most: kinds of layers, times gradients, times policy and reference. The rest is not compiled.
GRAPHS = 64


def compile_layers(model: nn.Module, backend: str) -> None:
    """In place, from the next pass on. backend: of torch.compile. Raises BadInput for a model without layers to
    compile. What a hook of a module does from now on shows only inside `torch.compiler.set_stance("force_eager")`."""
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        why = f"false: transformers knows no layers of {type(model).__name__}"
        raise BadInput(key="learner.compile", found=True, expected=why)
    torch._dynamo.config.recompile_limit = GRAPHS
    for layer in layers:
        layer.compile(dynamic=True, backend=backend)
