"""An rl stage as a discrete-event simulation: slots, groups, seats in engines, one learner, deliveries, lag.

Closed formulas miss the tail: an engine that waits for the last answers of a step makes few tokens. Here every episode
takes a seat in an engine, whose step takes longer with every sequence in it, and then its tools and its reward take
their time. Groups are dispatched, taken and released by the rules of the real loop (`launch/driver/stages/rl_loop.py`,
`rlsys/buffer.py`). Pure, and the same for the same seed.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from rlsys.buffer import count_missing

TINY = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    tokens: float  # sampled
    outside_s: float = 0.0  # of tools and reward, in which it has no seat


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Seconds of one step, on machines whose cores are not all taken."""

    build_s: float = 0.0
    update_s: float = 0.0
    export_s: float = 0.0
    publish_s: float = 0.0  # from the export until the last engine has the weights
    pause_s: float = 0.0  # at the end of it, in which engines stand still


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    groups_per_step: int
    group_size: int
    max_policy_lag: int
    workers: int
    seats: int  # sequences that an engine samples at the same time
    in_flight: int  # episodes that a worker is given at once
    base_s: float  # seconds of an engine's step, each of which makes a token of every sequence
    each_s: float  # that a sequence adds to it
    cores: float | None = None  # that all parts share; None: each has its own device
    engine_cores: float = 1.0
    learner_cores: float = 1.0
    change_s: float | None = None  # in which a device goes from engine to learner or back; None: each has its own


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    seconds: float
    wait_s: float  # of the learner, for groups
    publish_wait_s: float  # of the learner, for the delivery of the step before
    update_s: float
    busy_s: float  # of an engine, on average
    tokens: float  # sampled in the step's groups
    lag: int  # versions, of the oldest group


@dataclass(slots=True, eq=False)
class SimulatedGroup:
    """Open from its dispatch until it is trained."""

    sequence: int
    start_version: int
    episodes: Sequence[Episode]
    engine: int = 0
    left: int = 0


@dataclass(slots=True)
class _Engine:
    clock: float = 0.0  # tokens that a sequence has made which was there from the beginning
    running: list[tuple[float, int, Episode, SimulatedGroup]] = field(default_factory=list)  # by the clock at their end
    queue: deque[tuple[Episode, SimulatedGroup]] = field(default_factory=deque)
    given: int = 0  # episodes of its groups
    busy_s: float = 0.0


GroupSource = Callable[[Random], Sequence[Episode]]
CostSource = Callable[[Random], StepCost]


def simulate(
    setting: Setting,
    groups: GroupSource,
    costs: CostSource,
    *,
    steps: int,
    skip: int = 3,
    seed: int = 0,
    total: int | None = None,
) -> list[SimulatedStep]:
    """`steps` steps, after `skip` that fill the pipeline. total: groups of the whole stage; None for no end."""
    stage = SimulatedStage(setting, groups, costs, Random(seed), total)
    return stage.run(skip + steps)[skip:]


class SimulatedStage:
    """The learner's phases: wait for groups, build, wait for the delivery before, update and export."""

    def __init__(
        self, setting: Setting, groups: GroupSource, costs: CostSource, rng: Random, total: int | None = None
    ) -> None:
        self.total = total  # of groups
        self.setting, self.groups, self.costs, self.rng = setting, groups, costs, rng
        self.engines = [_Engine() for _ in range(setting.workers)]
        self.now, self.order, self.sequence = 0.0, 0, 0
        self.timers: list[tuple[float, int, Callable[[], None]]] = []
        self.waiting: deque[SimulatedGroup] = deque()  # for a worker
        self.open: dict[int, SimulatedGroup] = {}
        self.finished: dict[int, SimulatedGroup] = {}
        self.free = setting.groups_per_step * (1 + setting.max_policy_lag)
        self.version = self.live = 0
        self.publishing = self.paused = self.asleep = False
        self.work_s = 0.0  # left of what the learner does
        self.then: Callable[[], None] | None = None  # behind it; None: it waits
        self.done: list[SimulatedStep] = []
        self.history: list[SimulatedGroup] = []  # those that were trained
        self.began = self.since = self.wait_s = self.publish_wait_s = self.busy_before = 0.0
        self.taken: list[SimulatedGroup] = []
        self.cost = StepCost()

    def run(self, steps: int) -> list[SimulatedStep]:
        self.feed()
        while len(self.done) < steps:
            self.advance()
        return self.done

    # -- time ---------------------------------------------------------------------------------------------------------

    def rates(self) -> tuple[list[float], float]:
        """Tokens/s of each sequence of every engine, and the learner's speed."""
        setting, works = self.setting, self.then is not None and self.work_s > 0
        running = [len(engine.running) for engine in self.engines]
        demand = sum(count > 0 for count in running) * setting.engine_cores + works * setting.learner_cores
        share = 1.0 if setting.cores is None or demand <= setting.cores else setting.cores / demand
        stands = 0.0 if self.paused or self.asleep else share
        return [
            stands / (setting.base_s + setting.each_s * count) if count else 0.0 for count in running
        ], share if works else 0.0

    def advance(self) -> None:
        """To the next event."""
        rates, speed = self.rates()
        ahead = [
            (engine.running[0][0] - engine.clock) / rate
            for engine, rate in zip(self.engines, rates, strict=True)
            if rate
        ]
        if self.timers:
            ahead.append(self.timers[0][0] - self.now)
        if speed:
            ahead.append(self.work_s / speed)
        if self.then is not None and self.work_s <= 0:
            ahead.append(0.0)
        passed = max(0.0, min(ahead))
        self.now += passed
        self.work_s = max(0.0, self.work_s - passed * speed) if speed else self.work_s
        for engine, rate in zip(self.engines, rates, strict=True):
            engine.busy_s += passed * bool(engine.running)
            engine.clock += passed * rate
        self.settle()

    def settle(self) -> None:
        """Handle everything that is due at the current time."""
        for engine in self.engines:
            while engine.running and engine.running[0][0] <= engine.clock + TINY * (1 + engine.clock):
                _, _, episode, group = heapq.heappop(engine.running)
                if episode.outside_s:
                    self.at(episode.outside_s, partial(self.end_episode, group))
                else:
                    self.end_episode(group)
                self.seat(engine)
        while self.timers and self.timers[0][0] <= self.now + TINY * (1 + self.now):
            heapq.heappop(self.timers)[2]()
        if self.then is not None and self.work_s <= TINY:
            then, self.then = self.then, None
            then()
        self.take()

    def at(self, seconds: float, call: Callable[[], None]) -> None:
        self.order += 1
        heapq.heappush(self.timers, (self.now + seconds, self.order, call))

    # -- engines ------------------------------------------------------------------------------------------------------

    def feed(self) -> None:
        while self.free and self.sequence != self.total:
            self.free -= 1
            group = SimulatedGroup(self.sequence, self.live, self.groups(self.rng))
            group.left, self.sequence = len(group.episodes), self.sequence + 1
            self.open[group.sequence] = group
            self.waiting.append(group)
        self.dispatch()

    def dispatch(self) -> None:
        """The oldest group goes to the worker that has least, if that has room."""
        while self.waiting:
            number = min(range(len(self.engines)), key=lambda index: self.engines[index].given)
            engine, group = self.engines[number], self.waiting[0]
            if engine.given and engine.given + len(group.episodes) > self.setting.in_flight:
                return
            self.waiting.popleft()
            group.engine = number
            engine.given += len(group.episodes)
            engine.queue.extend((episode, group) for episode in group.episodes)
            self.seat(engine)

    def seat(self, engine: _Engine) -> None:
        while engine.queue and len(engine.running) < self.setting.seats:
            episode, group = engine.queue.popleft()
            self.order += 1
            heapq.heappush(engine.running, (engine.clock + episode.tokens, self.order, episode, group))

    def end_episode(self, group: SimulatedGroup) -> None:
        group.left -= 1
        if not group.left:
            self.finished[group.sequence] = self.open.pop(group.sequence)
            self.engines[group.engine].given -= len(group.episodes)
            self.dispatch()

    # -- the learner --------------------------------------------------------------------------------------------------

    def take(self) -> None:
        if self.then is not None or self.taken:
            return
        sequences = self.choose()
        if not sequences:
            return
        self.taken = [self.finished.pop(sequence) for sequence in sequences]
        self.wait_s, self.cost = self.now - self.since, self.costs(self.rng)
        self.work(self.cost.build_s, self.built)

    def choose(self) -> list[int]:
        """Which of the finished groups the next step trains; none while it waits. As `rlsys.buffer` does."""
        setting = self.setting
        if len(self.finished) < setting.groups_per_step:
            return []
        running = [group.start_version for group in self.open.values()]
        finished = [group.start_version for group in self.finished.values()]
        if count_missing(self.version, running, finished, setting.groups_per_step, setting.max_policy_lag):
            return []
        return sorted(self.finished)[: setting.groups_per_step]

    def work(self, seconds: float, then: Callable[[], None]) -> None:
        self.work_s, self.then = seconds, then

    def built(self) -> None:
        self.since = self.now
        if not self.publishing:
            self.update()

    def update(self) -> None:
        self.publish_wait_s = self.now - self.since
        self.since, change_s = self.now, self.setting.change_s
        self.asleep = change_s is not None
        self.work((change_s or 0.0) + self.cost.update_s + self.cost.export_s, self.trained)

    def trained(self) -> None:
        lag = max(self.version - group.start_version for group in self.taken)
        busy = sum(engine.busy_s for engine in self.engines) / len(self.engines)
        self.done.append(
            SimulatedStep(
                seconds=self.now - self.began, wait_s=self.wait_s, publish_wait_s=self.publish_wait_s,
                update_s=self.now - self.since, busy_s=busy - self.busy_before, lag=lag,
                tokens=sum(episode.tokens for group in self.taken for episode in group.episodes),
            )
        )  # fmt: skip
        self.began = self.since = self.now
        self.history += self.taken
        self.busy_before, self.taken, self.publishing = busy, [], True
        self.version += 1
        change_s = self.setting.change_s or 0.0
        self.at(change_s, self.wake)
        self.at(change_s + max(0.0, self.cost.publish_s - self.cost.pause_s), self.pause)
        self.at(change_s + self.cost.publish_s, self.published)

    def wake(self) -> None:
        self.asleep = False

    def pause(self) -> None:
        self.paused = True

    def published(self) -> None:
        self.paused = self.publishing = False
        self.live = self.version
        self.free += self.setting.groups_per_step
        self.feed()
        if self.taken and self.then is None:
            self.update()
