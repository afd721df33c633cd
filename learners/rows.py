"""A packed row: samples side by side, as a model wants them and as what it gives is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from learners import attention
from learners.attention import find_shared_starts

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from learners.sequence_parallel import SequenceGroup


def pack_ids(
    samples: Sequence[Sequence[int]], device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(token_ids [T], position_ids [T], cu_seqlens [S+1]) of samples side by side."""
    token_ids = torch.tensor([token for sample in samples for token in sample], dtype=torch.int64)
    position_ids = torch.cat([torch.arange(len(sample)) for sample in samples])
    lengths = torch.tensor([0] + [len(sample) for sample in samples])
    cu_seqlens = lengths.cumsum(0).to(torch.int32)
    return token_ids.to(device), position_ids.to(device), cu_seqlens.to(device)


def row_inputs(
    model: PreTrainedModel,
    token_ids: torch.Tensor,
    position_ids: torch.Tensor,
    cu_seqlens: torch.Tensor,
    group: SequenceGroup | None = None,
) -> dict[str, Any]:
    """The row as `model` wants it: what it gives is read with `output_positions`.

    No mask and no cache: with either, samples would see each other. In host memory what begins two neighbours alike is
    given once. group: the ranks that share the row, of which this one gives its part; by packed attention alone.
    """
    more: dict[str, object] = {"use_cache": False}
    if model.config._attn_implementation in (attention.PACKED_SDPA, attention.PACKED_VARLEN):
        shared = find_shared_starts(token_ids, cu_seqlens) if group is None and token_ids.device.type == "cpu" else None
        if group is not None:
            token_ids, position_ids, cu_seqlens = group.pad(token_ids, position_ids, cu_seqlens)
            part = group.part(token_ids.numel())
            token_ids, position_ids = token_ids[part], position_ids[part]
        if shared is not None:
            token_ids, position_ids = token_ids[shared.kept], position_ids[shared.kept]
        more["packed_layout"] = attention.packed_layout(cu_seqlens, shared, group)
    else:
        assert group is None, "only packed attention knows the ranks that share a row"
        longest = int(cu_seqlens.diff().max())
        more |= {"cu_seq_lens_q": cu_seqlens, "cu_seq_lens_k": cu_seqlens}
        more |= {"max_length_q": longest, "max_length_k": longest}
    return {"input_ids": token_ids[None], "position_ids": position_ids[None], **more}


def output_positions(inputs: Mapping[str, Any], tokens: torch.Tensor) -> torch.Tensor:
    """Where in what a model gives for `inputs` these tokens of the row are."""
    layout: attention.PackedLayout | None = inputs.get("packed_layout")
    return tokens if layout is None or layout.shared is None else layout.shared.stand_in[tokens]


def own_outputs(inputs: Mapping[str, Any], targets_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(targets, places): the tokens of the row that this rank computes a value for, and where in what a model gives for
    `inputs` the token before each is. Without a group they are all of targets_N."""
    layout: attention.PackedLayout | None = inputs.get("packed_layout")
    before_N = targets_N - 1
    if layout is None or layout.group is None:
        return targets_N, output_positions(inputs, before_N)
    part = layout.group.part(layout.bounds[-1])
    own_N = (before_N >= part.start) & (before_N < part.stop)
    return targets_N[own_N], before_N[own_N] - part.start
