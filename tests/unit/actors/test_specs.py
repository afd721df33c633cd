"""What an engine is built from, on a laptop and on a GPU."""

from __future__ import annotations

from actors.specs import make_engine_spec
from rlsys.config import EngineConfig
from rlsys.device import DEVICES

ENGINE = EngineConfig(max_model_len=640, kv_cache_mb=99)


def test_the_device_decides_what_nobody_asked_for() -> None:
    common = {"model_path": "m", "seed": 3, "threads": 2}
    cpu, gpu = (make_engine_spec(ENGINE, DEVICES[name], dtype="auto", **common) for name in ("cpu", "cuda"))
    assert (cpu.dtype, cpu.kv_cache_mb, cpu.block_size, cpu.chunked_prefill) == ("float32", 99, 32, False)
    assert (gpu.dtype, gpu.kv_cache_mb, gpu.block_size, gpu.chunked_prefill) == ("bfloat16", None, None, True)
    assert (cpu.max_model_len, cpu.seed, cpu.threads) == (640, 3, 2)
    assert make_engine_spec(ENGINE, DEVICES["cuda"], dtype="float32", **common).dtype == "float32"
