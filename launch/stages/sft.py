"""The `sft` stage: supervised training on the environment's demonstrations, or on the answers of a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial

from envs import make_world
from envs.base import demonstrated
from launch.run.run import Run
from launch.stages.delivery import measure_after
from launch.stages.held_out import answer_loss
from launch.stages.supervised import Prepared, begin_with_data, train_steps
from launch.stages.tokenised import given_sample
from rlsys.config import StageConfig
from rlsys.curriculum import Curriculum
from rlsys.errors import BadInput
from rlsys.packing import make_batch
from rlsys.seeds import derive
from rlsys.types import Sample, Task


async def sft_stage(run: Run, stage: StageConfig) -> None:
    """Answers -> Batch -> learner, `stage.steps` times."""
    if stage.data is not None:
        await from_data(run, stage)
    else:
        await from_demonstrations(run, stage)


async def from_data(run: Run, stage: StageConfig) -> None:
    given = await begin_with_data(run, stage, "supervised steps of {} answers")
    stage, config = given.stage, given.stage.config
    apart = await asyncio.to_thread(given.tokenised.all_of, given.data.held_out, "held-out answers")
    held_out = [sample for answers in apart for sample in answers[0]]

    def prepare(stage_step: int) -> Prepared:
        examples, left_out = given.tokenised.drawn(given.curriculum, stage_step, config.loop.groups_per_step)
        samples = [sample for answers in examples for sample in answers[0]]
        batch = make_batch(samples, tokens_per_row=config.learner.tokens_per_row, version=run.state.version)
        return Prepared(batch, {"data/too_long": left_out})

    await train_steps(run, stage, prepare, partial(answer_loss, run.learner, held_out) if held_out else None)
    await measure_after(run, stage)


async def from_demonstrations(run: Run, stage: StageConfig) -> None:
    tasks, left_out = demonstrable(stage)
    config = stage.config
    curriculum = Curriculum(tasks, seed=derive(config.seed, stage.name))
    await run.begin_stage(stage)
    run.progress.say(
        f"stage {stage.name}: {stage.steps} supervised steps of {config.loop.groups_per_step} demonstrations"
    )
    if left_out:
        run.progress.say(
            f"{len(left_out)} of {len(tasks) + len(left_out)} tasks have no demonstration: {left_out[0]} ..."
        )

    def prepare(stage_step: int) -> Prepared:
        count = config.loop.groups_per_step
        sequences = range(stage_step * count, (stage_step + 1) * count)
        samples = [demonstration(run, stage, curriculum.draw(sequence)[1], sequence) for sequence in sequences]
        return Prepared(make_batch(samples, tokens_per_row=config.learner.tokens_per_row, version=run.state.version))

    await train_steps(run, stage, prepare, held_out_loss(run, stage) if config.eval.every else None)
    await measure_after(run, stage)


def demonstrable(stage: StageConfig) -> tuple[list[Task], list[str]]:
    """The training tasks that the stage's world can demonstrate, and why it cannot the others. Raises BadInput."""
    tasks, left_out = demonstrated(make_world(stage.config.env))
    if not tasks:
        raise BadInput(f"stages.{stage.name}: no training task has a demonstration; the first: {left_out[0]}")
    return tasks, left_out


def demonstration(run: Run, stage: StageConfig, task: Task, sequence: int) -> Sample:
    """One worked episode: a function of the seed and the sequence number alone."""
    world = run.world
    shown = world.demonstration(task, derive(stage.config.seed, "demonstration", sequence))
    env = world.env(task)
    return given_sample(*run.renderer.demonstration(shown.messages, len(env.first_messages()), env.stop_strings))


def held_out_loss(run: Run, stage: StageConfig) -> Callable[[], Awaitable[dict[str, float]]] | None:
    """Of the held-out tasks' demonstrations; None where there is none."""
    samples: list[Sample] = []
    for sequence, task in enumerate(run.world.tasks("held_out")[: stage.config.eval.tasks]):
        with contextlib.suppress(BadInput):  # this one cannot be demonstrated
            samples.append(demonstration(run, stage, task, sequence))
    return partial(answer_loss, run.learner, samples) if samples else None
