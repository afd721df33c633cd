"""An engine without vLLM: what it is built from, what it says of itself and how it fails."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rlsys.config.engine import EngineConfig
from rlsys.metrics import Max, Metrics, Sum
from rlsys.system.device import Device, RunningKV, dtype_of, require_resolved


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """All that an engine is built from."""

    model_path: str  # a folder with config, weights and tokenizer, or a hub name
    dtype: str
    max_model_len: int  # tokens of prompt and completion together
    max_num_seqs: int
    seed: int  # of requests without a seed
    prefix_cache: bool
    enforce_eager: bool
    threads: int  # CPU threads
    kv_cache_mb: int | None  # None: what `gpu_memory_utilization` leaves
    gpu_memory_utilization: float
    block_size: int | None  # tokens per KV block; None: vLLM's choice
    tensor_parallel: int = 1  # processes that divide the model, each with a device of its own
    running_kv: RunningKV = "recompute"  # what a delivery does with the KV cache of the requests that are running
    chunked_prefill: bool = True
    """False on a CPU: vLLM 0.32 dies of a seeded request whose prefill is cut (CPU generators have no offset)."""
    fp32_head: bool = False  # logits in float32, whatever the weights are
    vllm: Mapping[str, Any] = field(default_factory=dict)  # further arguments, by vLLM's names
    extension: str = "actors.engine_worker.ReloadExtension"


def make_engine_spec(
    engine: EngineConfig,
    device: Device,
    *,
    model_path: str,
    dtype: str,
    seed: int,
    threads: int,
    fp32_head: bool = False,
    running_kv: RunningKV | None = None,
) -> EngineSpec:
    """`dtype` "auto" and `running_kv` None are the device's. `engine` is resolved for it."""
    eager = {"enforce_eager": require_resolved(engine.enforce_eager)}
    options = asdict(engine) | eager | ({} if device.torch_device == "cpu" else {"kv_cache_mb": None})
    return EngineSpec(
        **options,
        model_path=model_path,
        dtype=dtype_of(dtype, device),
        seed=seed,
        threads=threads,
        fp32_head=fp32_head,
        block_size=device.block_size,
        chunked_prefill=device.chunked_prefill,
        running_kv=running_kv or device.running_kv,
    )


def openmp(threads: int) -> dict[str, str]:
    """Variables for torch's threads, which sleep while they wait for each other.

    By default they spin: an engine and a learner that share cores would each wait for the other's waiting.
    """
    return {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}


def compile_cache() -> str:
    """Where vLLM keeps what it compiled on this node: nodes that share a home would write one folder at once."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return str(Path(home).expanduser() / "vllm" / f"of-{platform.node() or 'this-node'}")


def engine_environment(threads: int, model_path: str = "") -> dict[str, str]:
    """Variables that must stand before torch and vLLM are imported: `env_vars` of the actor's runtime environment."""
    variables = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # on a CPU: the worker inside the EngineCore, not a process of its own
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a forked EngineCore would not run the import that binds it
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # else every engine of a machine binds to the same cores
        **openmp(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
    }
    local = bool(model_path) and Path(model_path).is_dir()
    return variables | ({"HF_HUB_OFFLINE": "1"} if local else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """Gauges of the last engine step. `row` says how those of several engines become one number."""

    running: int = 0  # requests in the batch
    waiting: int = 0  # requests queued
    kv_usage: float = 0.0  # share of the KV cache in use, 0 to 1

    def row(self) -> Metrics:
        return {
            "engine/running": Sum(self.running),
            "engine/waiting": Sum(self.waiting),
            "engine/kv_usage": Max(self.kv_usage),
        }


IDLE = EngineStats()


class PromptTooLong(Exception):
    """A prompt fills the context window and leaves no room for one token."""

    def __init__(self, length: int, limit: int) -> None:
        super().__init__(length, limit)  # both, so that it survives pickling between actors
        self.length, self.limit = length, limit

    def __str__(self) -> str:
        return f"a prompt of {self.length} tokens leaves no room in a context of {self.limit}"


class EngineFailed(Exception):
    """The engine serves nothing any more: its process died, it was stopped, or it holds half of a version."""
