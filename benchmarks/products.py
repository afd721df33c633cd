"""Matrix products of a small learner by torch's own library, by oneDNN, and by oneDNN in bfloat16:
`python benchmarks/products.py [--json F]`.

One thread. The three products of a linear layer: forwards, the gradient of its input, the gradient of its weight.
They take turns, and seconds are of the processor, so that a busy machine disturbs them little.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from report import Report, parser
from torch.nn import functional as F

from learners.kernels import linear, multiplies_bfloat16, narrow_linear, serves

TOKENS = 4096
SHAPES = ((768, 256), (256, 768), (256, 256), (512, 256))  # [out, in]
ROUNDS = 15
LIBRARIES: dict[str, Callable[..., torch.Tensor]] = {"torch": F.linear, "oneDNN": linear, "oneDNN, bf16": narrow_linear}


def rate(step: Callable[[], object], flops: float) -> float:
    started = time.process_time()
    step()
    return flops / (time.process_time() - started) / 1e9


def measure(shape: tuple[int, int], libraries: dict[str, Callable[..., torch.Tensor]]) -> dict[str, float]:
    """GFLOP/s of each product by each library."""
    weight = torch.randn(*shape, requires_grad=True)
    x, grad = torch.randn(TOKENS, shape[1], requires_grad=True), torch.randn(TOKENS, shape[0])
    flops = 2.0 * TOKENS * shape[0] * shape[1]
    rates: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        for library, function in libraries.items():
            forward = rate(partial(function, x.detach(), weight.detach(), None), flops)
            out = function(x, weight.detach(), None)
            of_x = rate(partial(torch.autograd.grad, out, x, grad), flops)
            out = function(x.detach(), weight, None)
            of_w = rate(partial(torch.autograd.grad, out, weight, grad), flops)
            for name, value in (("forward", forward), ("input's gradient", of_x), ("weight's gradient", of_w)):
                rates.setdefault(f"{name}, {library}", []).append(value)
    return {name: median(values) for name, values in rates.items()}


def main() -> None:
    cli = parser(__doc__)
    options = cli.parse_args()
    torch.set_num_threads(1)
    if not serves(torch.zeros(1)):
        cli.exit(1, "oneDNN does not serve here: the learner computes with torch's own library\n")
    products = ("forward", "input's gradient", "weight's gradient")
    libraries = dict(LIBRARIES) if multiplies_bfloat16() else dict(list(LIBRARIES.items())[:2])
    with Report(options) as report:
        report.head("weight", *(f"{name}, {library} (GFLOP/s)" for name in products for library in libraries))
        for out, into in SHAPES:
            rates = measure((out, into), libraries)
            report.row(f"{out} x {into}", *(rates[f"{name}, {library}"] for name in products for library in libraries))


if __name__ == "__main__":
    main()
