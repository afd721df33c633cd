"""Memory and time of a row that ranks share: `python benchmarks/sequence_parallel.py [--ranks 1 2 4] [--tokens N]`.

Each number of ranks trains the same row, one sample of `--tokens` tokens, with one thread a rank. Peak memory is what a
rank takes in its first update beside what it held before: activations, and the gradients and moments of the weights,
which ZeRO-2 divides. `--device cuda` needs as many GPUs as ranks.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
import threading
from pathlib import Path

import numpy as np
import psutil
import torch
from learner import save_model, timed
from report import Report, parser

from learners.algorithms.sft import SFT, SFTConfig
from learners.meeting import RankSpec
from learners.rank import LearnerRank
from rlsys.batch import Batch, build_batch
from rlsys.config.learner import LearnerConfig
from rlsys.plan import plan_samples
from rlsys.system.device import DEVICES
from rlsys.types import Sample

LOOK_S = 0.01


class PeakMemory:
    """MB that this process, or its GPU, holds at most inside, beside what it held before."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.mb = device, 0.0

    def __enter__(self) -> PeakMemory:
        self._before, self._done = self._held(), threading.Event()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()
        if self.device.type == "cuda":
            self.mb = torch.cuda.max_memory_allocated(self.device) / 2**20 - self._before

    def _look(self) -> None:
        while not self._done.wait(LOOK_S):
            self.mb = max(self.mb, self._held() - self._before)

    def _held(self) -> float:
        gpu = self.device.type == "cuda"
        held: int = torch.cuda.memory_allocated(self.device) if gpu else psutil.Process().memory_info().rss
        return held / 2**20


def make_row(options: argparse.Namespace) -> Batch:
    """One sample, of which a quarter is the prompt."""
    draw = np.random.default_rng(0)
    mask = np.arange(options.tokens) >= options.tokens // 4
    sample = Sample(
        token_ids=draw.integers(options.vocab, size=options.tokens).astype(np.int32),
        loss_mask=mask,
        behavior_logprobs=np.zeros(options.tokens, np.float32),
        advantages=np.zeros(options.tokens, np.float32),
        versions=np.where(mask, 0, -1).astype(np.int32),
        reward=None,
    )
    plan = plan_samples([sample], options.tokens, version=0)
    return build_batch(plan, plan.sources)


def run_rank(rank: int, ranks: int, port: int, options: argparse.Namespace, folder: str) -> None:
    os.environ.update(GLOO_SOCKET_IFNAME="lo", **({"LOCAL_RANK": str(rank)} if options.device == "cuda" else {}))
    torch.set_num_threads(1)
    spec = RankSpec(
        rank=rank, world_size=ranks, master_addr="127.0.0.1", master_port=port, device=DEVICES[options.device],
        dtype=options.dtype, gradient_checkpointing=options.checkpointing, seed=0,
    )  # fmt: skip
    learner = LearnerRank(spec)
    config = LearnerConfig(ranks=ranks, sequence_parallel=ranks, tokens_per_row=options.tokens, threads=1)
    learner.begin(folder, config, SFT(SFTConfig()), 100, 1.0)
    batch = make_row(options)
    with PeakMemory(learner.torch_device) as peak:
        learner.update(batch)
    seconds = min(timed(learner.update, batch)[1] for _ in range(options.steps))
    if rank == 0:
        torch.save((peak.mb, seconds), Path(folder) / "measured.pt")
    learner.close()


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="default: 1 2 4")
    cli.add_argument("--tokens", type=int, default=8192, help="of the row")
    cli.add_argument("--hidden", type=int, default=256, help="a multiple of 128; heads have 64")
    cli.add_argument("--layers", type=int, default=4)
    cli.add_argument("--vocab", type=int, default=4096)
    cli.add_argument("--steps", type=int, default=2, help="after the first one")
    cli.add_argument("--device", choices=list(DEVICES), default="cpu")
    cli.add_argument("--dtype", default="float32")
    cli.add_argument("--checkpointing", action="store_true")
    options = cli.parse_args()
    with Report(options) as report, tempfile.TemporaryDirectory() as folder:
        save_model(folder, options)
        report.head("ranks that share the row", "tokens of a rank", "peak MB of a rank", "seconds of an update")
        for ranks in options.ranks:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            torch.multiprocessing.spawn(  # type: ignore[attr-defined]
                run_rank, (ranks, port, options, folder), nprocs=ranks
            )
            peak_mb, seconds = torch.load(Path(folder) / "measured.pt")
            report.row(ranks, -(-options.tokens // ranks), peak_mb, seconds)


if __name__ == "__main__":
    main()
