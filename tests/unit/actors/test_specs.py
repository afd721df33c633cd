"""What an engine is built from, on a laptop and on a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.specs import IDLE, EngineFailed, EngineStats, completion, engine_environment, make_engine_spec
from rlsys.config.engine import EngineConfig
from rlsys.metrics import merge, values
from rlsys.system.device import DEVICES, resolve_engine
from rlsys.types import TurnStop

ENGINE = EngineConfig(max_model_len=640, kv_cache_mb=99)


def test_the_device_decides_what_nobody_asked_for() -> None:
    common = {"model_path": "m", "seed": 3, "threads": 2}
    cpu, gpu = (
        make_engine_spec(resolve_engine(ENGINE, DEVICES[name]), DEVICES[name], dtype="auto", **common)
        for name in ("cpu", "cuda")
    )
    assert (cpu.enforce_eager, gpu.enforce_eager) == (True, False)
    assert (cpu.dtype, cpu.kv_cache_mb, cpu.block_size, cpu.chunked_prefill) == ("float32", 99, 32, False)
    assert (gpu.dtype, gpu.kv_cache_mb, gpu.block_size, gpu.chunked_prefill) == ("bfloat16", None, None, True)
    assert not gpu.fp32_head
    assert (cpu.running_kv, gpu.running_kv) == ("recompute", "keep")
    engine = resolve_engine(ENGINE, DEVICES["cpu"])
    assert make_engine_spec(engine, DEVICES["cpu"], dtype="auto", running_kv="keep", **common).running_kv == "keep"
    assert (cpu.max_model_len, cpu.seed, cpu.threads) == (640, 3, 2)
    gpu_engine = resolve_engine(ENGINE, DEVICES["cuda"])
    assert make_engine_spec(gpu_engine, DEVICES["cuda"], dtype="float32", **common).dtype == "float32"


def test_a_model_that_lies_here_is_looked_for_nowhere_else(tmp_path: Path) -> None:
    offline = [engine_environment(3, model).get("HF_HUB_OFFLINE") for model in (str(tmp_path), "hub/name", "")]
    assert offline == ["1", None, None]
    assert engine_environment(3)["OMP_NUM_THREADS"] == "3"


def test_the_gauges_of_several_engines_become_one_row() -> None:
    assert set(values(IDLE.row()).values()) == {0}
    busy, idle = EngineStats(running=3, waiting=2, kv_usage=0.5), EngineStats(running=1, waiting=0, kv_usage=0.75)
    assert values(merge([busy.row(), idle.row()])) == {
        "engine/running": 4,
        "engine/waiting": 2,
        "engine/kv_usage": 0.75,
    }


def output(*spans: tuple[str, int, int], **changes: Any) -> SimpleNamespace:
    """Three tokens; the second came with the log-probability of the likeliest one behind its own."""
    flat = SimpleNamespace(logprobs=[-0.5, -2.0, -0.25, -1.0], start_indices=[0, 1, 3])
    versions = [SimpleNamespace(version=version, start=start, end=end) for version, start, end in spans]
    fields = {"finish_reason": "stop", "stop_reason": None} | changes
    return SimpleNamespace(token_ids=[5, 6, 7], logprobs=flat, weight_versions=versions, text="abc", **fields)


def test_each_token_has_its_own_log_probability_and_the_version_that_sampled_it() -> None:
    turn = completion(output(("3", 0, 2), ("4", 2, 3)))
    assert turn.token_ids.tolist() == [5, 6, 7] and turn.logprobs.tolist() == [-0.5, -2.0, -1.0]
    assert [(span.version, span.start, span.end) for span in turn.spans] == [(3, 0, 2), (4, 2, 3)]


@pytest.mark.parametrize(
    "spans",
    [(), (("3", 0, 2),), (("3", 0, 1), ("4", 2, 3)), (("3", 1, 3),), (("3", 0, 4),)],
    ids=["none", "too short", "a gap", "a late start", "too long"],
)
def test_a_token_without_a_version_is_refused(spans: tuple[tuple[str, int, int], ...]) -> None:
    with pytest.raises(EngineFailed, match="3 tokens came with 3 log-probabilities and versions"):
        completion(output(*spans))


@pytest.mark.parametrize(
    ("finish", "reason", "stop"),
    [
        ("stop", "</answer>", TurnStop.STOP),
        ("stop", 151645, TurnStop.EOS),
        ("stop", None, TurnStop.EOS),
        ("length", None, TurnStop.LENGTH),
        ("abort", None, TurnStop.ABORT),
    ],
)
def test_why_a_turn_ended(finish: str, reason: Any, stop: TurnStop) -> None:
    turn = completion(output(("3", 0, 3), finish_reason=finish, stop_reason=reason))
    assert turn.stop is stop and turn.text == ("abc</answer>" if stop is TurnStop.STOP else "abc")


def test_an_end_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(EngineFailed, match="'repetition'"):
        completion(output(("3", 0, 3), finish_reason="repetition"))
