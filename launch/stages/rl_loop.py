"""The asynchronous loop of an `rl` stage.

    feeder      draws tasks, waits for a slot, journals, starts a group      unblocked by the publisher's release
    groups      play on the rollout workers, land in the buffer              unblocked by the engines
    stepper     waits for a batch, updates the learner, exports              unblocked by groups landing
    publisher   delivers the weights, frees the slots, writes the row        one at a time, beside the next step's wait

`rl_loop` is the stepper; the others are background tasks whose error ends the stage.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psutil

from envs.services.stats import ToolStats
from envs.services.stats import merge as merge_stats
from launch.run import wire
from launch.run.delivery import first_delivery
from launch.run.evaluate import evaluate
from launch.run.row import Clock, StepRow
from launch.run.run import Run, StopRequested
from learners.algorithms import make_algorithm
from learners.algorithms.base import Algorithm
from rlsys.buffer import SlotBuffer
from rlsys.config import StageConfig
from rlsys.curriculum import Curriculum
from rlsys.errors import RunFailed
from rlsys.journal import Outcome
from rlsys.metrics import Max, Mean, Metrics, Min, Sum, merge, values
from rlsys.off_policy import without_stale
from rlsys.packing import make_batch, sample_trajectory
from rlsys.reductions import weigh
from rlsys.rollout import RolloutPlan
from rlsys.seeds import derive
from rlsys.types import Failure, Group, Sample, Ticket, Trajectory

PUBLISH_DEADLINE_S = 10.0  # of the last step's delivery and row when the run is stopped


async def rl_loop(run: Run, stage: StageConfig) -> None:
    """Groups -> Batch -> learner -> new weights, `stage.steps` times."""
    config, state = stage.config, run.state
    # Log-probabilities of what was sampled are those of the sampler.
    await run.begin_stage(stage, temperature=config.rollout.temperature)
    await first_delivery(run)
    if not state.eval_before:
        state.eval_before = await run.until(evaluate(run, config, "before"))
    run.progress.say(
        f"stage {stage.name}: {stage.steps} steps of {config.loop.groups_per_step} groups x {config.loop.group_size}, "
        f"at most {config.loop.slots} groups open"
    )
    run.buffer = SlotBuffer(
        groups_per_step=config.loop.groups_per_step,
        max_policy_lag=config.loop.max_policy_lag,
        live_version=state.version,
    )
    run.spawn(feed(run, stage, run.buffer))
    stepper = Stepper(run, stage, run.buffer)
    try:
        while state.stage_step < stage.steps:
            await stepper.step()
            if state.stage_step % config.checkpoint.every == 0 and state.stage_step < stage.steps:
                with stepper.clock.phase("checkpoint"):
                    await stepper.published()
                    await run.complete(run.checkpoint(stage))
            run.check_stop()
        await stepper.published()
    except StopRequested:
        await stepper.stop()
        raise
    state.eval_after = await run.until(evaluate(run, config, "after"))


class Stepper:
    """One optimizer step after another. While the next one waits for its groups, the last one is published."""

    def __init__(self, run: Run, stage: StageConfig, buffer: SlotBuffer) -> None:
        self.run, self.stage, self.buffer = run, stage, buffer
        self.algorithm = make_algorithm(stage.config.algorithm)
        self.clock = Clock()
        self._publishing: asyncio.Task[None] | None = None

    async def step(self) -> None:
        run, config, state, clock = self.run, self.stage.config, self.run.state, self.clock
        with clock.phase("wait_rollout"):
            groups = await run.until(self.buffer.take(state.version))
        with clock.phase("build"):
            longest = config.rollout.max_response_tokens or config.engine.max_model_len
            harvest = harvest_groups(
                groups, self.algorithm, longest, version=state.version, max_token_lag=config.loop.max_token_lag
            )
            check_failures(groups, config.loop.max_failed_share)
        with clock.phase("publish_previous"):
            await self.published()
        metrics: list[Metrics] = [harvest.metrics, lag_metrics(groups, state.version)]
        trained = packed = 0
        if harvest.samples:
            batch = make_batch(
                harvest.samples, config.learner.tokens_per_row, state.version, minibatches=self.algorithm.minibatches
            )
            with clock.phase("update"):
                report = await run.complete(run.learner.update(batch))
            metrics.append(report.metrics)
            packed, trained = batch.num_tokens, batch.num_loss_tokens if report.applied else 0
        # From here to the end of `account` nothing may wait: the weights, the journal and the state are one.
        state.step += 1
        state.stage_step += 1
        state.trained += trained
        self.buffer.trained()
        account(run, self.stage, harvest, metrics)
        expected: list[list[float]] | None = None
        if trained:  # a step without signal publishes nothing: versions count weights, not steps
            state.version += 1
            with clock.phase("export"):
                await run.complete(run.learner.export(run.weights, state.version))
                expected = await run.complete(run.learner.logprobs(run.probe))
        row = StepRow(
            stage=self.stage.name,
            step=state.step,
            stage_step=state.stage_step,
            version=state.version,
            trained=trained,
            packed=packed,
            time=clock.close(),
            metrics=values(merge(metrics)),
        )
        self._publishing = run.spawn(publish_step(run, self.stage, self.buffer, groups, harvest, row, expected))

    async def published(self) -> None:
        """Until the last step's weights are live and its row is written."""
        if self._publishing is not None:
            await self.run.until(asyncio.shield(self._publishing))

    async def stop(self) -> None:
        """The last step was taken: its row and its trajectories belong to it. They get a moment."""
        if self._publishing is not None:
            _, late = await asyncio.wait({self._publishing}, timeout=PUBLISH_DEADLINE_S)
            # Without its row the step is taken again, from the last checkpoint.
            self.run.gave_up = self.run.gave_up or bool(late)


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


# -- from groups to samples -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Harvest:
    """What a step's groups gave."""

    samples: list[Sample]
    advantages: dict[tuple[int, int], float]  # by (sequence, sibling)
    outcomes: dict[int, Outcome]  # by sequence
    metrics: Metrics


def harvest_groups(
    groups: Sequence[Group],
    algorithm: Algorithm,
    longest: int,
    *,
    version: int = 0,
    max_token_lag: int | None = None,
) -> Harvest:
    """Advantages within each group, then samples. A failed sibling is left out of its group's baseline (law 3).

    longest: tokens that a response can have, the constant of Dr. GRPO's reduction.
    version: the weights that are trained. Tokens more than `max_token_lag` versions older become context. A trajectory
    of such tokens alone still counts in the baseline but gives no sample; a group without samples is "filtered".
    """
    samples: list[list[list[Sample]]] = []  # by group and trajectory
    advantages: dict[tuple[int, int], float] = {}
    outcomes: dict[int, Outcome] = {}
    metrics: list[Metrics] = []
    stale_tokens = 0
    for group in groups:
        sequence = group.ticket.sequence
        metrics += [trajectory_metrics(trajectory) for trajectory in group.trajectories]
        rewards = [math.nan if isinstance(t.reward, Failure) else t.reward.value for t in group.trajectories]
        credit = algorithm.advantages(rewards)
        if credit is None:
            outcomes[sequence] = "failed" if all(map(math.isnan, rewards)) else "filtered"
            continue
        kept: list[list[Sample]] = []
        for trajectory, advantage in zip(group.trajectories, credit, strict=True):
            if math.isnan(advantage):
                continue
            advantages[sequence, trajectory.sibling] = advantage
            whole = sample_trajectory(trajectory, advantage)
            fresh, stale = without_stale(whole, version=version, max_token_lag=max_token_lag)
            stale_tokens += stale
            kept.append(fresh)
        outcomes[sequence] = "trained" if any(kept) else "filtered"
        samples.append(kept)
    for name in ("trained", "filtered", "failed"):
        of_kind = [group for group in groups if outcomes[group.ticket.sequence] == name]
        sampled = sum(trajectory.num_sampled for group in of_kind for trajectory in group.trajectories)
        # the three add up to tokens/generated
        metrics.append({f"groups/{name}": Sum(len(of_kind)), f"tokens/in_{name}_groups": Sum(sampled)})
    metrics.append({"tokens/stale": Sum(stale_tokens)})
    weighed = weigh(samples, algorithm.reduction, length=longest)
    return Harvest(samples=weighed, advantages=advantages, outcomes=outcomes, metrics=merge(metrics))


def trajectory_metrics(trajectory: Trajectory) -> Metrics:
    reward = trajectory.reward
    row: dict[str, Any] = {
        "tokens/generated": Sum(trajectory.num_sampled),
        "episode/tokens": Mean(trajectory.num_sampled),
        "episode/tokens_max": Max(trajectory.num_sampled),
        "episode/turns": Mean(len(trajectory.turns)),
        "episode/repeated_calls": Mean(trajectory.repeated_calls),
        "time/episode_generate": Mean(trajectory.timings.generate_s),
        "time/episode_tool": Mean(trajectory.timings.tool_s),
        "time/episode_score": Mean(trajectory.timings.score_s),
        "failures/infra": Sum(0.0),
        "failures/timeout": Sum(0.0),
        "failures/data": Sum(0.0),
        "failures/retried": Sum(float(len(trajectory.retried))),
        "tokens/discarded": Sum(float(trajectory.discarded_tokens)),
    }
    for end in ("answered", "malformed", "turn_limit", "token_limit"):
        row[f"episode/{end}"] = Mean(float(trajectory.end == end))
    if isinstance(reward, Failure):
        row[f"failures/{reward.kind}"] = Sum(1.0)
        return row
    row |= {"reward/mean": Mean(reward.value), "reward/max": Max(reward.value), "reward/min": Min(reward.value)}
    return row | {f"reward/part/{name}": Mean(value) for name, value in reward.parts.items()}


def lag_metrics(groups: Sequence[Group], version: int) -> Metrics:
    """Versions between a trajectory's oldest token and the weights trained on it."""
    rows: list[Metrics] = []
    for trajectory in (trajectory for group in groups for trajectory in group.trajectories):
        oldest = trajectory.oldest_version
        if oldest is not None:
            spans = {span.version for turn in trajectory.turns for span in turn.completion.spans}
            lag = float(version - oldest)
            rows.append({"lag/mean": Mean(lag), "lag/max": Max(lag), "lag/mixed_versions": Mean(float(len(spans) > 1))})
    return merge(rows)


def check_failures(groups: Sequence[Group], limit: float) -> None:
    trajectories = [trajectory for group in groups for trajectory in group.trajectories]
    failures = [t.reward for t in trajectories if isinstance(t.reward, Failure)]
    if len(failures) > limit * len(trajectories):
        first = failures[0]
        raise RunFailed(
            f"{len(failures)} of {len(trajectories)} trajectories of this step failed "
            f"(limit loop.max_failed_share={limit:g}); the first: {first.kind} in {first.where}: {first.detail}"
        )


# -- the publisher ----------------------------------------------------------------------------------------------------


def account(run: Run, stage: StageConfig, harvest: Harvest, metrics: Sequence[Metrics]) -> None:
    """Into the journal and the driver's state: these groups are done with, in this step."""
    state = run.state
    for sequence, outcome in sorted(harvest.outcomes.items()):
        run.journal.outcome(stage.name, sequence, outcome, step=state.step)
    numbers = merge(metrics)
    lag = numbers.get("lag/mean")
    if isinstance(lag, Mean):
        state.lag_max = max(state.lag_max, int(numbers["lag/max"].value))
        state.lag_sum += lag.total
        state.lag_count += int(lag.weight)
    for name, metric in numbers.items():
        if name.startswith("failures/"):
            kind = name.removeprefix("failures/")
            state.failures[kind] = state.failures.get(kind, 0) + int(metric.value)
    if "reward/mean" in numbers:
        reward = numbers["reward/mean"].value
        state.reward_first = reward if state.reward_first is None else state.reward_first
        state.reward_last = reward


async def publish_step(
    run: Run,
    stage: StageConfig,
    buffer: SlotBuffer,
    groups: Sequence[Group],
    harvest: Harvest,
    row: StepRow,
    expected: list[list[float]] | None,
) -> None:
    """The weights go live, the slots come free, the row and the trajectories reach the disk.

    expected: the learner's log-probabilities of the probe under the new weights; None where the step made none.
    """
    version, metrics = row.version, row.metrics
    assert version is not None
    if expected is not None:
        published = await run.publish(version, expected)
        metrics = metrics | published
        run.state.publish_s.append(published["weights/publish_s"])
        run.journal.publish(version, step=row.step)
    await buffer.release(len(groups), live_version=version)
    metrics = {**metrics, **run.gap, **await engine_metrics(run)}
    run.journal.commit()
    await asyncio.to_thread(run.dir.save_trajectories, f"step-{row.step:06d}", groups, harvest.advantages)
    metrics["tokens/generated_per_s"] = metrics["tokens/generated"] / row.time.total
    metrics["learner/idle_share"] = 1 - row.time.phases.get("update", 0.0) / row.time.total
    run.record(replace(row, metrics=metrics), stage.steps)


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
