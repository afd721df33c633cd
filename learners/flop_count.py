"""The number of operations (FLOP) of training, from sizes alone: for what is measured, and for what is planned."""

from __future__ import annotations


def training_flops(
    *, matrices: float, head: float, layers: int, width: int, tokens: float, loss_tokens: float, pairs: float
) -> float:
    """One forward and backward pass: three times the forward's. Recomputing is not counted.

    Two for each weight of a matrix and each token that passes it (the head sees loss tokens only), and for each layer
    4 x width (heads x head size) for each pair of tokens that attention compares.
    """
    forward = 2.0 * matrices * tokens + 2.0 * head * loss_tokens
    return 3 * (forward + 4.0 * layers * width * pairs)
