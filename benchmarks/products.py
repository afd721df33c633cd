"""Matrix products of a small learner by torch's own library and by oneDNN: `python benchmarks/products.py [--json F]`.

One thread. The three products of a linear layer: forwards, the gradient of its input, the gradient of its weight.
Both libraries take turns, and seconds are of the processor, so that a busy machine disturbs them little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch.nn import functional as F

from learners.linear import linear, serves

TOKENS = 4096
SHAPES = ((768, 256), (256, 768), (256, 256), (512, 256))  # [out, in]
ROUNDS = 15


def rate(step: Callable[[], object], flops: float) -> float:
    started = time.process_time()
    step()
    return flops / (time.process_time() - started) / 1e9


def measure(shape: tuple[int, int]) -> dict[str, float]:
    """GFLOP/s of each product by each library."""
    weight = torch.randn(*shape, requires_grad=True)
    x, grad = torch.randn(TOKENS, shape[1], requires_grad=True), torch.randn(TOKENS, shape[0])
    flops = 2.0 * TOKENS * shape[0] * shape[1]
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for library, function in (("torch", F.linear), ("oneDNN", linear)):
            forwards = [rate(lambda f=function: f(x.detach(), weight.detach(), None), flops)]  # type: ignore[misc]
            out = function(x, weight.detach(), None)
            of_x = rate(lambda out=out: torch.autograd.grad(out, x, grad), flops)  # type: ignore[misc]
            out = function(x.detach(), weight, None)
            of_w = rate(lambda out=out: torch.autograd.grad(out, weight, grad), flops)  # type: ignore[misc]
            for name, value in (("forward", *forwards), ("input's gradient", of_x), ("weight's gradient", of_w)):
                found.setdefault(f"{name}, {library}", []).append(value)
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not serves(torch.zeros(1)):
        parser.exit(1, "oneDNN does not serve here: the learner computes with torch's own library\n")
    found = {f"{out} x {into}": measure((out, into)) for out, into in SHAPES}
    names = ["forward", "input's gradient", "weight's gradient"]
    print("| weight | " + " | ".join(f"{name}: torch, oneDNN (GFLOP/s)" for name in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    for shape, values in found.items():
        cells = [f"{values[f'{name}, torch']:.0f}, {values[f'{name}, oneDNN']:.0f}" for name in names]
        print(f"| {shape} | " + " | ".join(cells) + " |")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
