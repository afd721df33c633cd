"""What the learner's tests share: a tiny model, a rank, and bare processes with a deadline."""

import dataclasses
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from learners import policy
from learners.meeting import RankSpec
from learners.proofs import require_packing
from learners.rank import LearnerRank
from learners.scratch import build
from rlsys.config.model import ScratchModel
from tests.device import device, name

# Above 100,000 elements a tensor is really partitioned under ZeRO-3: here embedding, head and the MLPs.
SHAPE = ScratchModel(
    hidden_size=128, intermediate_size=1024, num_layers=2, num_heads=4, num_kv_heads=2, vocab_size=1024
)


def save_model(folder: Path, seed: int = 0, shape: ScratchModel = SHAPE) -> str:
    build(folder, shape, ["a few words", "and 12 more"] * 9, ["<tag>"], max_positions=128, seed=seed)
    return str(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def spec(rank: int = 0, world_size: int = 1, port: int = 0, **changes: Any) -> RankSpec:
    first = RankSpec(
        rank=rank, world_size=world_size, master_addr="127.0.0.1", master_port=port or free_port(),
        device=device(), dtype="float32", gradient_checkpointing=False, seed=0,
    )  # fmt: skip
    return dataclasses.replace(first, **changes)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_model(tmp_path_factory.mktemp("scratch") / "model")


def make_prover() -> Callable[[Any], None]:
    """Proofs of packing are half of what a stage's start takes; here hundreds begin, of a few models."""
    proved: set[str] = set()

    def prove(model: Any) -> None:
        key = f"{model.dtype} {model.device} {type(model).__name__} {model.config.to_json_string()}"
        if key not in proved:
            require_packing(model)
            proved.add(key)

    return prove


@pytest.fixture(scope="module")
def learner() -> Iterator[LearnerRank]:
    rank = LearnerRank(spec())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(policy, "require_packing", make_prover())
        yield rank
    rank.close()


def spawn(run: Callable[..., None], world_size: int, *arguments: Any, deadline_s: float) -> None:
    """run(rank, world_size, port, *arguments) in a process for each rank. TimeoutError when they do not end."""
    context = torch.multiprocessing.spawn(run, (world_size, free_port(), *arguments), nprocs=world_size, join=False)
    end = time.monotonic() + deadline_s
    try:
        while not context.join(timeout=max(0.0, end - time.monotonic())):
            if time.monotonic() >= end:
                raise TimeoutError(f"{world_size} ranks are not done after {deadline_s:g} s: a collective hangs")
    finally:
        for process in context.processes:
            process.kill()


def bare_process(rank: int) -> None:
    """Of every rank, before its learner."""
    policy.require_packing = make_prover()
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if name() == "cuda":
        os.environ["LOCAL_RANK"] = str(rank)  # its GPU
