"""What an engine is built from, out of a configuration and the device that it runs on."""

from __future__ import annotations

from actors.engine import EngineSpec
from rlsys.config import EngineConfig
from rlsys.device import Device


def make_engine_spec(
    engine: EngineConfig, device: Device, *, model_path: str, dtype: str, seed: int, threads: int
) -> EngineSpec:
    """`dtype` "auto" is the device's."""
    return EngineSpec(
        model_path=model_path,
        dtype=device.dtype if dtype == "auto" else dtype,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        seed=seed,
        prefix_cache=engine.prefix_cache,
        enforce_eager=engine.enforce_eager,
        threads=threads,
        kv_cache_mb=engine.kv_cache_mb if device.torch_device == "cpu" else None,
        gpu_memory_utilization=engine.gpu_memory_utilization,
        block_size=device.block_size,
        chunked_prefill=device.chunked_prefill,
    )
