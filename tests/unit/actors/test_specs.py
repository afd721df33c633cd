"""What an engine is built from, on a laptop and on a GPU."""

from __future__ import annotations

from pathlib import Path

from actors.specs import EngineStats, engine_environment, make_engine_spec
from rlsys.config.engine import EngineConfig
from rlsys.metrics import merge, values
from rlsys.system.device import DEVICES, resolved_engine

ENGINE = EngineConfig(max_model_len=640, kv_cache_mb=99)


def test_the_device_decides_what_nobody_asked_for() -> None:
    common = {"model_path": "m", "seed": 3, "threads": 2}
    cpu, gpu = (
        make_engine_spec(resolved_engine(ENGINE, DEVICES[name]), DEVICES[name], dtype="auto", **common)
        for name in ("cpu", "cuda")
    )
    assert (cpu.enforce_eager, gpu.enforce_eager) == (True, False)
    assert (cpu.dtype, cpu.kv_cache_mb, cpu.block_size, cpu.chunked_prefill) == ("float32", 99, 32, False)
    assert (gpu.dtype, gpu.kv_cache_mb, gpu.block_size, gpu.chunked_prefill) == ("bfloat16", None, None, True)
    assert not gpu.fp32_head
    assert (cpu.running_kv, gpu.running_kv) == ("recompute", "keep")
    kept = resolved_engine(ENGINE, DEVICES["cpu"])
    assert make_engine_spec(kept, DEVICES["cpu"], dtype="auto", running_kv="keep", **common).running_kv == "keep"
    assert (cpu.max_model_len, cpu.seed, cpu.threads) == (640, 3, 2)
    gpu_engine = resolved_engine(ENGINE, DEVICES["cuda"])
    assert make_engine_spec(gpu_engine, DEVICES["cuda"], dtype="float32", **common).dtype == "float32"


def test_a_model_that_lies_here_is_looked_for_nowhere_else(tmp_path: Path) -> None:
    offline = [engine_environment(3, model).get("HF_HUB_OFFLINE") for model in (str(tmp_path), "hub/name", "")]
    assert offline == ["1", None, None]
    assert engine_environment(3)["OMP_NUM_THREADS"] == "3"


def test_the_gauges_of_several_engines_become_one_row() -> None:
    busy, idle = EngineStats(running=3, waiting=2, kv_usage=0.5), EngineStats(running=1, waiting=0, kv_usage=0.75)
    assert values(merge([busy.row(), idle.row()])) == {
        "engine/running": 4,
        "engine/waiting": 2,
        "engine/kv_usage": 0.75,
    }
