"""Attention over packed rows without flash-attn: on a CPU, and on a GPU by torch's own variable-length kernel.

A row holds samples side by side. Samples of similar length are padded on the right into one causal attention call:
a real token never attends to what follows it, so the padding needs no mask, and nothing leaks between samples. The
kernel of a GPU takes the bounds of the samples and needs no padding.

A causal model computes the same for tokens that begin two samples alike, so that one does for both.
Siblings of a group have one prompt, and every prompt of a recipe begins with the same words. Only neighbours in a row
are compared: `rlsys.plan.pack` leaves siblings side by side where `learner.rows_in_order` holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface
from transformers.integrations.flash_attention import flash_attention_forward
from transformers.masking_utils import AttentionMaskInterface
from transformers.utils import is_flash_attn_2_available

from learners.sequence_parallel import SequenceGroup
from rlsys.errors import BadInput

PACKED_SDPA = "packed_sdpa"
PACKED_VARLEN = "packed_varlen"
FLASH = "flash_attention_2"
# A sample shorter than this share of its group's longest starts a new group: bounds the arithmetic spent on padding.
_MIN_FILL = 0.8
# Attention sinks, relative positions: arguments by which some models change the softmax.
_REFUSED = ("s_aux", "position_bias")
# Queries whose soft-capped scores are in memory at once.
CAPPED_QUERIES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthGroup:
    num_samples: int
    max_length: int
    tokens: torch.Tensor  # [num_samples * max_length] the computed token in each padded slot; padding repeats one


@dataclass(frozen=True, slots=True, kw_only=True)
class Padding:
    """Where each computed token of a row goes when samples of similar length are padded side by side."""

    groups: tuple[LengthGroup, ...]
    slots: torch.Tensor  # [U] the slot of each computed token in the groups' concatenated outputs
    repeated: torch.Tensor | None  # [R] the slots of those that are not computed: keys and values once more


@dataclass(frozen=True, kw_only=True)
class PackedLayout:
    """Where the samples of a row are: worked out once per row, used by every layer."""

    cu_seqlens: torch.Tensor  # [S+1] int32, where samples begin and end
    bounds: tuple[int, ...]  # the same numbers in host memory
    shared: Shared | None = None  # None: all T tokens of the row are computed
    group: SequenceGroup | None = None  # the ranks that share the row; None: this rank has all of it

    @property
    def longest(self) -> int:
        return max((end - start for start, end in pairwise(self.bounds)), default=0)

    @cached_property
    def padding(self) -> Padding:
        """Made where it is asked for: a GPU's own kernel needs none of it."""
        return _padding(self)


def packed_layout(
    cu_seqlens: torch.Tensor, shared: Shared | None = None, group: SequenceGroup | None = None
) -> PackedLayout:
    """cu_seqlens: [S+1] int32. shared: what of the row is not computed again; on a CPU alone, and not in a group."""
    return PackedLayout(cu_seqlens=cu_seqlens, bounds=tuple(cu_seqlens.tolist()), shared=shared, group=group)


def _padding(layout: PackedLayout) -> Padding:
    """Deterministic: samples are grouped by falling length, ties in row order."""
    bounds, shared = layout.bounds, layout.shared
    samples = [(end - start, start) for start, end in pairwise(bounds) if end > start]
    samples.sort(key=lambda sample: (-sample[0], sample[1]))
    grouped: list[list[tuple[int, int]]] = []
    for length, start in samples:
        if not grouped or length < _MIN_FILL * grouped[-1][0][0]:
            grouped.append([])
        grouped[-1].append((length, start))

    device = layout.cu_seqlens.device
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
        tokens = tokens_SL.flatten() if shared is None else shared.stand_in[tokens_SL.flatten()]
        groups.append(LengthGroup(num_samples=len(members), max_length=max_length, tokens=tokens))
        offset += len(members) * max_length
    return Padding(
        groups=tuple(groups),
        slots=slots if shared is None else slots[shared.kept],
        repeated=None if shared is None else slots[shared.repeats],
    )


class _Pad(torch.autograd.Function):
    """Computed tokens to padded slots. Padding gets no gradient back, so the backward is a gather and not a slow
    scatter; what stands for others too has theirs added."""

    @staticmethod
    def forward(ctx: Any, x_UHD: torch.Tensor, tokens: torch.Tensor, layout: PackedLayout) -> torch.Tensor:
        ctx.layout = layout
        return x_UHD.index_select(0, tokens)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        layout: PackedLayout = ctx.layout
        padding = layout.padding
        of_own = grads[0].index_select(0, padding.slots)
        if layout.shared is not None and padding.repeated is not None:
            of_own.index_add_(0, layout.shared.originals, grads[0].index_select(0, padding.repeated))
        return of_own, None, None


class _Unpad(torch.autograd.Function):
    """Padded slots back to computed tokens."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """What a model does to its scores before the softmax."""

    scaling: float | None
    window: int | None  # a token sees so many, itself included
    softcap: float | None  # cap * tanh(score / cap)


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scores: _Scores) -> torch.Tensor:
    """[S, heads, L, dim] causal attention; the window mask exists only where a sample is longer than the window."""
    if scores.softcap is not None:
        return _attend_capped(query, key, value, scores)
    scaling, sliding_window = scores.scaling, scores.window
    length, gqa = query.shape[2], query.shape[1] != key.shape[1]
    if sliding_window is None or length <= sliding_window:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=gqa)
    steps = torch.arange(length, device=query.device)
    distance = steps[:, None] - steps[None, :]
    mask = (distance >= 0) & (distance < sliding_window)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=gqa)


def _attend_capped(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scores: _Scores) -> torch.Tensor:
    """The same with soft-capped scores, which no kernel of torch knows: a block of queries at a time, again in the
    backward pass."""
    repeats = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    outputs, start = [], 0
    for block in query.split(CAPPED_QUERIES, dim=2):
        end = start + block.shape[2]
        qkv = (block, key[:, :, :end], value[:, :, :end])
        outputs.append(
            checkpoint(_attend_capped_block, *qkv, scores, start, use_reentrant=False, preserve_rng_state=False)
        )
        start = end
    return torch.cat(outputs, dim=2)


def _attend_capped_block(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scores: _Scores, start: int
) -> torch.Tensor:
    """Of the queries from `start` on; `key` and `value` end where they do."""
    assert scores.softcap is not None
    scale = query.shape[-1] ** -0.5 if scores.scaling is None else scores.scaling
    capped = (query @ key.transpose(-1, -2) * scale / scores.softcap).tanh() * scores.softcap
    steps = torch.arange(key.shape[2], device=query.device)
    distance = steps[start:, None] - steps[None, :]
    visible = distance >= 0 if scores.window is None else (distance >= 0) & (distance < scores.window)
    share = capped.masked_fill(~visible, float("-inf")).softmax(-1, dtype=torch.float32)
    return share.to(value.dtype) @ value


def packed_sdpa(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    packed_layout: PackedLayout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention contract: query [1, heads, T, dim] in, [1, T, heads, dim] out. Never drops out.

    Without a layout the row is one sample. Raises BadInput for what it cannot do, rather than leave it out.
    """
    if extra := [name for name in _REFUSED if kwargs.get(name) is not None]:
        raise BadInput(f"model {type(module).__name__}: attention with {extra[0]!r}, which {PACKED_SDPA} does not know")
    scores = _Scores(scaling=scaling, window=sliding_window, softcap=softcap)
    if packed_layout is None:
        return _attend(query, key, value, scores).transpose(1, 2).contiguous(), None
    qkv_UHD = [x.transpose(1, 2).squeeze(0) for x in (query, key, value)]
    # One gather for all groups, then a view of each, so that the backward is one gather as well.
    padding = packed_layout.padding
    tokens = torch.cat([group.tokens for group in padding.groups])
    padded = [_Pad.apply(x, tokens, packed_layout) for x in qkv_UHD]
    outputs, offset = [], 0
    for group in padding.groups:
        size = group.num_samples * group.max_length
        parts = [x[offset : offset + size] for x in padded]
        outputs.append(_group_attention(parts, group, scores))
        offset += size
    return _Unpad.apply(torch.cat(outputs), padding.slots)[None], None


def _group_attention(padded: list[torch.Tensor], group: LengthGroup, scores: _Scores) -> torch.Tensor:
    """[S*L, heads, dim] of one length group in and out."""
    query, key, value = (x.unflatten(0, (group.num_samples, group.max_length)).transpose(1, 2) for x in padded)
    return _attend(query, key, value, scores).transpose(1, 2).flatten(0, 1)


def packed_varlen(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    packed_layout: PackedLayout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """As packed_sdpa, by torch's variable-length kernel where that can: on a GPU, without soft-capping.

    A reference that waits in host memory is looked at there, before it ever comes to a GPU.
    """
    plain = softcap is None and not any(kwargs.get(name) is not None for name in _REFUSED)
    if packed_layout is None or not plain or not query.is_cuda:
        return packed_sdpa(
            module, query, key, value, attention_mask, scaling,
            sliding_window=sliding_window, softcap=softcap, packed_layout=packed_layout, **kwargs,
        )  # fmt: skip
    return attend_varlen(query, key, value, packed_layout, scaling, sliding_window), None


def attend_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    layout: PackedLayout,
    scaling: float | None,
    sliding_window: int | None,
) -> torch.Tensor:
    """[1, heads, T, dim] in, [1, T, heads, dim] out."""
    from torch.nn.attention import varlen

    bounds, longest = layout.cu_seqlens, layout.longest
    query, key, value = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))
    window = (-1 if sliding_window is None else sliding_window - 1, 0)  # tokens to the left, none to the right: causal
    gqa = query.shape[1] != key.shape[1]
    output = varlen.varlen_attn(
        query, key, value, bounds, bounds, longest, longest, scale=scaling, window_size=window, enable_gqa=gqa
    )
    assert isinstance(output, torch.Tensor)  # a pair where more was asked for
    return output[None]


def attend_in_group(
    attend: Callable[..., tuple[torch.Tensor, None]],
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *args: Any,
    packed_layout: PackedLayout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Of a row that ranks share: attention of the whole row with this rank's heads. `attend` alone where none do."""
    group = packed_layout.group if packed_layout is not None else None
    if group is None:
        return attend(module, query, key, value, *args, packed_layout=packed_layout, **kwargs)
    repeats = group.repeats(query.shape[1], key.shape[1])
    if repeats > 1:
        key, value = (x.repeat_interleave(repeats, dim=1) for x in (key, value))
    query, key, value = (group.exchange(x) for x in (query, key, value))
    output, _ = attend(module, query, key, value, *args, packed_layout=packed_layout, **kwargs)
    return group.exchange(output), None


def first_usable(keys: Sequence[str], dtype: torch.dtype) -> str:
    """The first of these that is installed and knows the numbers' format; packed_sdpa knows everything."""
    narrow = dtype.itemsize == 2  # what flash kernels are written for
    usable = {FLASH: narrow and is_flash_attn_2_available(), PACKED_VARLEN: narrow}
    return next((key for key in keys if usable.get(key, True)), PACKED_SDPA)


def register() -> None:
    """Make "packed_sdpa" and "packed_varlen" known to transformers. Safe to call again. None is ever compiled: a row's
    layout is another each time, and torch would compile again for it."""
    AttentionInterface.register(FLASH, torch.compiler.disable(flash_attention_forward))
    for name, function in ((PACKED_SDPA, packed_sdpa), (PACKED_VARLEN, packed_varlen)):
        AttentionInterface.register(name, torch.compiler.disable(partial(attend_in_group, function)))
        # The layout replaces the mask: without this transformers would build a [T, T] one.
        AttentionMaskInterface.register(name, lambda *args, **kwargs: None)


@dataclass(frozen=True, slots=True)
class Shared:
    kept: torch.Tensor  # [U] the row tokens that are computed
    stand_in: torch.Tensor  # [T] which of the computed ones has what each row token would have
    repeats: torch.Tensor  # [R] the row tokens that are not
    originals: torch.Tensor  # [R] what stands in for them


def find_shared_starts(token_ids: torch.Tensor, cu_seqlens: torch.Tensor) -> Shared | None:
    """T tokens of a row, U of them computed, R = T - U that repeat one of those.

    token_ids: [T], cu_seqlens: [S+1], both in host memory. None where no sample begins as the one before it."""
    ids, bounds = token_ids.numpy(), cu_seqlens.tolist()
    stand_in = np.arange(len(ids))
    for before, start, end in zip(bounds, bounds[1:], bounds[2:], strict=False):
        length = min(start - before, end - start)
        differ = np.flatnonzero(ids[before : before + length] != ids[start : start + length])
        alike = int(differ[0]) if len(differ) else length
        stand_in[start : start + alike] = stand_in[before : before + alike]
    is_computed = stand_in == np.arange(len(ids))
    if is_computed.all():
        return None
    stand_in = (np.cumsum(is_computed) - 1)[stand_in]
    computed, repeats = np.flatnonzero(is_computed), np.flatnonzero(~is_computed)
    return Shared(*map(torch.from_numpy, (computed, stand_in, repeats, stand_in[repeats])))
