"""The one table of what differs between a laptop and a GPU node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RunningKV = Literal["keep", "recompute"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    torch_device: str
    dtype: str  # of policy weights, in the learner and in the engine
    dist_backend: str
    attention: str  # transformers attention key for packed rows
    overlap_comm: bool  # DeepSpeed's communication streams
    block_size: int | None  # of the engine's KV cache; None leaves it to vLLM
    chunked_prefill: bool
    gpus_per_actor: int
    running_kv: RunningKV  # where `loop.running_kv` does not say


DEVICES: dict[str, Device] = {
    # fp32: bf16 is emulated on most CPUs. Blocks of 32: vLLM's CPU default of 128 shares no short prompt.
    # Recompute: contexts are short here, and engine and learner then agree to rounding on every token.
    "cpu": Device(
        torch_device="cpu",
        dtype="float32",
        dist_backend="gloo",
        attention="packed_sdpa",
        overlap_comm=False,
        block_size=32,
        chunked_prefill=False,
        gpus_per_actor=0,
        running_kv="recompute",
    ),
    "cuda": Device(
        torch_device="cuda",
        dtype="bfloat16",
        dist_backend="nccl",
        attention="flash_attention_2",
        overlap_comm=True,
        block_size=None,
        chunked_prefill=True,
        gpus_per_actor=1,
        running_kv="keep",
    ),
}


def choose(name: str, num_gpus: float) -> Device:
    """`auto` means the GPU wherever the cluster has one."""
    if name == "auto":
        name = "cuda" if num_gpus >= 1 else "cpu"
    return DEVICES[name]
