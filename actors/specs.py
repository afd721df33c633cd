"""An engine without vLLM: what it is built from, how it fails, what it samples and says of itself as our records."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlsys.config.engine import EngineConfig
from rlsys.config.model import LoraConfig
from rlsys.metrics import Max, Metrics, Sum
from rlsys.system.device import Device, RunningKV, dtype_of, require_resolved
from rlsys.types import Completion, TurnStop, VersionSpan


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
    tensor_parallel: int = 1  # processes that divide the model, each with its own device
    running_kv: RunningKV = "recompute"  # what a delivery does with the KV cache of the requests that are running
    chunked_prefill: bool = True
    """False on a CPU: vLLM 0.32 dies of a seeded request whose prefill is cut (CPU generators have no offset)."""
    fp32_head: bool = False  # logits in float32, whatever the weights are
    lora: LoraConfig | None = None  # adapters may be published that are no larger than this
    adapter: str = ""  # folder of the one that it starts with
    sleeps: bool = False  # its device is others' at times, and it has to give back the memory
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
    lora: LoraConfig | None = None,
    adapter: str = "",
    gpu_cache_mb: int | None = None,
    sleeps: bool = False,
) -> EngineSpec:
    """`dtype` "auto" and `running_kv` None are the device's. `engine` is resolved for it. gpu_cache_mb: of an engine on
    a GPU; None leaves it to vLLM. sleeps: it shares its GPU with a rank, in turn."""
    eager = {"enforce_eager": require_resolved(engine.enforce_eager)}
    options = asdict(engine) | eager | ({} if device.torch_device == "cpu" else {"kv_cache_mb": gpu_cache_mb})
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
        lora=lora,
        adapter=adapter,
        sleeps=sleeps and device.gpus_per_actor > 0,
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
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # on a CPU: the worker inside the EngineCore, not a separate process
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


def completion(output: Any) -> Completion:
    """vLLM's CompletionOutput as ours. Raises EngineFailed where a token lacks its log-probability or version."""
    flat = output.logprobs
    logprobs = np.asarray([flat.logprobs[start] for start in flat.start_indices], np.float32)
    spans = tuple(VersionSpan(version=int(s.version), start=s.start, end=s.end) for s in output.weight_versions or ())
    edges = [0] + [span.end for span in spans]
    length = len(output.token_ids)
    if [span.start for span in spans] != edges[:-1] or not edges[-1] == length == len(logprobs):
        raise EngineFailed(f"{length} tokens came with {len(logprobs)} log-probabilities and versions {spans}")
    ids, stop = np.asarray(output.token_ids, np.int32), _turn_stop(output)
    # vLLM writes what ended a text or does not: an end token is no text, so a stop string is put back here.
    text = output.text + output.stop_reason if stop is TurnStop.STOP else output.text
    return Completion(token_ids=ids, logprobs=logprobs, spans=spans, stop=stop, text=text)


def _turn_stop(output: Any) -> TurnStop:
    match output.finish_reason:
        case "stop":  # the reason is the stop string, or another end token's id, or None for the tokenizer's own
            return TurnStop.STOP if isinstance(output.stop_reason, str) else TurnStop.EOS
        case "length":
            return TurnStop.LENGTH
        case "abort":
            return TurnStop.ABORT
    raise EngineFailed(f"a request ended with {output.finish_reason!r}")


class Gauges:
    """Keeps the scheduler's latest numbers; vLLM calls these methods after each engine step."""

    def __init__(self) -> None:
        self.latest = IDLE

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        if scheduler_stats is not None:
            self.latest = EngineStats(
                running=scheduler_stats.num_running_reqs,
                waiting=scheduler_stats.num_waiting_reqs,
                kv_usage=scheduler_stats.kv_cache_usage,
            )

    def log_engine_initialized(self) -> None: ...
