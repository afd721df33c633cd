"""The `rl` stage: the asynchronous loop.

    feeder      draws tasks, waits for a slot, journals, starts a group      unblocked by the settler's release
    groups      play on the rollout workers, land in the buffer              unblocked by the engines
    stepper     waits for a batch, updates the learner, exports              unblocked by groups landing
    settler     delivers the weights, frees the slots, writes the row        one at a time, beside the next step's wait

`rl_stage` is the stepper; the others are background tasks whose error ends the stage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from actors.pool import Publication
from envs.services.stats import ToolStats
from envs.services.stats import merge as merge_stats
from launch.run import wire
from launch.run.evaluate import evaluate
from launch.run.run import Clock, Run, StopRequested
from launch.stages.delivery import first_delivery
from learners.algorithms import make_algorithm
from rlsys.buffer import SlotBuffer
from rlsys.config import StageConfig
from rlsys.curriculum import Curriculum
from rlsys.harvest import Harvest, check_failures, harvest_groups
from rlsys.metrics import Metrics, merge, values
from rlsys.packing import make_batch
from rlsys.rollout import RolloutPlan
from rlsys.seeds import derive
from rlsys.types import Group, Ticket

SETTLE_DEADLINE_S = 10.0  # of the last step's delivery and row when the run is stopped


async def rl_stage(run: Run, stage: StageConfig) -> None:
    """Groups -> Batch -> learner -> new weights, `stage.steps` times."""
    config, state = stage.config, run.state
    algorithm = make_algorithm(config.algorithm)
    await run.begin_stage(stage)
    await first_delivery(run)
    if not state.eval_before:
        state.eval_before = await run.until(evaluate(run, config, "before"))
    run.progress.say(
        f"stage {stage.name}: {stage.steps} steps of {config.loop.groups_per_step} groups x {config.loop.group_size}, "
        f"at most {config.loop.slots} groups open"
    )
    buffer = SlotBuffer(
        groups_per_step=config.loop.groups_per_step,
        max_policy_lag=config.loop.max_policy_lag,
        live_version=state.version,
    )
    run.buffer = buffer
    run.spawn(feed(run, stage, buffer))
    settled: asyncio.Task[None] | None = None
    clock = Clock()
    try:
        while state.stage_step < stage.steps:
            with clock.phase("wait_rollout"):
                groups = await run.until(buffer.take(state.version))
            with clock.phase("build"):
                longest = config.rollout.max_response_tokens or config.engine.max_model_len
                harvest = harvest_groups(
                    groups, algorithm, longest, version=state.version, max_token_lag=config.loop.max_token_lag
                )
                check_failures(groups, config.loop.max_failed_share)
            with clock.phase("settle_previous"):
                if settled is not None:
                    await run.until(asyncio.shield(settled))
            metrics: list[Metrics] = [harvest.metrics]
            trained, applied = 0, False
            if harvest.samples:
                batch = make_batch(
                    harvest.samples, config.learner.tokens_per_row, state.version, minibatches=algorithm.minibatches
                )
                with clock.phase("update"):
                    report = await run.complete(run.learner.update(batch))
                metrics.append(report.metrics)
                applied, trained = report.applied, batch.num_loss_tokens if report.applied else 0
            # From here to the end of `account` nothing may wait: the weights, the journal and the state are one.
            state.step += 1
            state.stage_step += 1
            state.trained += trained
            buffer.trained()
            account(run, stage, harvest)
            publication: Publication | None = None
            if applied:  # a step without signal publishes nothing: versions count weights, not steps
                state.version += 1
                with clock.phase("export"):
                    publication = await run.complete(run.export(state.version))
            row: dict[str, Any] = {
                "step": state.step,
                "stage": stage.name,
                "stage_step": state.stage_step,
                "version": state.version,
            }
            row |= values(merge(metrics)) | {"tokens/trained": trained} | clock.close()
            settled = run.spawn(settle(run, stage, buffer, groups, harvest, row, publication))
            if state.stage_step % config.checkpoint.every == 0 and state.stage_step < stage.steps:
                with clock.phase("checkpoint"):
                    await run.until(asyncio.shield(settled))
                    await run.complete(run.checkpoint(stage))
            run.check_stop()
        if settled is not None:
            await run.until(asyncio.shield(settled))
    except StopRequested:
        if settled is not None:  # its step was taken: its row and its trajectories belong to it
            _, late = await asyncio.wait({settled}, timeout=SETTLE_DEADLINE_S)
            run.gave_up = run.gave_up or bool(late)  # without its row the step is taken again from the last checkpoint
        raise
    state.eval_after = await run.until(evaluate(run, config, "after"))


# -- the feeder -----------------------------------------------------------------------------------------------------


async def feed(run: Run, stage: StageConfig, buffer: SlotBuffer) -> None:
    """Start what an earlier process left open, then every further sequence of the stage, as slots come free."""
    config, state = stage.config, run.state
    curriculum = Curriculum(run.world.tasks("train"), seed=derive(config.seed, stage.name))
    plan = wire.rollout_plan(
        config,
        stage.name,
        group_size=config.loop.group_size,
        temperature=config.rollout.temperature,
        services=run.services,
    )
    total = stage.steps * config.loop.groups_per_step
    again = set(state.open_sequences)
    run.reissue.extend(sorted(again))
    while run.reissue or state.next_sequence < total:
        live = await buffer.admit()
        sequence = run.reissue.popleft() if run.reissue else state.next_sequence
        epoch, task = curriculum.draw(sequence)
        attempt = int(sequence in again)
        ticket = Ticket(sequence=sequence, epoch=epoch, task=task, attempt=attempt, start_version=live)
        run.journal.dispatch(stage.name, ticket)
        buffer.start(ticket)
        state.next_sequence = max(state.next_sequence, sequence + 1)
        run.spawn(_play(run, stage, buffer, ticket, plan))
    await buffer.end()


async def _play(run: Run, stage: StageConfig, buffer: SlotBuffer, ticket: Ticket, plan: RolloutPlan) -> None:
    group = await run.pool.run(ticket, plan, on_retry=lambda retried: run.journal.dispatch(stage.name, retried))
    await buffer.finish(group)


# -- the settler ------------------------------------------------------------------------------------------------------


def account(run: Run, stage: StageConfig, harvest: Harvest) -> None:
    """Into the journal and the driver's state: these groups are done with, in this step."""
    state = run.state
    for sequence, outcome in sorted(harvest.outcomes.items()):
        run.journal.outcome(stage.name, sequence, outcome, step=state.step)
    state.lag_max = max(state.lag_max, *harvest.lags, 0)
    state.lag_sum += sum(harvest.lags)
    state.lag_count += len(harvest.lags)
    for kind, count in harvest.failures.items():
        state.failures[kind] = state.failures.get(kind, 0) + count
    if harvest.rewards:
        state.reward_last = sum(harvest.rewards) / len(harvest.rewards)
        state.reward_first = state.reward_last if state.reward_first is None else state.reward_first


async def settle(
    run: Run,
    stage: StageConfig,
    buffer: SlotBuffer,
    groups: Sequence[Group],
    harvest: Harvest,
    row: dict[str, Any],
    publication: Publication | None,
) -> None:
    """The weights go live, the slots come free, the row and the trajectories reach the disk."""
    version = int(row["version"])
    if publication is not None:
        row |= await run.publish(publication)
        run.state.publish_s.append(float(row["weights/publish_s"]))
        run.journal.publish(version, step=int(row["step"]))
    await buffer.release(len(groups), live_version=version)
    row |= run.gap
    row |= await engine_metrics(run)
    run.journal.commit()
    await asyncio.to_thread(run.dir.save_trajectories, f"step-{row['step']:06d}", groups, harvest.advantages)
    seconds = row["time/step"]
    row["tokens/generated_per_s"] = row["tokens/generated"] / seconds
    row["tokens/trained_per_s"] = row["tokens/trained"] / seconds
    row["learner/idle_share"] = 1 - row.get("time/update", 0.0) / seconds
    row["wall_s"] = run.wall_s
    run.record(row)
    run.progress.step(row, stage.steps)


async def engine_metrics(run: Run) -> Mapping[str, float]:
    statuses = await run.pool.status()
    return tool_metrics([status.tools for status in statuses]) | {
        "engine/busy_s": sum(status.busy_s for status in statuses),  # cumulative, as is the next
        "engine/alive_s": sum(status.alive_s for status in statuses),
        "memory/driver_rss_mb": psutil.Process().memory_info().rss / 2**20,
        "engine/waiting": float(sum(status.waiting for status in statuses)),
        "engine/kv_usage": max((status.kv_usage for status in statuses), default=0.0),
        "engine/rss_mb": sum(status.rss_mb for status in statuses),
        "engine/restarts": float(sum(run.pool.restarts.values())),
    }


def tool_metrics(workers: Sequence[Mapping[str, ToolStats]]) -> dict[str, float]:
    """Every tool over all workers, counted since their start."""
    row: dict[str, float] = {}
    for tool in sorted({tool for stats in workers for tool in stats}):
        whole = merge_stats(stats[tool] for stats in workers if tool in stats)
        row |= {f"tool/{tool}/{name}": value for name, value in whole.row().items()}
    return row
