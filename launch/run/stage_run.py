"""What belongs to one stage while it runs: made when it begins, and never reset. A run that goes back makes another."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from envs.base import World
from launch.checkpoints.checkpoint import DriverState
from launch.observe.health import HealthMonitor
from rlsys.buffer import SlotBuffer
from rlsys.config.recipe import StageConfig
from rlsys.curriculum import Curriculum
from rlsys.summaries import GroupRef
from rlsys.types import Reward


@dataclass(slots=True, kw_only=True)
class OpenGroups:
    """The groups of an rl stage: which tasks are drawn, which are played, and which are to be played again."""

    buffer: SlotBuffer
    curriculum: Curriculum
    pending: deque[int] = field(default_factory=deque)  # that an earlier process began: next to get a slot

    def save(self, state: DriverState, stage: str) -> None:
        """Into what a checkpoint saves of the driver."""
        state.curriculum[stage] = self.curriculum.state()
        state.open_sequences = [*(ticket.sequence for ticket in self.buffer.open_tickets), *self.pending]
        state.dull = {str(group.ticket.sequence): tokens_and_reward(group) for group in self.buffer.dull}


@dataclass(slots=True, kw_only=True)
class StageRun:
    stage: StageConfig
    world: World  # whose training tasks the stage goes through
    watch: HealthMonitor | None = None  # on its rows, from `Run.begin_stage` on
    reference: Path | None = None  # (launch.checkpoints.beginning): in the newest checkpoint
    groups: OpenGroups | None = None  # of an rl stage, once it plays


def tokens_and_reward(group: GroupRef) -> list[float]:
    """Its sampled tokens and its mean reward."""
    rewards = [each.reward.value for each in group.summaries if isinstance(each.reward, Reward)]
    return [float(sum(each.num_sampled for each in group.summaries)), sum(rewards) / len(rewards)]
