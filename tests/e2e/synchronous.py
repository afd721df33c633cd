"""`python -m tests.e2e.synchronous train ...`: as `rlsys train`, with an rl stage played without any overlap.

One group is played after the other, all of a step by the weights of the step before; then they are trained, then the
new weights go out. Nothing of the loop, of its buffer or its background tasks takes part.
"""

from __future__ import annotations

from typing import Any

import launch.driver.stages.rl_loop
from launch.cli import main
from launch.driver.run.episodes import TokenCredit
from launch.driver.run.first_delivery import first_delivery
from launch.driver.run.playing import rollout_plan
from launch.driver.run.run import Run
from launch.driver.stages.rl_loop import curriculum_of, keep_trajectories
from learners.algorithms import make_algorithm
from rlsys.config.recipe import StageConfig
from rlsys.harvest import Harvest, harvest_groups
from rlsys.plan import plan_batch
from rlsys.summaries import GroupRef
from rlsys.system.device import require_resolved
from rlsys.types import Ticket


async def synchronous_loop(run: Run, stage: StageConfig, env: Any = None) -> None:
    config, state = stage.config, run.state
    await run.begin_stage(stage, temperature=config.rollout.temperature)
    await first_delivery(run)
    curriculum = curriculum_of(stage, run.active.world, None)
    loop, algorithm = config.loop, make_algorithm(config.algorithm)
    plan = rollout_plan(config, stage.name, group_size=loop.group_size, temperature=config.rollout.temperature)
    for step in range(stage.steps):
        groups: list[GroupRef] = []
        for sequence in range(step * loop.groups_per_step, (step + 1) * loop.groups_per_step):
            draw = curriculum.draw(sequence)
            ticket = Ticket(
                sequence=sequence, epoch=draw.epoch, task=draw.task, level=draw.level, attempt=0,
                start_version=state.version,
            )  # fmt: skip
            groups.append(await run.pool.run(ticket, plan, on_retry=lambda _: None))
        longest = config.rollout.max_response_tokens or config.engine.max_model_len
        harvest = harvest_groups(groups, algorithm, longest, version=state.version)
        trained = await update(run, stage, groups, harvest)
        run.count_step(trained)
        for sequence in harvest.outcomes:
            curriculum.record_group(sequence, harvest.signals.get(sequence), harvest.means.get(sequence))
        if trained:
            state.version += 1
            await run.sync.publish(await run.sync.export(state.version))
        await keep_trajectories(run, stage, state.step, groups, harvest.advantages, TokenCredit())
        run.before_row = None  # it has no row


async def update(run: Run, stage: StageConfig, groups: list[GroupRef], harvest: Harvest) -> int:
    """One update of the policy from these groups; returns the number of trained tokens."""
    learner, algorithm = stage.config.learner, make_algorithm(stage.config.algorithm)
    if not harvest.samples:
        return 0
    plan = plan_batch(
        harvest.samples,
        {group.ticket.sequence: group.source for group in groups},
        require_resolved(learner.tokens_per_row),
        run.state.version,
        minibatches=algorithm.minibatches,
        in_order=require_resolved(learner.rows_in_order),
        max_token_lag=stage.config.loop.max_token_lag,
        discounts=harvest.discounts,
    )
    assert not await run.learner.build(plan)
    report = await run.learner.update(plan.version)
    assert report is not None
    return plan.num_loss_tokens if report.applied else 0


if __name__ == "__main__":
    launch.driver.stages.rl_loop.rl_loop = synchronous_loop
    main()
