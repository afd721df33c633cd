"""Checkpoints of a run: copied at one moment while nothing is trained, written during the steps that follow, restored.

A checkpoint exists when every rank has written its files and the driver has compared nothing less than all of them into
`driver.json` and renamed the folder. One is written at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from launch.driver.checkpoints.beginning import KEPT
from launch.driver.checkpoints.checkpoint import DriverState, step_of
from launch.driver.checkpoints.disk_space import room_for, when_full
from launch.driver.checkpoints.model_card import example_prompt, renew_results, write_card, write_training_facts
from launch.driver.run.run import Run, health
from rlsys.config.output import CheckpointConfig
from rlsys.config.recipe import StageConfig
from rlsys.errors import LearnerLost, RunFailed, describe_error

FULL_BYTES = 2**20  # less room than this on a disk on which saving fails is why


def checkpoint_is_due(run: Run, stage: StageConfig) -> bool:
    since_s = time.monotonic() - run.saved_at
    return is_due(stage.config.checkpoint, run.state.stage_step, stage.steps, since_s)


def is_due(config: CheckpointConfig, stage_step: int, steps: int, since_s: float) -> bool:
    """After so many steps of the stage's, and seconds since the last checkpoint or the stage's beginning.

    After the last step too: the evaluation that follows may take long, and be killed.
    """
    by_steps = config.every is not None and stage_step % config.every == 0
    by_time = config.every_s is not None and since_s >= config.every_s
    return by_steps or by_time or stage_step == steps


async def checkpoint(run: Run, stage: StageConfig) -> None:
    """Copy everything that the run needs to continue from here; its files follow (`wait_written`).

    The driver's part is copied at one moment: the feeder continues while the learner copies. Where no step was taken
    since the newest checkpoint, its weights are these.
    """
    await wait_written(run)
    state = state_to_save(run, stage)
    newest = run.dir.newest()
    if newest is not None and step_of(newest) == state.step:
        run.dir.renew_checkpoint(newest, state)
        renew_results(newest / "hf", run.dir.evaluations())
        return
    folder = run.dir.begin_checkpoint(state.step)
    with _remove_on_failure(run, folder):
        await run.learner.snapshot(folder, run.model_path)
    run.saved_at = time.monotonic()
    run.tasks.writing = asyncio.create_task(_write(run, folder, state, stage))


def state_to_save(run: Run, stage: StageConfig) -> DriverState:
    run.journal.commit()
    state = copy.deepcopy(replace(run.state, curriculum={}))
    state.curriculum = dict(run.state.curriculum)  # its values are long, and never change
    if run.active.groups is not None:
        run.active.groups.save(state, stage.name)
    state.mark, state.chain = run.journal.end()
    state.health = [asdict(finding) for finding in health(run)]
    state.wall_s, state.lost_tokens, state.restarts = run.wall_s, run.lost_tokens, run.restarts
    return state


def describe(run: Run, stage: StageConfig, model: Path, step: int) -> None:
    """The card of a model that is saved, and what programs may want to know of it."""
    if (model / "config.json").is_file():
        prompt = example_prompt(run.active.world)
        write_training_facts(model, run.config, stage, prompt[1])
        write_card(model, run.config, stage, step, prompt, run.dir.evaluations())


async def wait_written(run: Run) -> None:
    """Until the checkpoint that is being written is there. Raises what kept it from it, once."""
    if run.tasks.writing is not None:
        writing = run.tasks.writing
        await asyncio.wait({writing})  # if this wait is cancelled, the writing continues
        if run.tasks.writing is writing:
            run.tasks.writing = None
            writing.result()


async def save_at_stop(run: Run) -> None:
    """The newest state, unless a checkpoint already holds it or the weights are no longer known.

    A save that fails is reported and costs the steps since the last checkpoint: the run can continue from there.
    """
    try:
        async with asyncio.timeout(run.tasks.grace_s):
            await wait_written(run)
            newest = run.dir.newest()
            if run.tasks.gave_up:
                run.progress.say("the work in progress took too long to wait for: the last checkpoint stands")
            elif run.state.step > (step_of(newest) if newest else 0):
                if run.cards.alternate:  # an engine that is starting would keep the ranks from their cards
                    await run.pool.stop()
                await checkpoint(run, run.active.stage)
                await wait_written(run)
    except TimeoutError:
        limit = f"{run.tasks.stop_deadline_s:g} s of the stop (checkpoint.stop_deadline_s)"
        run.progress.say(f"no checkpoint was written within {limit}: the last one stands")
    except Exception as error:
        run.progress.say(f"no checkpoint was written ({describe_error(error)}): the last one stands")


async def end_writing(run: Run) -> None:
    """However the run ends: what is being written gets what is left of the deadline, and then makes no checkpoint."""
    with contextlib.suppress(Exception):  # the run has its reason to end already
        async with asyncio.timeout(run.tasks.grace_s):
            await wait_written(run)
    if run.tasks.writing is not None:
        run.tasks.writing.cancel()
        await asyncio.gather(run.tasks.writing, return_exceptions=True)
        run.tasks.writing = None


async def _write(run: Run, folder: Path, state: DriverState, stage: StageConfig) -> None:
    unwanted, active, began = threading.Event(), run.active, time.monotonic()
    try:
        with _remove_on_failure(run, folder):
            await run.learner.write()
            describe(run, stage, folder / "hf", state.step)

            def seal(name: str, digest: str) -> None:
                run.journal.seal(name, digest)
                run.journal.commit()

            args = (folder, state, stage.config.checkpoint.keep, unwanted.is_set, active.reference, seal)
            final = await asyncio.to_thread(run.dir.commit_checkpoint, *args)
        if final is not None:
            run.learner.life.note_progress()
            run.events.add("checkpoint", f"{final.name} is written", seconds=time.monotonic() - began)
        if final is not None and active.reference is not None:
            active.reference = final / KEPT  # the one it was linked from may be gone by now
    except asyncio.CancelledError:
        unwanted.set()  # a thread is not cancelled: it ends by itself, and makes no checkpoint
        raise


@contextlib.contextmanager
def _remove_on_failure(run: Run, folder: Path) -> Iterator[None]:
    """Half a checkpoint is worth nothing, and a full disk needs its room. OSError where the disk is full."""
    try:
        yield
    except Exception as error:
        full = shutil.disk_usage(folder).free < FULL_BYTES
        shutil.rmtree(folder, ignore_errors=True)
        if full:  # torch says "unexpected pos 5781888 vs 5781776"
            cure = when_full(room_for(run.config, run.device))
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}{cure}", str(folder)) from error
        raise


async def restore(run: Run, lost: LearnerLost) -> None:
    """After the death of a rank: all ranks are started again in their places, with the newest checkpoint.

    What a resumed run does is done within the process, while engines and services live on; without a checkpoint
    from the beginning. The steps since are taken again. Groups that were being played are given up and their prompts
    started again, so none is older than the lag allows. The number of a version is never given twice: engines get the
    restored weights as a new one.

    Raises RunFailed when it happened too often since that checkpoint was written, and LearnerLost when the ranks do not
    come back.
    """
    with contextlib.suppress(Exception):  # what the ranks had not written is lost; the rest becomes a checkpoint
        await wait_written(run)
    newest = run.dir.newest()
    step = step_of(newest) if newest is not None else 0
    if run.learner.life.exhausted:
        most = run.learner.life.max_restarts
        times = f"; the ranks were started again {most} times since step {step} (learner.max_restarts)"
        raise RunFailed(f"{lost}{times if most else ''}; the run can be resumed from its last checkpoint")
    where = f"step {step}" if newest is not None else "the beginning"
    detected_at, groups = time.monotonic(), run.active.groups
    run.note("lost", f"{lost}: its ranks are started again and continue from {where}", who="learner")
    num_groups = len(groups.buffer.open_tickets) if groups is not None else None
    await run.tasks.cancel_background()
    run.tasks.forget_errors()
    if newest is not None:
        await run.tasks.until(asyncio.to_thread(run.dir.verify, newest, run.progress.say))
    rewind(run, run.dir.load_state(newest) if newest is not None else DriverState(), str(lost))
    await run.tasks.until(run.learner.restart())
    after = time.monotonic() - detected_at
    text = f"the learner's ranks are there again, after {after:.1f} s"
    run.note("restart", text, who="learner", recovered_s=after, groups=num_groups)


def rewind(run: Run, state: DriverState, why: str) -> None:
    """Set the driver back to a checkpoint's state, except for the weight version, which is never given twice."""
    stage, step = run.active.stage, run.state.step
    if run.state.version:
        state.version = run.state.version + 1
    run.state, run.before_row = state, None
    run.dir.rewind_metrics(state.step)
    run.journal.go_back(state.mark)
    run.dir.seal_newest(run.journal)
    run.journal.note(stage.name, step, f"{why}: back to step {state.step}")
    run.enter_stage()
