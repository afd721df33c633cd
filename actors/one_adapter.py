"""Products with the one adapter of an engine on a CPU, in the place of vLLM's, which serve many adapters at once and
copy the adapter's matrices for every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def add_adapter(
    wrapper: Any,
    output: torch.Tensor,
    inputs: torch.Tensor,
    down: Sequence[torch.Tensor],
    up: Sequence[torch.Tensor],
    scale: float,
    widths: Sequence[int],
    **unused: Any,
) -> None:
    """Add the adapter's part to `output` [T, sum of widths], in place.

    inputs: [T, in]. down, up: for each of the layers that `output` holds next to each other, [1, 1, rank, in] and
    [1, 1, width, rank]. The inner sum is float32, as in vLLM's products. Tokens of requests without an adapter, whose
    index is negative, get none: vLLM's would give them that of the last place. Raises ValueError for more adapters
    than one.
    """
    if any(len(lora_a) != 1 for lora_a in down):
        raise ValueError(f"{len(down[0])} adapters: an engine of ours has one")
    output, inputs = output.view(-1, output.shape[-1]), inputs.view(-1, inputs.shape[-1])
    none = wrapper.token_lora_indices < 0
    some_without = bool(none.any())
    begin = 0
    for lora_a, lora_b, width in zip(down, up, widths, strict=True):
        inner = inputs.float() @ lora_a[0, 0].float().T * scale
        part = inner.to(output.dtype) @ lora_b[0, 0].to(output.dtype).T
        if some_without:
            part = part.masked_fill(none.unsqueeze(1), 0.0)
        output[:, begin : begin + width] += part
        begin += width
