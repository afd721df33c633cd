"""Which task comes when, in an rl stage: `curriculum.name` picks a strategy.

    uniform      every task once per epoch; nothing is remembered
    mixed        levels (or sources) by given shares
    difficulty   levels by how many of their recent groups had a signal; a task whose group had none rests for a while
    staged       one level after another, the next when the last one is passed

A level is a kind of task, by what the environment says of it (a number of calculations, of hops) or by a field of its
record. A group has a signal where its rewards give the algorithm something to learn from (`rlsys.summaries`): with a
baseline of the group, all right and all wrong teach nothing (DAPO, arXiv 2503.14476, section 3.2, plays such groups and
throws them away). Failures say nothing about a task and change nothing here.

What is remembered changes when a step takes its groups, atomically with the weights, so that a resumed run continues
with what the surviving weights have seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlsys.config.curriculum import CurriculumConfig
from rlsys.errors import BadInput
from rlsys.seeds import Epochs
from rlsys.types import Task

MEMORY = 64  # groups of a level that its shares are over, the older the less
LONGEST_STREAK = 30  # of groups without signal; far above what `max_rest` can tell apart


@dataclass(frozen=True, slots=True)
class DrawnTask:
    """DrawnTask(epoch=1, task=..., level="3 calculations"). epoch: earlier passes over the level's tasks."""

    epoch: int
    task: Task
    level: str = ""  # of a strategy that knows none


class Curriculum(Protocol):
    def draw(self, sequence: int) -> DrawnTask:
        """The task of a sequence number. An open one, whose group is not recorded yet, is given again what it had."""

    def record_group(self, sequence: int, signal: bool | None, reward: float | None) -> None:
        """Whether a group had a signal, None where it failed, and the mean reward of its graded trajectories."""

    def row(self) -> dict[str, float]: ...

    def state(self) -> dict[str, Any]:
        """Plain values with keys of text, from which `make_curriculum` makes the same again."""


def make_curriculum(
    config: CurriculumConfig,
    tasks: Sequence[Task],
    level_of: Callable[[Task], str],
    *,
    seed: int,
    state: Mapping[str, Any] | None = None,
) -> Curriculum:
    """level_of: what the environment calls a task's level. Raises BadInput where levels and config do not fit."""
    if config.name == "uniform":
        return Uniform(tasks, seed=seed)
    return Levelled(config, tasks, level_of, seed=seed, state=state or {})


class Uniform:
    """A `Curriculum`."""

    def __init__(self, tasks: Sequence[Task], *, seed: int) -> None:
        self._order = Epochs(tasks, seed=seed)

    def draw(self, sequence: int) -> DrawnTask:
        return DrawnTask(*self._order.draw(sequence))

    def record_group(self, sequence: int, signal: bool | None, reward: float | None) -> None: ...

    def row(self) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, Any]:
        return {}


@dataclass(slots=True, kw_only=True)
class Level:
    """What is remembered of one level. The counts are of its recent groups: each new one makes the others less."""

    size: int  # tasks
    cursor: int = 0  # tasks drawn and passed over, all epochs
    drawn: int = 0  # tasks drawn: the clock of those that rest
    credit: float = 0.0  # draws that it is owed
    seen: int = 0  # groups, ever
    groups: float = 0.0
    signal: float = 0.0  # of them had one
    reward: float = 0.0  # the sum of their mean rewards

    def add(self, signal: bool, reward: float) -> None:
        decay = 1 - 1 / MEMORY
        self.seen += 1
        self.groups = self.groups * decay + 1
        self.signal = self.signal * decay + signal
        self.reward = self.reward * decay + reward

    @property
    def signal_share(self) -> float:
        """1 before anything is known: what was never tried is tried."""
        return (self.signal + 1) / (self.groups + 1)


@dataclass(slots=True)
class TaskRest:
    """Of a task whose last groups had no signal."""

    streak: int  # such groups, one after another
    until: int  # `Level.drawn` after which it comes again


@dataclass(slots=True)
class OpenLevel:
    epoch: int
    task: int  # index
    level: str


@dataclass(slots=True, kw_only=True)
class Memory:
    levels: dict[str, Level] = field(default_factory=dict)
    rests: dict[int, TaskRest] = field(default_factory=dict)  # by index of the task
    open: dict[int, OpenLevel] = field(default_factory=dict)  # by sequence
    reached: int = 1  # levels that `staged` has come to


class Levelled:
    """A `Curriculum` whose strategy weighs levels; in a level every task comes once per epoch, unless it rests."""

    def __init__(
        self,
        config: CurriculumConfig,
        tasks: Sequence[Task],
        level_of: Callable[[Task], str],
        *,
        seed: int,
        state: Mapping[str, Any],
    ) -> None:
        self._config, self._tasks = config, tasks
        self._members = members = levels(config, tasks, level_of)
        self._orders = {name: Epochs(indices, seed=f"{seed}:{name}") for name, indices in members.items()}
        self._asleep: dict[str, int] = {}  # levels whose tasks all rest, and until when: they need no second look
        self._weigh = STRATEGIES[config.name]
        self.memory = Memory(levels={name: Level(size=len(indices)) for name, indices in members.items()})
        if state:
            self.memory = _restore_memory(state, members)

    def draw(self, sequence: int) -> DrawnTask:
        memory = self.memory
        if sequence not in memory.open:
            name = self._next_level()
            memory.open[sequence] = OpenLevel(*self._next_task(name), name)
        open_level = memory.open[sequence]
        return DrawnTask(open_level.epoch, self._tasks[open_level.task], open_level.level)

    def _next_level(self) -> str:
        """Who is owed most: shares are kept to one draw, and nothing is left to chance."""
        levels = self.memory.levels
        weights = self._weigh(self._config, self.memory)
        total = sum(weights.values())
        for name, weight in weights.items():
            levels[name].credit += weight / total
        level_name = max(weights, key=lambda name: (weights[name] > 0, levels[name].credit))
        levels[level_name].credit -= 1
        return level_name

    def _next_task(self, name: str) -> tuple[int, int]:
        """(epoch, index): the next in its level's order that does not rest; where all of them do, the next."""
        level, order, rests = self.memory.levels[name], self._orders[name], self.memory.rests
        level.drawn += 1
        # Each is met at least once, wherever the order begins.
        ahead = range(2 * level.size) if level.drawn > self._asleep.get(name, 0) else range(0)
        for passed_over in ahead:
            epoch, index = order.draw(level.cursor + passed_over)
            if index not in rests or rests[index].until < level.drawn:
                level.cursor += passed_over + 1
                return epoch, index
        if ahead:
            self._asleep[name] = min(rests[index].until for index in self._members[name])
        level.cursor += 1
        return order.draw(level.cursor - 1)

    def record_group(self, sequence: int, signal: bool | None, reward: float | None) -> None:
        open_level = self.memory.open.pop(sequence, None)
        if open_level is None or signal is None or reward is None:
            return
        self.memory.levels[open_level.level].add(signal, reward)
        if self._config.name == "staged":
            self._advance()
        if self._config.name == "difficulty":
            self._rest(open_level, signal)

    def _advance(self) -> None:
        config, memory = self._config, self.memory
        levels = list(memory.levels.values())
        newest = levels[memory.reached - 1]
        if newest.seen >= config.pass_groups and newest.reward >= config.pass_at * newest.groups:
            memory.reached = min(memory.reached + 1, len(levels))

    def _rest(self, open_level: OpenLevel, signal: bool) -> None:
        """Rest a task without signal, twice as long each time, and try it again: the policy may have learned it.

        An epoch of rest is as many draws of its level as the level has tasks: passing over those that rest is no draw.
        """
        level = self.memory.levels[open_level.level]
        if signal:
            self.memory.rests.pop(open_level.task, None)
            self._asleep.pop(open_level.level, None)
            return
        last = self.memory.rests.get(open_level.task)
        streak = min(last.streak + 1, LONGEST_STREAK) if last is not None else 1
        rest_epochs = min(2 ** (streak - 1), self._config.max_rest)
        self.memory.rests[open_level.task] = TaskRest(streak, level.drawn + rest_epochs * level.size)

    def row(self) -> dict[str, float]:
        memory = self.memory
        weights = self._weigh(self._config, memory)
        total = sum(weights.values())
        row = {"curriculum/resting": float(len(memory.rests))}
        for name, level in memory.levels.items():
            row[f"curriculum/share/{name}"] = weights[name] / total
            row[f"curriculum/signal/{name}"] = level.signal_share
            if level.groups:
                row[f"curriculum/reward/{name}"] = level.reward / level.groups
        return row

    def state(self) -> dict[str, Any]:
        memory = self.memory
        parts: dict[str, Mapping[Any, Any]] = {"levels": memory.levels, "rests": memory.rests, "open": memory.open}
        plain = {name: {str(key): _as_dict(entry) for key, entry in entries.items()} for name, entries in parts.items()}
        return {**plain, "reached": memory.reached}


def _as_dict(record: Any) -> dict[str, Any]:
    """Of a record of plain values, as `asdict` has it; of a hundred thousand that takes four times as long."""
    return {name: getattr(record, name) for name in record.__slots__}


def _restore_memory(state: Mapping[str, Any], members: Mapping[str, Sequence[int]]) -> Memory:
    """From a state, where every key is a text."""
    memory = Memory(
        levels={name: Level(**values) for name, values in state["levels"].items()},
        rests={int(index): TaskRest(**values) for index, values in state["rests"].items()},
        open={int(sequence): OpenLevel(**values) for sequence, values in state["open"].items()},
        reached=state["reached"],
    )
    for name, values in state["levels"].items():
        if "drawn" not in values:  # of an older run: rests were counted in epochs of the level's order
            level = memory.levels[name]
            level.drawn = level.cursor
            for index in memory.rests.keys() & set(members.get(name, ())):
                memory.rests[index].until *= level.size
    return memory


def levels(config: CurriculumConfig, tasks: Sequence[Task], level_of: Callable[[Task], str]) -> dict[str, list[int]]:
    """The tasks, by index, of each level that is drawn from: in the config's order, else by the numbers in the names.

    Raises BadInput for a level that no task has, and for a task without the field that names it.
    """
    members: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        name = level_of(task) if config.level is None else _field(task, config.level)
        members.setdefault(name, []).append(index)
    names = sorted(members, key=by_number)
    order = list(config.weights) if config.name == "mixed" else list(config.order)
    unknown = [name for name in order if name not in members]
    if unknown:
        key = "weights" if config.name == "mixed" else "order"
        raise BadInput(
            f"no task has the level {unknown[0]!r}: the levels are {', '.join(names)}", key=f"curriculum.{key}"
        )
    return {name: members[name] for name in order or names}


def by_number(name: str) -> list[tuple[int, str]]:
    """To sort by: "9 hops" before "10 hops"."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _field(task: Task, key: str) -> str:
    if key not in task.record:
        keys = ", ".join(task.record)
        raise BadInput(f"task {task.task_id} has no such field: it has {keys}", key="curriculum.level", found=key)
    return str(task.record[key])


def _mixed_weights(config: CurriculumConfig, memory: Memory) -> dict[str, float]:
    return dict(config.weights)


def _difficulty(config: CurriculumConfig, memory: Memory) -> dict[str, float]:
    """As many draws as the level has tasks, times the share of its groups that had a signal."""
    return {name: level.size * max(level.signal_share, config.floor) for name, level in memory.levels.items()}


def _staged_weights(config: CurriculumConfig, memory: Memory) -> dict[str, float]:
    """The levels reached so far; the next follows once the recent groups of the last have a reward of `pass_at`."""
    return {
        name: float(level.size if number < memory.reached else 0)
        for number, (name, level) in enumerate(memory.levels.items())
    }


Strategy = Callable[[CurriculumConfig, Memory], dict[str, float]]
STRATEGIES: dict[str, Strategy] = {"mixed": _mixed_weights, "difficulty": _difficulty, "staged": _staged_weights}
