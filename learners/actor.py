"""One learner rank as a Ray actor: a thin skin over `learners.rank.LearnerRank`, which also runs without Ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlsys.batch import Batch, UpdateReport

if TYPE_CHECKING:
    from learners.rank import LearnerRank, RankSpec
    from rlsys.channels.base import Published, WeightChannel
    from rlsys.config import LearnerConfig


class LearnerActor:
    """Plain class; `learners.group` makes it a Ray actor."""

    rank: LearnerRank  # from `start` on

    def address(self) -> tuple[str, int]:
        """(host, free port) for the process group: asked of rank 0."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            port: int = probe.getsockname()[1]
        return socket.gethostbyname(socket.gethostname()), port

    def start(self, spec: RankSpec, address: tuple[str, int]) -> int:
        """Join the process group. Returns the process id."""
        from learners.rank import LearnerRank

        self.rank = LearnerRank(replace(spec, master_addr=address[0], master_port=address[1]))
        return os.getpid()

    def begin(self, model_path: str, learner: LearnerConfig, algorithm: Any, **stage: Any) -> None:
        """As `LearnerRank.begin`, with the algorithm's configuration."""
        from learners.algorithms import make_algorithm

        self.rank.begin(model_path, learner, make_algorithm(algorithm), **stage)

    def update(self, batch: Batch) -> UpdateReport:
        return self.rank.update(batch)

    def logprobs(self, token_ids: Sequence[Sequence[int]]) -> list[list[float]]:
        return self.rank.logprobs([list(ids) for ids in token_ids])

    def export(
        self, channel: WeightChannel, version: int, probe: Sequence[Sequence[int]], perturb: bool
    ) -> tuple[Published, list[list[float]]]:
        share, logprobs = self.rank.export(channel, version, probe, perturb=perturb)
        if share.places and not perturb:  # engines go back from perturbed weights to the versions before
            channel.forget(version)
        return share, logprobs

    def close_channel(self, channel: WeightChannel) -> None:
        """The run ends: its published versions leave the memory of this node."""
        channel.close()

    def save(self, folder: str, tokenizer_from: str) -> None:
        """`folder`/learner for resuming, `folder`/hf, with the tokenizer of `tokenizer_from`, for everybody else."""
        self.rank.save(Path(folder) / "learner")
        self.rank.save_hf(Path(folder) / "hf", tokenizer_from)

    def load(self, folder: str) -> None:
        self.rank.load(Path(folder) / "learner")
