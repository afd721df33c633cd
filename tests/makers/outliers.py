"""Outliers put into any model of transformers: a few massive channels, sharp attention, norms far from 1."""

from __future__ import annotations

import re
from typing import Any

import torch

# The last piece of a matrix's name, before ".weight": what writes to the residual stream, and what makes queries.
WRITES = re.compile(r"(down_proj|fc2|mlp\.c_proj|fc_out|dense_4h_to_h)$")
QUERIES = re.compile(r"(q_proj|q_b_proj|qkv_proj|c_attn|query_key_value)$")
AFTER = re.compile(r"post_feedforward_layernorm$")  # what a layer writes passes it, and is as large as it says
CHANNELS = (1, 7)
MASSIVE, SHARP = 3000.0, 6.0


@torch.no_grad()
def put_outliers(model: Any, seed: int = 0) -> None:
    """In place. One early layer writes two channels thousands of times as large, queries are six times as large, and
    vectors of norms lie between a half and twice what they were."""
    draw, early = torch.Generator().manual_seed(seed), True
    counts = {"writes": 0, "queries": 0}
    after = next((name for name, _ in model.named_modules() if AFTER.search(name)), None)
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if weight is None:
            continue
        if weight.ndim == 1:
            weight.mul_(torch.randn(weight.shape, generator=draw).mul(0.3).exp().to(weight.dtype))
            if name == after:
                weight[list(CHANNELS)] += MASSIVE
        elif WRITES.search(name) and early:
            early, counts["writes"] = False, 1
            rows = weight.T if type(module).__name__ == "Conv1D" else weight  # Conv1D keeps [in, out]
            rows[list(CHANNELS)] *= MASSIVE
        elif QUERIES.search(name):
            counts["queries"] += 1
            weight.mul_(SHARP)
    assert counts["writes"] and counts["queries"], f"{type(model).__name__} has none of the names that are known here"
