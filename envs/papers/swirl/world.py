"""The states of recorded trajectories: an episode is one message, the next action, and no tool is called.

A `stepwise` stage makes this world of the trajectories that it is given. It is in no table: a state is no task that a
person would ask.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

from envs.base import World
from envs.episode import OneMessage
from envs.papers.swirl.reward import Verdicts, select_trajectories
from envs.papers.swirl.sub_trajectories import decompose, state_of, state_task
from envs.protocols import PROTOCOLS, Malformed
from envs.tasks.files import read_jsonl
from envs.tasks.splits import Split
from rlsys.config.verdicts import VerdictsConfig
from rlsys.errors import BadInput
from rlsys.records import read_trajectory
from rlsys.types import Task


@dataclass(frozen=True, kw_only=True)
class StatesConfig:
    PATH: ClassVar[str] = "envs.papers.swirl.world.StatesWorld"
    name: str = PATH
    stop: tuple[str, ...]  # that end a message, as in the environment of the trajectories
    protocol_name: str  # of that environment; "" for one without
    data: str  # trajectories, as a judge stage or `rlsys generate` leaves them
    verdicts: VerdictsConfig = field(default_factory=VerdictsConfig)
    seed: int = 0  # of what `verdicts` draws


class StatesWorld(World):
    """Its training tasks are the states; nothing is held out."""

    max_turns = 1

    def __init__(self, config: StatesConfig) -> None:
        self._stop, self._protocol = config.stop, PROTOCOLS.get(config.protocol_name)
        self.split = Split(lambda: (states(config), ()))

    def env(self, task: Task) -> OneMessage:
        """Raises BadInput for a task that is no state."""
        state = state_of(task)
        if state is None:
            raise BadInput("no state of a trajectory", where=f"task {task.task_id}")
        return OneMessage(state, self._stop, self._is_action)

    def _is_action(self, text: str) -> bool:
        return self._protocol is None or not isinstance(self._protocol.parse(text), Malformed)


def states(config: StatesConfig) -> tuple[Task, ...]:
    """Of the set that `config.verdicts` asks for. Raises BadInput for a file without any, and for no trajectories."""
    trajectories = [
        replace(read_trajectory(record, f"{config.data} line {line}"), samples=(), token_ids=())  # most of its memory
        for line, record in read_jsonl(config.data)
    ]
    verdicts = [Verdicts(trajectory.judgements, trajectory.correct) for trajectory in trajectories]
    indices = select_trajectories(verdicts, config.verdicts, seed=config.seed, where=config.data)
    tasks = tuple(state_task(step) for at in indices for step in decompose(trajectories[at]))
    if not tasks:
        keep = f"verdicts.keep={config.verdicts.keep}" + ", verdicts.equal=true" * config.verdicts.equal
        raise BadInput(
            f"no state in the {len(indices)} trajectories of {keep}", where=config.data, expected="another filter"
        )
    return tasks
