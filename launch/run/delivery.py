"""The first delivery of a stage: the engines get the learner's weights, and prove that they can."""

from __future__ import annotations

import asyncio

from launch.run.run import Run
from rlsys.errors import BadInput

PROBE_TASKS = 4
PROBE_TOKENS = 64


async def first_delivery(run: Run) -> None:
    """Wait for the engines to start, show that a delivery changes what they say, then deliver."""
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
