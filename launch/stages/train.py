"""All stages of a recipe, in order."""

from __future__ import annotations

import time

from envs import make_world
from launch.run.run import Run
from launch.stages.base import stage_of


async def train(run: Run) -> None:
    """Each stage begins with the weights of the one before; a resumed run enters the stage that it was in."""
    state, stages = run.state, run.config.stages
    while state.stage_index < len(stages):
        stage = stages[state.stage_index]
        started = time.monotonic()
        run.world = make_world(stage.config.env)
        await stage_of(stage.kind).run(run, stage)
        await run.cancel_background()
        state.stage_s[stage.name] = state.stage_s.get(stage.name, 0.0) + time.monotonic() - started
        state.stage_index, state.stage_step = state.stage_index + 1, 0
        state.next_sequence, state.open_sequences, state.reference, run.buffer = 0, [], [], None
        run.reissue.clear()
        await run.checkpoint(stage)
