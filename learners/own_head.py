"""Logits as a model's own code makes them behind its head, where it scales or caps them, of some hidden states alone.

The model's own `forward` is called with two of its parts replaced: what stands for the transformer gives the hidden
states, and what stands for the head multiplies as the learner does, with weights that it holds (ZeRO-3 would gather
them for each call of the head itself, and ranks whose rows need more calls would wait for the others). So a row's
logits are made a chunk at a time, in the backward pass as well, by the code that an engine was written after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast

from learners.kernels import Product
from rlsys.errors import BadInput


class _StandIn(nn.Module):
    def __init__(self, give: Callable[..., Any]) -> None:
        super().__init__()
        self.give = give

    def forward(self, *inputs: Any, **_named: Any) -> Any:
        return self.give(*inputs)


def own_product(model: PreTrainedModel, product: Product) -> Product:
    """(hidden [N, H], the head's weight, its bias) -> [N, V] logits, by `product` and what the model does around it."""
    transformer, head = (_module_name(model, part) for part in (model.base_model, model.get_output_embeddings()))

    def compute(hidden_NH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor | None) -> torch.Tensor:
        stand_ins = {
            transformer: _StandIn(lambda *_: BaseModelOutputWithPast(last_hidden_state=hidden_NH[None])),
            head: _StandIn(lambda hidden_1NH: product(hidden_1NH, weight_VH, bias_V)),
        }
        with _replace_modules(model, stand_ins):
            logits_1NV: torch.Tensor = model.forward(inputs_embeds=hidden_NH[None], use_cache=False).logits
        return logits_1NV[0]

    return compute


def _module_name(model: PreTrainedModel, part: nn.Module) -> str:
    name: str | None = next((name for name, child in model.named_children() if child is part), None)
    if name is None or (part is model.get_output_embeddings() and not isinstance(part, nn.Linear)):
        raise BadInput(
            f"model {type(model).__name__}: its {type(part).__name__} is not a part of it that can be replaced",
            expected="a transformer and a linear head below one module",
        )
    return name


@contextmanager
def _replace_modules(model: nn.Module, parts: Mapping[str, nn.Module]) -> Iterator[None]:
    originals = {name: model._modules[name] for name in parts}
    model._modules.update(parts)
    try:
        yield
    finally:  # also when a recomputation stops where a gradient has what it needs
        model._modules.update(originals)
