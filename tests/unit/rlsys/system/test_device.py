"""What a recipe leaves to the device, and who may see it unfilled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rlsys.config.cluster import ClusterConfig
from rlsys.config.engine import EngineConfig
from rlsys.config.learner import LearnerConfig
from rlsys.config.loop import LoopConfig
from rlsys.config.model import ModelConfig
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.config.rollout import RolloutConfig
from rlsys.system.device import (
    DEVICES,
    FILLED_IN,
    RoundingUnits,
    choose,
    describe_filled_keys,
    gpu_env,
    require_resolved,
    resolve,
    resolve_run,
    rounding_units,
)


def values(recipe: RecipeConfig) -> list[Any]:
    return [getattr(getattr(recipe, part), key) for part, key in FILLED_IN]


def test_a_cpu_is_what_it_was_and_a_gpu_is_not_starved() -> None:
    plain = RecipeConfig()
    assert values(plain) == [None] * len(FILLED_IN)
    assert values(resolve(plain, DEVICES["cpu"])) == [False, True, 1, 4096, True, "recompute", 256, 256]
    assert values(resolve(plain, DEVICES["cuda"])) == [True, False, 8, 16384, False, "keep", 8192, 256]


def test_what_no_key_says_is_of_the_device() -> None:
    cpu, gpu = DEVICES["cpu"], DEVICES["cuda"]
    assert [(device.torch_device, device.dtype, device.dist_backend) for device in (cpu, gpu)] == [
        ("cpu", "float32", "gloo"),
        ("cuda", "bfloat16", "nccl"),
    ]
    assert (cpu.gpus_per_actor, gpu.gpus_per_actor) == (0, 1)  # 2 would leave every other GPU idle
    assert (cpu.block_size, gpu.block_size) == (32, None)  # vLLM's 128 on CPUs shares no short prompt
    assert (cpu.chunked_prefill, gpu.chunked_prefill) == (cpu.overlap_comm, gpu.overlap_comm) == (False, True)
    assert choose("auto", 0) is choose("cpu", 8) is cpu and choose("auto", 1) is choose("cuda", 0) is gpu
    assert gpu_env(0) == {"CUDA_VISIBLE_DEVICES": ""} and gpu_env(0.5) == {}


def test_the_line_of_what_a_device_fills_in_names_what_the_recipe_leaves() -> None:
    assert describe_filled_keys(resolve(RecipeConfig(), DEVICES["cpu"]), DEVICES["cuda"]).startswith(
        "cuda: every key is given"
    )
    text = describe_filled_keys(RecipeConfig(learner=LearnerConfig(tokens_per_row=99)), DEVICES["cuda"])
    assert "engine.enforce_eager=false" in text and "tokens_per_row" not in text


def test_what_is_given_stays() -> None:
    recipe = RecipeConfig(
        model=ModelConfig(gradient_checkpointing=False),
        engine=EngineConfig(enforce_eager=True),
        rollout=RolloutConfig(threads=3, in_flight=5),
        learner=LearnerConfig(tokens_per_row=17, rows_in_order=True),
        loop=LoopConfig(running_kv="recompute"),
        cluster=ClusterConfig(object_store_mb=80),
    )
    assert resolve(recipe, DEVICES["cuda"]) == recipe
    assert resolve(resolve(RecipeConfig(), DEVICES["cpu"]), DEVICES["cuda"]) == resolve(RecipeConfig(), DEVICES["cpu"])


@pytest.mark.parametrize(
    ("device", "dtype", "vllm", "products", "rest", "cached"),
    [
        ("cpu", "auto", {}, 2**-23, 2**-23, None),
        ("cpu", "bfloat16", {}, 2**-8, 2**-8, None),
        ("cuda", "auto", {"kv_cache_dtype": "auto"}, 2**-8, 2**-8, None),
        ("cuda", "auto", {"quantization": "fp8"}, 2**-4, 2**-8, None),
        ("cuda", "auto", {"kv_cache_dtype": "fp8"}, 2**-8, 2**-8, 2**-4),
    ],
)
def test_the_unit_of_rounding_goes_by_the_dtype_and_by_what_the_engine_quantises(
    device: str, dtype: Any, vllm: dict[str, Any], products: float, rest: float, cached: float | None
) -> None:
    recipe = RecipeConfig(model=ModelConfig(dtype=dtype), engine=EngineConfig(vllm=vllm))
    assert rounding_units(recipe, DEVICES[device]) == RoundingUnits(products=products, rest=rest, cached=cached)


def test_every_stage_is_resolved_by_what_it_says_itself() -> None:
    own = RecipeConfig(learner=LearnerConfig(tokens_per_row=99))
    stages = tuple(StageConfig(name=name, kind="rl", steps=1, config=own) for name in "ab")
    plain = replace(own, learner=LearnerConfig())
    config = resolve_run(RunConfig(recipe=plain, stages=stages), DEVICES["cuda"])
    assert config.recipe.learner.tokens_per_row == 16384
    assert [values(stage.config)[1:4] for stage in config.stages] == [[False, 8, 99]] * 2


def test_an_unresolved_value_is_a_mistake_of_ours_and_no_default() -> None:
    assert require_resolved(False) is False
    with pytest.raises(RuntimeError, match="before its device is known"):
        require_resolved(None)
