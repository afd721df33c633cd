"""One run: what the stages share, how they wait, and how a run is saved, stopped and summed up."""

from __future__ import annotations

import asyncio
import copy
import errno
import logging
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Awaitable, Coroutine
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from actors.arrivals import Publication, logprob_gaps
from actors.pool import RolloutPool
from actors.renderer import ChatRenderer
from actors.services import Services
from envs.base import World
from envs.rewards import solved_by
from launch.run.checkpoints import DriverState, step_of
from launch.run.gauges import Gauges
from launch.run.health import Finding, Setting, Watch
from launch.run.progress import Progress
from launch.run.row import StepRow
from launch.run.rundir import RunDir
from launch.run.tracking import Tracker
from learners.group import LearnerGroup
from rlsys.buffer import SlotBuffer
from rlsys.channels.base import WeightChannel
from rlsys.config import RunConfig, StageConfig
from rlsys.curriculum import Curriculum
from rlsys.device import Device, known
from rlsys.errors import BadInput, RunFailed
from rlsys.journal import Journal
from rlsys.types import Group, Reward

log = logging.getLogger("rlsys.run")

UPDATE_GRACE_S = 10.0  # for what the learner is doing when a stop is asked for
PROBE_TASKS = 4
PROBE_TOKENS = 64
FULL_BYTES = 2**20  # less room than this on a disk on which saving fails is why
CANARY_LEAST = 0.2  # nats per token that the perturbation has to move


class StopRequested(Exception):
    """Ctrl-C or SIGTERM: save, sum up, leave."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What the stages of one run share. Made once by `launch.run.parts`; the stages change what is below the line."""

    config: RunConfig
    dir: RunDir
    state: DriverState  # how far the run has come: what a checkpoint saves of the driver
    journal: Journal  # what became of every group of tasks
    world: World  # of the stage that is running
    renderer: ChatRenderer
    device: Device  # what the actors compute on: CPUs or GPUs
    learner: LearnerGroup
    pool: RolloutPool
    services: Services  # tool servers and judges of the run's own
    progress: Progress
    tracker: Tracker
    gauges: Gauges
    weights: WeightChannel  # from the learner to the engines
    model_path: str  # the model that the first stage begins with
    earlier_s: float = 0.0  # wall seconds of the processes that this one continues
    earlier_lost: int = 0  # tokens that their workers took with them when they died
    earlier_restarts: dict[str, int] = field(default_factory=dict)  # of their workers and services, by name
    started: float = field(default_factory=time.monotonic)
    # -- what changes while it runs --
    stop: asyncio.Event = field(default_factory=asyncio.Event)  # set by Ctrl-C and SIGTERM
    stopped_at: float | None = None  # when that was
    gave_up: bool = False  # the learner was busy for too long after a stop: the last checkpoint stands
    background: set[asyncio.Task[Any]] = field(default_factory=set)  # an error in one of them ends the run
    pool_start: asyncio.Task[None] | None = None  # engines and services start while the first stage trains
    probe: tuple[tuple[int, ...], ...] = ()  # token ids of a few prompts, on which engines and learner are compared
    gap: dict[str, float] = field(default_factory=dict)  # between their log-probabilities, as last measured
    canaries: int = 0  # perturbed versions so far: -1, -2 ...; never trained, never sampled from
    buffer: SlotBuffer | None = None  # of the rl stage that is running
    curriculum: Curriculum | None = None  # of the rl stage that is running
    watch: Watch | None = None  # on the rows of the stage that is running
    reissue: deque[int] = field(default_factory=deque)  # groups that an earlier process began: next to get a slot

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, work: Awaitable[Any]) -> Any:
        """Await `work`, unless a stop is asked for (StopRequested) or a background task fails (its error)."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stop.wait())
        try:
            while True:
                starting = {self.pool_start} if self.pool_start is not None and not self.pool_start.done() else set()
                await asyncio.wait({task, stop, *starting, *self.background}, return_when=asyncio.FIRST_COMPLETED)
                self.raise_background_errors()
                if task.done():
                    return task.result()
                if stop.done():
                    raise StopRequested
        finally:
            for waiter in (task, stop):
                waiter.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)

    async def complete(self, work: Awaitable[Any]) -> Any:
        """Await `work` to its end, a stop or not: half an update is worth nothing. After a stop it has a deadline."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                spent = time.monotonic() - (self.stopped_at or time.monotonic())
                await asyncio.wait({task}, timeout=max(UPDATE_GRACE_S - spent, 0.5))
            if task.done():
                return task.result()
            self.gave_up = True
            task.cancel()
            raise StopRequested
        finally:
            stop.cancel()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self.background.add(task)
        return task

    def raise_background_errors(self) -> None:
        if self.pool_start is not None and self.pool_start.done() and not self.pool_start.cancelled():
            self.pool_start.result()  # engines that cannot start are said at once, and not when they are needed
        for task in [task for task in self.background if task.done()]:
            self.background.discard(task)
            if not task.cancelled():
                task.result()

    async def cancel_background(self) -> None:
        tasks, self.background = list(self.background), set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check_stop(self) -> None:
        if self.stop.is_set():
            raise StopRequested

    # -- stages -------------------------------------------------------------------------------------------------------

    @property
    def saved_model(self) -> str:
        """What a stage starts from: the newest checkpoint's weights, or the run's first ones."""
        folder = self.dir.newest()
        return str(folder / "hf") if folder is not None else self.model_path

    async def begin_stage(self, stage: StageConfig, *, temperature: float = 1.0) -> None:
        """The learner takes the weights that this stage starts from and, in its middle, the optimizer that it had.

        temperature: of the answers that it will learn from; 1 where nobody sampled them.
        """
        await self.until(
            self.learner.begin(
                self.saved_model,
                stage.config.learner,
                stage.config.algorithm,
                total_steps=stage.steps,
                temperature=temperature,
                reference_path=self.model_path,
            )
        )
        folder = self.dir.newest()
        if folder is not None and self.state.stage_step > 0:
            await self.until(self.learner.load(folder))
        self.state.health = [asdict(finding) for finding in health(self)]  # of the stage before
        self.watch = watch_on(self, stage)

    async def checkpoint(self, stage: StageConfig) -> None:
        """Everything that the run needs to go on from here.

        The driver's part is copied at one moment: the feeder goes on while the learner saves. Where no step was taken
        since the newest checkpoint, its weights are these.
        """
        self.journal.commit()
        self.remember(stage)
        state = copy.deepcopy(self.state)
        state.mark = self.journal.mark
        state.health = [asdict(finding) for finding in health(self)]
        state.wall_s, state.lost_tokens, state.restarts = self.wall_s, self.lost_tokens, self.restarts
        open_tickets = self.buffer.open_tickets if self.buffer else []
        state.open_sequences = [*(ticket.sequence for ticket in open_tickets), *self.reissue]
        state.dull = {str(group.ticket.sequence): summed(group) for group in self.buffer.dull} if self.buffer else {}
        newest = self.dir.newest()
        if newest is not None and step_of(newest) == state.step:
            self.dir.renew_checkpoint(newest, state)
            return
        folder = self.dir.begin_checkpoint(state.step)
        unwanted = threading.Event()
        try:
            await self.learner.save(folder, self.model_path)
            keep = stage.config.checkpoint.keep
            await asyncio.to_thread(self.dir.commit_checkpoint, folder, state, keep, unwanted.is_set)
        except asyncio.CancelledError:
            unwanted.set()  # a thread is not cancelled: it ends by itself, and makes no checkpoint
            raise
        except Exception as error:
            full = shutil.disk_usage(folder).free < FULL_BYTES
            shutil.rmtree(folder, ignore_errors=True)  # half of one is worth nothing, and a full disk needs its room
            if full:  # torch says "unexpected pos 5781888 vs 5781776"
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from error
            raise

    def remember(self, stage: StageConfig) -> None:
        """What the curriculum knows, into the state that the next checkpoint saves."""
        if self.curriculum is not None:
            self.state.curriculum[stage.name] = self.curriculum.state()

    # -- weights ------------------------------------------------------------------------------------------------------

    async def export(self, version: int, *, perturb: bool = False) -> Publication:
        """Send the learner's weights as `version`, with its own log-probabilities of the probe to compare with."""
        channel = await self.pool.sending(self.weights, self.learner.node_ids)
        published, expected = await self.learner.export(channel, version, self.probe, perturb=perturb)
        return Publication(published=published, probe=self.probe, expected=tuple(map(tuple, expected)))

    async def deliver(self, version: int) -> dict[str, float]:
        """Export the learner's weights as `version`, deliver them to every engine, and measure the gap."""
        started = time.monotonic()
        row = await self.publish(await self.export(version))
        self.journal.publish(version, step=self.state.step)
        row["time/publish_total"] = time.monotonic() - started
        return row

    async def publish(self, publication: Publication) -> dict[str, float]:
        """Deliver an exported version to every engine."""
        started = time.monotonic()
        arrivals = await self.pool.publish(publication)
        seconds = time.monotonic() - started
        self.gap = {
            "mismatch/probe_mean": max(arrival.gap_mean for arrival in arrivals),
            "mismatch/probe_max": max(arrival.gap_max for arrival in arrivals),
        }
        carried, carry_s = self.pool.carried
        return {
            "weights/publish_s": seconds,
            "weights/pause_s": max(arrival.delivery.seconds for arrival in arrivals),
            "weights/carried_mb": carried / 2**20,
            "weights/carry_s": carry_s,
        }

    async def canary(self) -> None:
        """Prove that weights arrive, with a change large enough to see (docs/laws.md, law 8).

        Visibly perturbed weights go out and are compared with the learner, by what they moved (`allowed_gap`); then the
        true ones go out.
        """
        true = await self.learner.logprobs(self.probe)
        self.canaries += 1
        perturbed = await self.export(-self.canaries, perturb=True)
        limit = known(self.config.recipe.loop.mismatch_limit)
        gaps = logprob_gaps(true, perturbed.expected)
        moved = sum(gaps) / len(gaps)
        if moved <= min(2 * limit, CANARY_LEAST):
            raise RunFailed(
                f"the start-up canary moved log-probabilities by {moved:.3g} only: it could not show a stale engine"
            )
        await self.publish(replace(perturbed, moved=moved))

    # -- the account --------------------------------------------------------------------------------------------------

    @property
    def wall_s(self) -> float:
        return self.earlier_s + time.monotonic() - self.started

    @property
    def lost_tokens(self) -> int:
        return self.earlier_lost + self.pool.lost_tokens

    @property
    def restarts(self) -> dict[str, int]:
        counts = self.pool.restarts | self.services.restarts
        return {name: self.earlier_restarts.get(name, 0) + count for name, count in counts.items()}

    def record(self, row: StepRow, stage_steps: int) -> None:
        """Into metrics.jsonl, to the tracker, and onto the terminal."""
        line = row.to_json() | {"wall_s": self.wall_s}
        self.dir.log(line)
        self.tracker.log(line)
        self.gauges.set(line)
        self.progress.step(row, stage_steps)
        for says in self.watch.see(line) if self.watch is not None else ():
            self.progress.say(f"health: {says}")
            self.journal.note(row.stage, row.step, says)


def summed(group: Group) -> list[float]:
    """Its sampled tokens and its mean reward."""
    rewards = [each.reward.value for each in group.trajectories if isinstance(each.reward, Reward)]
    return [float(sum(each.num_sampled for each in group.trajectories)), sum(rewards) / len(rewards)]


def watch_on(run: Run, stage: StageConfig) -> Watch:
    """Over the rows that a resumed stage has already: what was said of them is not said again."""
    by = solved_by(stage.config.reward) or {}
    watch = Watch(stage.name, Setting(recipe=stage.config, max_turns=run.world.max_turns, solved_by=by))
    for row in run.dir.rows(stage.name):
        watch.see(row)
    return watch


def health(run: Run) -> list[Finding]:
    """What was wrong, in the stages so far."""
    running = run.watch.findings() if run.watch is not None else []
    earlier = [Finding(**row) for row in run.state.health]
    return [*(finding for finding in earlier if finding.stage not in {each.stage for each in running}), *running]


async def first_delivery(run: Run) -> None:
    """Wait for the engines to start, show that a delivery changes what they say, then deliver."""
    assert run.pool_start is not None
    if not run.pool_start.done():
        run.progress.begin("waiting for the rollout engines")
    await run.until(asyncio.shield(run.pool_start))
    run.progress.doing("proving that weights arrive")
    run.probe = probe(run)
    await run.until(run.canary())
    if run.state.version == 0:
        run.state.version = 1
    await run.until(run.deliver(run.state.version))
    run.progress.say(f"weights delivered and proven: engine-learner gap {run.gap['mismatch/probe_max']:.1e}")


def probe(run: Run) -> tuple[tuple[int, ...], ...]:
    """A few held-out prompts, cut short: what engine and learner are compared on."""
    tasks = run.world.tasks("held_out")[:PROBE_TASKS] or run.world.tasks("train")[:PROBE_TASKS]
    prompts = [run.renderer.prompt_ids(run.world.env(task).first_messages()) for task in tasks]
    length = min(PROBE_TOKENS, run.config.recipe.engine.max_model_len - 1)
    probes = tuple(ids[-length:] for ids in prompts if len(ids) > 1)
    if not probes:
        raise BadInput(
            "the prompts of this environment have fewer than two tokens: engine and learner cannot be compared"
        )
    return probes
