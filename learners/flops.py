"""Arithmetic of a packed row, and what a card can do: together the share of the card that training uses (MFU)."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

import torch

from learners.flop_count import forward_flops, training_flops
from rlsys.batch import MicroBatch
from rlsys.system.datasheets import card_of

if TYPE_CHECKING:
    from learners.policy import PolicyModel

_PEAK_SIZE = 8192  # of a square matrix: 1.1e12 operations a product, far more than its launch takes
_PEAK_REPEATS = 20  # a tenth of a second on an A100


def row_flops(policy: PolicyModel, row: MicroBatch) -> float:
    """Operations (FLOP) of one forward and backward pass (`learners.flop_count`). What siblings share counts for each
    of them; of the pairs of tokens that attention compares there are half of L^2.
    """
    config = policy.model.config.get_text_config()
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    embedding, head = policy.model.get_input_embeddings(), policy.model.get_output_embeddings()
    apart = {id(part.weight) for part in (embedding, head) if part is not None}
    parameters = [parameter for parameter in policy.model.parameters() if id(parameter) not in apart]
    shaped = [(parameter, getattr(parameter, "ds_shape", parameter.shape)) for parameter in parameters]
    matrices = sum(_numel(parameter) for parameter, shape in shaped if len(shape) >= 2)
    frozen = sum(_numel(parameter) for parameter, shape in shaped if len(shape) >= 2 and not parameter.requires_grad)
    of_head = 0 if head is None else _numel(head.weight)
    frozen_head = 0 if head is None or head.weight.requires_grad else of_head
    loss_tokens = float(row.loss_mask.sum())
    pairs = float(row.cu_seqlens.diff().double().square().sum()) / 2
    forward = forward_flops(
        matrices=matrices,
        head=of_head,
        layers=config.num_hidden_layers,
        width=heads * head_dim,
        tokens=row.num_tokens,
        loss_tokens=loss_tokens,
        pairs=pairs,
    )
    return training_flops(forward, 2.0 * (frozen * row.num_tokens + frozen_head * loss_tokens))


def _numel(parameter: torch.nn.Parameter) -> int:
    """Elements of the whole parameter, also where ZeRO-3 keeps none of them on this rank."""
    return int(getattr(parameter, "ds_numel", parameter.numel()))


def sheet_peak(device: torch.device) -> float | None:
    """FLOP/s of a product of bfloat16 matrices by this card's data sheet; None on a CPU, and for a card without one
    here."""
    if device.type != "cuda":
        return None
    properties = torch.cuda.get_device_properties(device)
    return card_of(properties.name, properties.total_memory / 1e9).flops


@functools.cache
def matmul_peak(device: torch.device, dtype: str) -> float | None:
    """FLOP/s of a large matrix product on this card, measured once per process; None on a CPU."""
    if device.type != "cuda":
        return None
    a = torch.randn(_PEAK_SIZE, _PEAK_SIZE, device=device, dtype=getattr(torch, dtype))
    torch.mm(a, a)
    torch.cuda.synchronize(device)
    started = time.perf_counter()
    for _ in range(_PEAK_REPEATS):
        torch.mm(a, a)
    torch.cuda.synchronize(device)
    return _PEAK_REPEATS * 2.0 * _PEAK_SIZE**3 / (time.perf_counter() - started)
