"""The asynchronous loop of an `rl` stage.

    feeder      waits for a slot, draws a task, journals, starts a group     unblocked by the publisher's release
    groups      play on the rollout workers, land in the buffer              unblocked by the engines
    stepper     waits for a batch, updates the learner, exports              unblocked by groups landing
    publisher   delivers the weights, frees the slots                        one at a time, during the next step's wait
    writer      writes the step's episodes and its row                       one at a time, to the next update's end

No token passes through here: groups lie where they were played, the buffer holds summaries of them, and the ranks
fetch those that their rows are made of.

`Stepper.step` is the loop's body; the others are background tasks whose error ends the stage.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from actors.weights.check import WeightUpdate
from envs.base import World
from envs.mixture import MixtureWorld
from envs.rewards import solved_thresholds
from launch.driver.evaluation.background import BackgroundEvaluation
from launch.driver.evaluation.evaluate import evaluate_after, evaluate_before
from launch.driver.evaluation.limits import long_phases
from launch.driver.observe.row import Clock, StepRow
from launch.driver.run.episodes import Played, TokenCredit
from launch.driver.run.first_delivery import first_delivery
from launch.driver.run.playing import plans_by_env
from launch.driver.run.run import OpenGroups, Run
from launch.driver.run.saving import checkpoint, checkpoint_is_due
from launch.driver.run.tasks import StopRequested
from launch.driver.run.updating import update
from launch.driver.run.written import choose_written
from launch.driver.stages.rollout_metrics import rollout_metrics
from launch.driver.stages.solved_metrics import solved_metrics
from learners.algorithms import make_algorithm
from rlsys.alternating_cards import Side
from rlsys.buffer import SlotBuffer
from rlsys.config.envs import env_in
from rlsys.config.recipe import StageConfig
from rlsys.curriculum import Curriculum, make_curriculum
from rlsys.errors import RunFailed
from rlsys.harvest import (
    Harvest,
    check_failures,
    first_exception,
    harvest_groups,
    metrics_by_env,
    refuse_unread_streams,
)
from rlsys.metrics import Max, Metrics, Sum, merge, values
from rlsys.mixed_curriculum import MixedCurriculum, weights_of
from rlsys.plan import BatchPlan, plan_batch
from rlsys.rollout import RolloutPlan
from rlsys.seeds import derive_seed
from rlsys.summaries import GroupRef, credit_group
from rlsys.system.device import require_resolved
from rlsys.types import Ticket, Trajectory


async def rl_loop(run: Run, stage: StageConfig, env: Any = None) -> None:
    """Groups -> BatchPlan -> learner -> new weights, `stage.steps` times.

    env: the config of the run's world, whose training tasks are played, where it is not the stage's own.
    """
    config, state = stage.config, run.state
    # The learner computes log-probs at the temperature of sampling.
    await run.begin_stage(stage, temperature=config.rollout.temperature)
    await first_delivery(run)
    await evaluate_before(run, stage)
    run.begin(
        "stage",
        f"stage {stage.name}: {stage.steps} steps of {config.loop.groups_per_step} groups x {config.loop.group_size}, "
        f"at most {config.loop.slots} groups open",
    )
    buffer = SlotBuffer(
        groups_per_step=config.loop.groups_per_step,
        max_policy_lag=config.loop.max_policy_lag,
        live_version=state.version,
        total=(stage.steps - state.stage_step) * config.loop.groups_per_step,
        spare=config.loop.spare,
    )
    curriculum = curriculum_of(stage, run.active.world, state.curriculum.get(stage.name))
    groups = OpenGroups(buffer=buffer, curriculum=curriculum, pending=deque(sorted(state.open_sequences)))
    run.active.groups, run.active.long = groups, long_phases(config)
    account_unsignalled_groups(run, stage, curriculum)
    many, temperature = config.loop.group_size, config.rollout.temperature
    plans = plans_by_env(config, stage.name, group_size=many, temperature=temperature)
    if env is not None:
        plans = {name: replace(plan, env=env) for name, plan in plans.items()}
    stepper = Stepper(run, stage, groups, plans)
    evaluations = stepper.evaluations
    run.tasks.spawn(stepper.feed())
    try:
        evaluations.due(stepper.wait_live)  # of the checkpoint that the run continues from
        while state.stage_step < stage.steps:
            await stepper.step()
            if checkpoint_is_due(run, stage):
                with stepper.clock.phase("checkpoint"):
                    await run.tasks.until(stepper.wait_written())
                    await run.tasks.complete(checkpoint(run, stage))
            evaluations.due(stepper.wait_live)
            run.tasks.check_stop()
        await run.tasks.until(stepper.wait_written())
        await run.tasks.until(run.sync.through(evaluations.wait()))
    except StopRequested:
        evaluations.cancel()
        await stepper.stop()
        raise
    await evaluate_after(run, stage)


def curriculum_of(stage: StageConfig, world: World, state: Mapping[str, Any] | None) -> Curriculum:
    """Of the stage's training tasks; of several environments one for each. state: of a stage that is continued."""
    config, seed, saved_state = stage.config, derive_seed(stage.config.seed, stage.name), state or {}
    if not isinstance(world, MixtureWorld):
        return make_curriculum(config.curriculum, world.tasks("train"), world.level, seed=seed, state=saved_state)
    parts = {
        name: make_curriculum(
            recipe.curriculum,
            world.tasks_of(name, "train"),
            world.level,
            seed=derive_seed(seed, name),
            state=saved_state.get(name),
        )
        for name, recipe in config.by_env.items()
    }
    return MixedCurriculum(parts, weights_of(config.envs))


class Stepper:
    """One training step after another. While the next one waits for its groups, the last one is published; and until
    that one's update is over, its episodes and its row are written."""

    def __init__(self, run: Run, stage: StageConfig, groups: OpenGroups, plans: Mapping[str, RolloutPlan]) -> None:
        self.run, self.stage, self.plans = run, stage, plans
        self.buffer, self.curriculum, self.pending = groups.buffer, groups.curriculum, groups.pending
        self.evaluations = BackgroundEvaluation(run, stage)
        self.algorithm = make_algorithm(stage.config.algorithm)
        self.clock = Clock(run.phases)
        self._delivery: asyncio.Task[Mapping[str, float]] | None = None  # of the last step's weights
        self._writing: asyncio.Task[None] | None = None  # of its episodes and its row, once they are live

    async def step(self) -> None:
        run, state, clock = self.run, self.run.state, self.clock
        groups, harvest, plan = await self._next_batch()
        more = len(groups) - self.buffer.groups_per_step
        metrics: list[Metrics] = [harvest.metrics, {"groups/oversampled": Sum(more)}]
        metrics += [{"lag/bound": Max(self.buffer.max_policy_lag)}]  # a run may be continued with another one
        metrics += [metrics_by_env(groups, harvest.outcomes, self.stage.config.envs, state.version)]
        rewards = {name: recipe.reward for name, recipe in self.stage.config.by_env.items()}
        metrics += [solved_metrics(groups, rewards)]
        trained, packed, credit = 0, 0, TokenCredit()
        async with AsyncExitStack() as card:
            with clock.phase("publish_previous"):
                await self.wait_live()
                if plan is not None:
                    await run.tasks.until(card.enter_async_context(run.cards.hold(Side.LEARNER)))
            if plan is not None:
                with clock.phase("update"):
                    report = await update(run, plan)
                metrics.append(report.metrics)
                credit = TokenCredit(found=report.advantages, version=plan.version, max_token_lag=plan.max_token_lag)
                packed, trained = plan.num_tokens, plan.num_loss_tokens if report.applied else 0
            with clock.phase("publish_previous"):  # to its end, a stop or not: the weights are those of no row by now
                await run.tasks.complete(self.wait_written())
            # From here to the end of `_account` nothing may wait: the weights, the journal and the state are one.
            run.count_step(trained)
            self.buffer.mark_trained()
            self._account(harvest)
            publication: WeightUpdate | None = None
            if trained:  # a step without signal publishes nothing: versions count weights, not steps
                state.version += 1
                with clock.phase("export"):
                    publication = await run.tasks.complete(run.sync.export(state.version))
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
        self._delivery = run.tasks.spawn(self._publish(row, publication))
        self._writing = run.tasks.spawn(self._write(groups, harvest, row, self._delivery, credit))

    async def _publish(self, row: StepRow, publication: WeightUpdate | None) -> Mapping[str, float]:
        """The weights go live and the slots come free. Returns the row's numbers with what is known then.

        publication: what was exported after this step; None where it made no new weights.
        """
        run, version, metrics = self.run, row.version, row.metrics
        assert version is not None
        if publication is not None:
            await self.evaluations.hold_weights(row.step)
            published = await run.sync.publish(publication)
            metrics = metrics | published
            run.state.add_publish(published["weights/publish_s"])
            run.journal.publish(version, step=row.step)
        await self.buffer.release(self.buffer.groups_per_step, live_version=version)
        metrics = {**metrics, **run.sync.gap, **self.curriculum.row(), **run.cards.row(), **await rollout_metrics(run)}
        metrics |= self.evaluations.row()
        run.journal.commit()
        return metrics

    async def _write(
        self,
        groups: Sequence[GroupRef],
        harvest: Harvest,
        row: StepRow,
        delivery: asyncio.Task[Mapping[str, float]],
        credit: TokenCredit,
    ) -> None:
        """The episodes reach the disk, and then the row."""
        run, metrics = self.run, {**await asyncio.shield(delivery)}
        await keep_trajectories(run, self.stage, row.step, groups, harvest.advantages, credit)
        metrics["tokens/generated_per_s"] = metrics["tokens/generated"] / row.time.total
        metrics["learner/idle_share"] = 1 - row.time.phases.get("update", 0.0) / row.time.total
        summaries = [summary for group in groups for summary in group.summaries]
        run.log_step_metrics(replace(row, metrics=metrics), self.stage.steps, first_exception(summaries))
        run.tracker.episodes(row.step, await fetch_samples(run, row.step, groups))

    async def _next_batch(self) -> tuple[list[GroupRef], Harvest, BatchPlan | None]:
        """The next step's groups, what they gave, and the plan whose rows the ranks have built; None where nothing is
        left to train.

        Groups that were lost with their node are played again, and the step waits for groups once more.
        """
        for _ in range(1 + self.stage.config.rollout.infra_attempts):
            with self.clock.phase("wait_rollout"):
                groups = await self.run.tasks.until(self.run.sync.through(self.buffer.take(self.run.state.version)))
            self.run.progress.end_within_step()  # what is awaited from now on is no group
            with self.clock.phase("build"):
                harvest, plan = await asyncio.to_thread(self._plan, groups)
                lost = await self.run.tasks.until(self.run.learner.build(plan)) if plan is not None else frozenset()
            if not lost:
                return groups, harvest, plan
            for ticket in await self.buffer.give_back(groups, lost):
                self._dispatch(ticket)
        raise RunFailed(f"step {self.run.state.step + 1}: groups are lost again and again, {len(lost)} the last time")

    def _plan(self, groups: Sequence[GroupRef]) -> tuple[Harvest, BatchPlan | None]:
        """Pure, and long where the groups are many: in a thread."""
        config, version = self.stage.config, self.run.state.version
        longest, max_lag = config.rollout.max_response_tokens or config.engine.max_model_len, config.loop.max_token_lag
        harvest = harvest_groups(groups, self.algorithm, longest, version=version, max_token_lag=max_lag)
        check_failures(groups, config.loop.max_failed_share)
        refuse_unread_streams(groups, read=self.algorithm.reads_streams)
        if not harvest.samples:
            return harvest, None
        plan = plan_batch(
            harvest.samples,
            {group.ticket.sequence: group.source for group in groups},
            require_resolved(config.learner.tokens_per_row),
            version,
            minibatches=self.algorithm.minibatches,
            in_order=require_resolved(config.learner.rows_in_order),
            max_token_lag=max_lag,
            discounts=harvest.discounts,
        )
        if self.algorithm.credits_tokens and config.trajectories.logprobs:
            written = choose_written(groups, config.loop.group_size, config.trajectories)
            plan = replace(plan, shown=frozenset(group.ticket.sequence for group in written))
        return harvest, plan

    async def wait_live(self) -> None:
        """Until the last step's weights are on the engines."""
        if self._delivery is not None:
            await self.run.tasks.until(asyncio.shield(self._delivery))

    async def wait_written(self) -> None:
        """Until its row is on the disk too."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def stop(self) -> None:
        """The last step was taken: its row and its trajectories belong to it. They get a moment."""
        if self._writing is not None:
            _, pending = await asyncio.wait({self._writing}, timeout=self.run.tasks.grace_s)
            # Without its row the step is taken again, from the last checkpoint.
            lost = bool(pending) or self._writing.cancelled() or self._writing.exception() is not None
            self.run.tasks.gave_up = self.run.tasks.gave_up or lost

    async def feed(self) -> None:
        """Start what an earlier process left open, then every further sequence of the stage, as slots come free."""
        state, pending, resumed = self.run.state, self.pending, set(self.pending)
        while (live := await self.buffer.admit()) is not None:
            sequence = pending.popleft() if pending else state.next_sequence
            draw = self.curriculum.draw(sequence)
            ticket = Ticket(
                sequence=sequence,
                epoch=draw.epoch,
                task=draw.task,
                level=draw.level,
                attempt=int(sequence in resumed),
                start_version=live,
            )
            self._dispatch(ticket)
            self.buffer.start(ticket)
            state.next_sequence = max(state.next_sequence, sequence + 1)
            await asyncio.sleep(0)  # many slots come free at once: each group is sent off before the next is drawn

    def _dispatch(self, ticket: Ticket) -> None:
        self.run.journal.dispatch(self.stage.name, ticket)
        self.run.tasks.spawn(self._play(ticket))

    async def _play(self, ticket: Ticket) -> None:
        run, config = self.run, self.stage.config
        plan = self.plans[env_in(config.envs, ticket.task.task_id)]
        group = await run.pool.run(
            ticket, plan, on_retry=lambda retried: run.journal.dispatch(self.stage.name, retried)
        )
        signal: bool | None = None
        if config.loop.spare:  # in a thread: the first one imports torch
            signal, _ = await asyncio.to_thread(credit_group, self.algorithm, group)
        await self.buffer.finish(group, signal=signal is not False)
        phase, buffer = run.phases.current(), self.buffer
        if phase is not None and phase.name == "wait_rollout":
            run.progress.within_step(buffer.count_ready(run.state.version), buffer.groups_per_step, "groups")

    def _account(self, harvest: Harvest) -> None:
        """Into the journal and the driver's state: these groups are done with, in this step."""
        run, state = self.run, self.run.state
        state.generated += harvest.sampled
        state.discarded += harvest.discarded
        for sequence, outcome in sorted(harvest.outcomes.items()):
            run.journal.outcome(self.stage.name, sequence, outcome, step=state.step)
            self.curriculum.record_group(sequence, harvest.signals.get(sequence), harvest.means.get(sequence))
        state.lag_max = max(state.lag_max, *harvest.lags, 0)
        state.lag_sum += sum(harvest.lags)
        state.lag_count += len(harvest.lags)
        for kind, count in harvest.failures.items():
            state.failures[kind] = state.failures.get(kind, 0) + count
        if harvest.rewards:
            state.reward_last = sum(harvest.rewards) / len(harvest.rewards)
            state.reward_first = state.reward_last if state.reward_first is None else state.reward_first


def account_unsignalled_groups(run: Run, stage: StageConfig, curriculum: Curriculum) -> None:
    """Account for groups without signal that an earlier process played and no step took. Their texts are gone.

    The step that they get has its row already: who compares the two leaves them out (`rlsys.journal.split_late`).
    """
    state = run.state
    for sequence, (tokens, reward) in state.dull.items():
        run.journal.outcome(stage.name, int(sequence), "filtered", step=state.step)
        state.discarded += int(tokens)
        curriculum.record_group(int(sequence), False, reward)
    state.dull = {}


async def keep_trajectories(
    run: Run,
    stage: StageConfig,
    step: int,
    groups: Sequence[GroupRef],
    advantages: Mapping[tuple[int, int], float],
    credit: TokenCredit,
) -> None:
    """Some of the episodes come here to be written, a group at a time: together they may be gigabytes.

    What is lost with its node is missing from the file.
    """
    config = stage.config.trajectories
    written = await asyncio.to_thread(choose_written, groups, stage.config.loop.group_size, config)
    if not written:
        return
    by_env = {name: solved_thresholds(share.reward) or {} for name, share in stage.config.envs.items()}
    played = Played(
        step=step, stage=stage.name, solved_by=solved_thresholds(stage.config.reward) or {}, solved_by_env=by_env
    )
    name = f"step-{step:06d}"
    writer = run.dir.episodes.begin(name, advantages, config, played, credit)
    try:
        for group in written:
            full_group = await run.pool.whole(group)
            if full_group is not None:
                await asyncio.to_thread(writer.add, full_group)
        digest = await asyncio.to_thread(writer.finish)
    finally:
        writer.discard()
    run.journal.seal(f"trajectories/{name}", digest)


async def fetch_samples(run: Run, step: int, groups: Sequence[GroupRef]) -> list[Trajectory]:
    """The episodes for the tracker's table of samples."""
    rewards = [[summary.reward for summary in group.summaries] for group in groups]
    picks = run.tracker.choose_episodes(step, rewards)
    full_groups = [(await run.pool.whole(groups[place]), index) for place, index in picks]
    return [group.trajectories[index] for group, index in full_groups if group is not None]
