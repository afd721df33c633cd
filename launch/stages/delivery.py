"""The engines get the learner's weights, and prove that they did."""

from __future__ import annotations

import asyncio

from launch.run.evaluate import evaluate
from launch.run.run import Run
from rlsys.config import StageConfig
from rlsys.errors import BadInput

PROBE_TASKS = 4
PROBE_TOKENS = 64


async def first_delivery(run: Run) -> None:
    """The engines get the learner's weights, and prove that they can."""
    assert run.pool_start is not None
    if not run.pool_start.done():
        run.progress.say("waiting for the rollout engines")
    await run.until(asyncio.shield(run.pool_start))
    run.probe = probe(run)
    await run.until(run.canary())
    if run.state.version == 0:
        run.state.version = 1
    await run.until(run.deliver(run.state.version))
    run.progress.say(f"weights delivered and proven: engine-learner gap {run.gap['mismatch/probe_max']:.1e}")


async def measure_before(run: Run, stage: StageConfig) -> None:
    """Held-out accuracy of the weights that a supervised stage begins with, where the run has engines for it."""
    state = run.state
    if run.config.needs_engines(stage) and state.stage_step == 0 and not state.eval_before:
        await first_delivery(run)
        state.eval_before = await run.until(evaluate(run, stage.config, "before"))


async def measure_after(run: Run, stage: StageConfig) -> None:
    """The same of the weights that it ends with."""
    if run.state.version:
        run.state.version += 1  # engines have held other weights under the last number
    if run.config.needs_engines(stage):
        await first_delivery(run)
        run.state.eval_after = await run.until(evaluate(run, stage.config, "after"))


def probe(run: Run) -> tuple[tuple[int, ...], ...]:
    """A few held-out prompts, cut short: what engine and learner are compared on."""
    tasks = run.world.tasks("held_out")[:PROBE_TASKS] or run.world.tasks("train")[:PROBE_TASKS]
    prompts = [run.renderer.prompt_ids(run.world.env(task).first_messages()) for task in tasks]
    length = min(PROBE_TOKENS, run.config.recipe.engine.max_model_len - 1)
    probes = tuple(ids[-length:] for ids in prompts if len(ids) > 1)
    if not probes:
        raise BadInput(
            "the prompts of this environment have fewer than two tokens: engine and learner cannot be compared"
        )
    return probes
