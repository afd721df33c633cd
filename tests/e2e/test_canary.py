"""The start-up canary with real engines and a real learner: it passes while an engine is healthy, and not once the
engine is silently broken.

The model has a tied head, which vLLM's reload on a CPU leaves stale unless the learner sends it under its own name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from actors.pool import RolloutPool
from launch.driver.run import wire
from launch.driver.run.weight_sync import WeightSync
from learners.algorithms.sft import SFTConfig
from rlsys.config.engine import EngineConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.config.rollout import RolloutConfig
from rlsys.errors import RunFailed
from rlsys.system.device import resolve, rounding_units
from rlsys.system.weight_folder import WeightFolder
from tests.device import RAY_CPUS, device, name, need_gpus
from tests.e2e.tiny_models import FAULT, save_tiny
from tests.fakes.parts import OneNode

HERE = Path(__file__).resolve().parent
PROBE = (tuple(range(5, 45)), tuple(range(60, 100)))
FAULTS = ("keeps its old weights", "keeps its old head")


def recipe() -> RecipeConfig:
    engine = EngineConfig(kv_cache_mb=64, gpu_memory_utilization=0.15)
    timed = RolloutConfig(episode_timeout_s=300)  # it has no environment to derive it from
    return resolve(RecipeConfig(engine=engine, rollout=timed, algorithm=SFTConfig()), device())


def close(sync: WeightSync) -> bool:
    """Whether a healthy engine says what the learner says, to rounding; in bfloat16 by the limit of a run."""
    if name() == "cpu":
        return sync.gap["mismatch/probe_max"] < 1e-3
    print(f"gap between engine and learner: {sync.gap}")
    return sync.gap["mismatch/probe_mean"] <= sync.gap["mismatch/probe_limit"]


@pytest.fixture(autouse=True, scope="module")
def cluster() -> Iterator[None]:
    options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": 100 << 20, "log_to_driver": False}
    ray.init(address="local", num_cpus=RAY_CPUS, **options)
    yield
    ray.shutdown()


def make_pool(model_path: Path, weights: Path, fault: Path) -> RolloutPool:
    """One worker, whose engine loads weights as the file `fault` says."""
    plain = wire.pool(recipe(), device(), str(model_path), "", {})
    (spec,) = [worker.spec for worker in plain.workers]
    spec = replace(spec, engine=replace(spec.engine, extension="tests.e2e.tiny_models.Faulty"))
    variables = plain.options.env_vars | {"PYTHONPATH": str(HERE.parents[1]), FAULT: str(fault)}
    distributor: Any = OneNode(WeightFolder(weights))
    return RolloutPool([spec], replace(plain.options, env_vars=variables, run=""), distributor=distributor)


def make_sync(learner: Any, pool: RolloutPool) -> WeightSync:
    sync = WeightSync(learner, pool, rounding_units(recipe(), device()))
    sync.probe = PROBE
    return sync


@pytest.mark.slow
def test_the_canary_passes_a_healthy_engine_and_catches_one_that_keeps_old_weights_or_an_old_head(
    tmp_path: Path,
) -> None:
    need_gpus(2)
    model_path = save_tiny(tmp_path / "model", "qwen3_tied", seed=0)
    fault = tmp_path / "fault"
    fault.write_text("")

    async def play() -> None:
        learner, config = wire.learner(recipe(), device()), recipe()
        pools = [make_pool(model_path, tmp_path / "weights", fault) for _ in FAULTS]

        async def begin() -> None:
            await learner.start()
            await learner.begin(str(model_path), config.learner, config.algorithm, total_steps=1, temperature=1.0)

        try:
            for defect, pool in zip(FAULTS, pools, strict=True):  # in turn: on two cores that is faster
                await asyncio.gather(pool.start(), *([begin()] if pool is pools[0] else []))
                sync = make_sync(learner, pool)
                await sync.canary()
                assert close(sync)
                await sync.publish(await sync.export(0))  # and back
                assert close(sync)
                fault.write_text(defect)
                with pytest.raises(RunFailed, match="does not compute what the learner computes"):
                    await make_sync(learner, pool).canary()
                    pytest.fail(f"an engine that {defect} passed")
                fault.write_text("")
                await pool.stop()  # its GPU is for the next one
        finally:
            await asyncio.gather(*(pool.stop() for pool in pools))
            await learner.stop()

    asyncio.run(play())
