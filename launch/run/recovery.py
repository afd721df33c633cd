"""A learner rank died, or its node: all ranks are started again in their places, with the weights of a checkpoint.

What a resumed run does is done within the process, beside engines and services that live on. The steps since that
checkpoint are taken again. Groups that were being played are given up and their prompts started anew, so none is older
than the lag allows. The number of a version is never given twice: engines get the restored weights as a new one.
"""

from __future__ import annotations

import asyncio
import contextlib

from launch.checkpoints.checkpoint import DriverState, step_of
from launch.run.run import Run
from launch.run.saving import wait_written
from rlsys.errors import LearnerLost, RunFailed


async def restore(run: Run, lost: LearnerLost) -> None:
    """To the newest checkpoint, or to the beginning where there is none yet. Raises RunFailed when it happened too
    often since that was written, and LearnerLost when the ranks do not come back."""
    with contextlib.suppress(Exception):  # what the ranks had not written is lost; the rest becomes a checkpoint
        await wait_written(run)
    newest = run.dir.newest()
    step = step_of(newest) if newest is not None else 0
    if run.learner.life.exhausted:
        most = run.learner.life.max_restarts
        times = f"; the ranks were started again {most} times since step {step} (learner.max_restarts)"
        raise RunFailed(f"{lost}{times if most else ''}; the run can be resumed from its last checkpoint")
    where = f"step {step}" if newest is not None else "the beginning"
    run.progress.say(f"{lost}: its ranks are started again and go on from {where}")
    await run.tasks.cancel_background()
    run.tasks.forget_errors()
    if newest is not None:
        await run.tasks.until(asyncio.to_thread(run.dir.verify, newest, run.progress.say))
    rewind(run, run.dir.load_state(newest) if newest is not None else DriverState(), str(lost))
    await run.tasks.until(run.learner.restart())


def rewind(run: Run, state: DriverState, why: str) -> None:
    """The driver stands where it stood at a checkpoint, but for the number of versions."""
    stage, step = run.active.stage, run.state.step
    if run.state.version:
        state.version = run.state.version + 1
    run.state, run.before_row = state, None
    run.dir.rewind_metrics(state.step)
    run.journal.go_back(state.mark)
    run.journal.note(stage.name, step, f"{why}: back to step {state.step}")
    run.enter_stage()
