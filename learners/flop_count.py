"""The number of operations (FLOP) of training, from sizes alone: for what is measured, and for what is planned."""

from __future__ import annotations


def forward_flops(
    *, matrices: float, head: float, layers: int, width: int, tokens: float, loss_tokens: float, pairs: float
) -> float:
    """Two for each weight of a matrix and each token that passes it (the head sees loss tokens only), and for each
    layer 4 x width (heads x head size) for each pair of tokens that attention compares.
    """
    return 2.0 * matrices * tokens + 2.0 * head * loss_tokens + 4.0 * layers * width * pairs


def training_flops(forward: float, frozen: float) -> float:
    """One forward and backward pass: three times the forward's. Recomputing is not counted.

    frozen: operations of the forward pass with weights that are not trained, which have no gradient.
    """
    return 3 * forward - frozen
