"""The loop of every stage that learns from given answers: `sft` and `dpo`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.run.run import Clock, Run
from launch.stages.datasets import Data, data_of, sized
from launch.stages.delivery import measure_before
from launch.stages.tokenised import Tokenised
from rlsys.batch import Batch
from rlsys.config import StageConfig
from rlsys.curriculum import Curriculum
from rlsys.metrics import values
from rlsys.records import Example
from rlsys.seeds import derive


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a stage that learns from a file begins with."""

    stage: StageConfig  # with its number of steps
    data: Data
    tokenised: Tokenised
    curriculum: Curriculum[Example]


async def begin_with_data(run: Run, stage: StageConfig, what: str) -> Given:
    """Open the stage's data, load the learner, measure the weights as they are. `what`: "steps of {} answers"."""
    data = await asyncio.to_thread(data_of, run, stage)
    stage = sized(stage, data)
    await run.begin_stage(stage)
    await measure_before(run, stage)
    run.progress.say(
        f"stage {stage.name}: {stage.steps} {what.format(stage.config.loop.groups_per_step)} "
        f"from {len(data.train)} ({data.train.path.name})"
    )
    curriculum = Curriculum(data.train, seed=derive(stage.config.seed, stage.name))
    return Given(stage=stage, data=data, tokenised=Tokenised(run), curriculum=curriculum)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What one step trains on, and what is worth a place in its row."""

    batch: Batch
    row: Mapping[str, float] = field(default_factory=dict)


async def train_steps(
    run: Run,
    stage: StageConfig,
    prepare: Callable[[int], Prepared],
    held_out: Callable[[], Awaitable[dict[str, float]]] | None = None,
) -> None:
    """`stage.steps` updates. The next batch is made while this one trains.

    prepare: the batch of a stage's step, counted from 0; called in a thread. held_out: measured every `eval.every`
    steps and after the last one.
    """
    clock = Clock()
    state, every = run.state, stage.config.eval.every

    def start(stage_step: int) -> asyncio.Task[Prepared]:
        return asyncio.create_task(asyncio.to_thread(prepare, min(stage_step, stage.steps - 1)))

    if state.stage_step >= stage.steps:
        return
    next_batch = start(state.stage_step)
    while state.stage_step < stage.steps:
        with clock.phase("wait_data"):
            prepared = await run.until(asyncio.shield(next_batch))
        batch = prepared.batch
        next_batch = start(state.stage_step + 1)
        with clock.phase("update"):
            report = await run.complete(run.learner.update(batch))
        state.step += 1
        state.stage_step += 1
        trained = batch.num_loss_tokens if report.applied else 0
        state.trained += trained
        row: dict[str, Any] = {"step": state.step, "stage": stage.name, "stage_step": state.stage_step}
        row |= values(report.metrics) | prepared.row
        if held_out is not None and (state.stage_step % every == 0 or state.stage_step == stage.steps):
            with clock.phase("held_out"):
                row |= await run.complete(held_out())
        row |= clock.close()
        row["tokens/trained"] = trained
        row["tokens/packed"] = batch.num_tokens
        row["tokens/trained_per_s"] = batch.num_tokens / row["time/step"]
        row["wall_s"] = run.wall_s
        run.record(row)
        run.progress.step(row, stage.steps)
        if state.stage_step % stage.config.checkpoint.every == 0 and state.stage_step < stage.steps:
            with clock.phase("checkpoint"):
                await run.complete(run.checkpoint(stage))
        run.check_stop()
    next_batch.cancel()
