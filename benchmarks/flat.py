"""A Flat index and an encoder on one core: `python benchmarks/flat.py`, a minute.

Prints the tables of docs/results/retriever.md: GFLOP/s of batches of queries, with the threshold from which faiss
multiplies matrices as it comes and as `envs.services.retriever.dense` sets it, and of a BERT of E5-base's size with
random weights. Times are processor time of the calling thread, the best of several rounds: other programs count little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import faiss
import numpy as np
import torch
from transformers import BertConfig, BertModel

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import Report, parser

from envs.services.retriever.dense import BLAS_FROM
from envs.services.retriever.sizes import ENCODERS, QUERY_TOKENS

DIMENSION, PASSAGES = 768, 60_000
BATCHES = (1, 2, 8, 64, 256)
ROUNDS = 5


def main() -> None:
    faiss.omp_set_num_threads(1)
    torch.set_num_threads(1)
    with Report(parser(__doc__).parse_args()) as report:
        rng = np.random.default_rng(0)
        index = faiss.IndexFlatIP(DIMENSION)
        index.add(rng.random((PASSAGES, DIMENSION), np.float32))
        report.head("queries at once", f"faiss {faiss.__version__} as it comes, GFLOP/s", "here, GFLOP/s")
        default = faiss.cvar.distance_compute_blas_threshold
        for count in BATCHES:
            queries = rng.random((count, DIMENSION), np.float32)
            flops, rates = 2.0 * PASSAGES * DIMENSION * count, []
            for threshold in (default, BLAS_FROM):
                faiss.cvar.distance_compute_blas_threshold = threshold
                rates.append(flops / best(partial(index.search, queries, 5)) / 1e9)
            report.row(str(count), *rates)
        encoder, ids = BertModel(BertConfig()).eval(), torch.randint(0, 30_000, (16, QUERY_TOKENS))
        flops = 2.0 * ENCODERS["e5"].parameters * ids.numel()
        report.head(f"encoder, 16 queries of {QUERY_TOKENS} tokens", "queries/s", "GFLOP/s")
        for dtype in (torch.float32, torch.bfloat16):
            encoder = encoder.to(dtype)
            with torch.inference_mode():
                seconds = best(partial(encoder, input_ids=ids))
            report.row(str(dtype).removeprefix("torch."), len(ids) / seconds, flops / seconds / 1e9)


def best(work: Callable[[], object]) -> float:
    """Seconds of this thread's processor."""
    seconds = []
    for _ in range(ROUNDS):
        started = time.thread_time()
        work()
        seconds.append(time.thread_time() - started)
    return min(seconds)


if __name__ == "__main__":
    main()
