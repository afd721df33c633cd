"""Attention over packed rows on a CPU, where transformers has no variable-length kernel.

A row holds samples side by side. Samples of similar length are padded on the right into one causal attention call:
a real token never attends to what follows it, so the padding needs no mask, and nothing leaks between samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from rlsys.errors import BadInput

PACKED_SDPA = "packed_sdpa"
# A sample shorter than this share of its group's longest starts a new group: bounds the arithmetic spent on padding.
_MIN_FILL = 0.8
# Soft-capped scores, attention sinks, relative positions: arguments by which some models change the softmax.
_REFUSED = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthGroup:
    num_samples: int
    max_length: int
    tokens: torch.Tensor  # [num_samples * max_length] the row token in each padded slot; padding repeats a real one


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLayout:
    """Where each token of a row goes: worked out once per row, used by every layer."""

    groups: tuple[LengthGroup, ...]
    slots: torch.Tensor  # [T] the slot of each row token in the groups' concatenated outputs


def packed_layout(cu_seqlens: torch.Tensor) -> PackedLayout:
    """cu_seqlens: [S+1] int32. Deterministic: samples are grouped by falling length, ties in row order."""
    bounds = cu_seqlens.tolist()
    samples = [(end - start, start) for start, end in zip(bounds, bounds[1:], strict=False) if end > start]
    samples.sort(key=lambda sample: (-sample[0], sample[1]))
    grouped: list[list[tuple[int, int]]] = []
    for length, start in samples:
        if not grouped or length < _MIN_FILL * grouped[-1][0][0]:
            grouped.append([])
        grouped[-1].append((length, start))

    device = cu_seqlens.device
    groups, offset = [], 0
    slots = torch.empty(bounds[-1], dtype=torch.int64, device=device)
    for members in grouped:
        max_length = members[0][0]
        lengths_S1 = torch.tensor([length for length, _ in members], device=device)[:, None]
        starts_S1 = torch.tensor([start for _, start in members], device=device)[:, None]
        steps_L = torch.arange(max_length, device=device)
        tokens_SL = starts_S1 + torch.minimum(steps_L, lengths_S1 - 1)
        real_SL = steps_L < lengths_S1
        slots[tokens_SL[real_SL]] = offset + real_SL.flatten().nonzero().squeeze(1)
        groups.append(LengthGroup(num_samples=len(members), max_length=max_length, tokens=tokens_SL.flatten()))
        offset += len(members) * max_length
    return PackedLayout(groups=tuple(groups), slots=slots)


class _Pad(torch.autograd.Function):
    """Row tokens to padded slots. Padding gets no gradient back, so the backward is a gather and not a slow scatter."""

    @staticmethod
    def forward(ctx: Any, x_THD: torch.Tensor, tokens: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slots)
        return x_THD.index_select(0, tokens)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        return grads[0].index_select(0, slots), None, None


class _Unpad(torch.autograd.Function):
    """Padded slots back to row tokens."""

    @staticmethod
    def forward(ctx: Any, x_PHD: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slots)
        ctx.num_slots = x_PHD.shape[0]
        return x_PHD.index_select(0, slots)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slots,) = ctx.saved_tensors
        grad = grads[0].new_zeros((ctx.num_slots, *grads[0].shape[1:]))
        return grad.index_copy_(0, slots, grads[0]), None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float | None, sliding_window: int | None
) -> torch.Tensor:
    """[S, heads, L, dim] causal attention; the window mask exists only where a sample is longer than the window."""
    length, gqa = query.shape[2], query.shape[1] != key.shape[1]
    if sliding_window is None or length <= sliding_window:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=gqa)
    steps = torch.arange(length, device=query.device)
    distance = steps[:, None] - steps[None, :]
    mask = (distance >= 0) & (distance < sliding_window)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=gqa)


def packed_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    packed_layout: PackedLayout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention contract: query [1, heads, T, dim] in, [1, T, heads, dim] out. Never drops out.

    Without a layout the row is one sample. Raises BadInput for what it cannot do, rather than leave it out.
    """
    if extra := [name for name in _REFUSED if kwargs.get(name) is not None]:
        raise BadInput(f"model {type(module).__name__}: attention with {extra[0]!r}, which {PACKED_SDPA} does not know")
    if packed_layout is None:
        return _attend(query, key, value, scaling, sliding_window).transpose(1, 2).contiguous(), None
    qkv_THD = [x.transpose(1, 2).squeeze(0) for x in (query, key, value)]
    # One gather for all groups, then a view of each, so that the backward is one gather as well.
    tokens = torch.cat([group.tokens for group in packed_layout.groups])
    padded = [_Pad.apply(x, tokens, packed_layout.slots) for x in qkv_THD]
    outputs, offset = [], 0
    for group in packed_layout.groups:
        size = group.num_samples * group.max_length
        parts = [x[offset : offset + size] for x in padded]
        outputs.append(_group_attention(parts, group, scaling, sliding_window))
        offset += size
    return _Unpad.apply(torch.cat(outputs), packed_layout.slots)[None], None


def _group_attention(
    padded: list[torch.Tensor], group: LengthGroup, scaling: float | None, sliding_window: int | None
) -> torch.Tensor:
    """[S*L, heads, dim] of one length group in and out."""
    query, key, value = (x.unflatten(0, (group.num_samples, group.max_length)).transpose(1, 2) for x in padded)
    return _attend(query, key, value, scaling, sliding_window).transpose(1, 2).flatten(0, 1)


def register() -> None:
    """Make `attn_implementation="packed_sdpa"` known to transformers. Safe to call again."""
    AttentionInterface.register(PACKED_SDPA, packed_sdpa)
    # The layout replaces the mask: without this transformers would build a [T, T] one.
    AttentionMaskInterface.register(PACKED_SDPA, lambda *args, **kwargs: None)
