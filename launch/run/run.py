"""One run: what the stages share, how they wait, and how a run is saved, stopped and summed up."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from actors.pool import RolloutPool
from actors.renderer import ChatRenderer
from actors.services import Services
from actors.weights.check import Publication, logprob_gaps
from envs import make_world
from envs.rewards import solved_by
from launch.checkpoints.beginning import reference_of, takes_optimizer
from launch.checkpoints.checkpoint import DriverState
from launch.observe.gauges import Gauges
from launch.observe.health import Finding, Setting, Watch
from launch.observe.held_out import HELD_OUT, fallen
from launch.observe.progress import Progress
from launch.observe.pulse import Pulse
from launch.observe.row import StepRow
from launch.observe.tracking import Tracker
from launch.run.rundir import RunDir
from launch.run.stage_run import StageRun
from learners.group import LearnerGroup
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.journal import Journal
from rlsys.system.device import Device, known
from rlsys.types import Failure

log = logging.getLogger("rlsys.run")

LEAST_GRACE_S = 0.5
PROBE_TASKS = 4
PROBE_TOKENS = 64
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
    renderer: ChatRenderer
    device: Device  # what the actors compute on: CPUs or GPUs
    learner: LearnerGroup
    pool: RolloutPool
    services: Services  # tool servers and judges of the run's own
    progress: Progress
    tracker: Tracker
    gauges: Gauges
    model_path: str  # the model that the first stage begins with
    playing: Sequence[RecipeConfig] = ()  # the stages whose episodes the engines play
    earlier: DriverState  # as this process found it: what those that it continues have spent
    started: float = field(default_factory=time.monotonic)
    # -- what changes while it runs --
    stop: asyncio.Event = field(default_factory=asyncio.Event)  # set by Ctrl-C and SIGTERM
    stopped_at: float | None = None  # when that was
    gave_up: bool = False  # the learner was busy for too long after a stop: the last checkpoint stands
    background: set[asyncio.Task[Any]] = field(default_factory=set)  # an error in one of them ends the run
    error: BaseException | None = None  # the first of theirs
    failed: asyncio.Event = field(default_factory=asyncio.Event)  # set with it
    pulse: Pulse = field(default_factory=Pulse)
    pool_start: asyncio.Task[None] | None = None  # engines and services start while the first stage trains
    writing: asyncio.Task[None] | None = None  # a checkpoint that was copied (launch.run.saving)
    probe: tuple[tuple[int, ...], ...] = ()  # token ids of a few prompts, on which engines and learner are compared
    gap: dict[str, float] = field(default_factory=dict)  # between their log-probabilities, as last measured
    canaries: int = 0  # perturbed versions so far: -1, -2 ...; never trained, never sampled from
    before_row: DriverState | None = None  # where the account stood before a step whose row is yet to be written
    active: StageRun = field(init=False)  # the stage that is running, or the one that ended last

    def __post_init__(self) -> None:
        self.enter_stage()

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, work: Awaitable[Any]) -> Any:
        """Await `work`, unless a stop is asked for (StopRequested) or a background task fails (its error)."""
        task = asyncio.ensure_future(work)
        stop, failed = (asyncio.ensure_future(event.wait()) for event in (self.stop, self.failed))
        try:
            while True:
                beside = {each for each in (self.pool_start, self.writing) if each is not None and not each.done()}
                # Not on the background tasks: there is one for each open group.
                await asyncio.wait({task, stop, failed, *beside}, return_when=asyncio.FIRST_COMPLETED)
                self.raise_background_errors()
                if task.done():
                    return task.result()
                if stop.done():
                    raise StopRequested
        finally:
            for waiter in (task, stop, failed):
                waiter.cancel()
            await asyncio.gather(task, stop, failed, return_exceptions=True)

    async def complete(self, work: Awaitable[Any]) -> Any:
        """Await `work` to its end, a stop or not: half an update is worth nothing. After a stop it has the deadline of
        the checkpoint that would follow."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait({task}, timeout=self.grace_s)
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
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.error = self.error or task.exception()
            self.failed.set()

    def raise_background_errors(self) -> None:
        for beside in (self.pool_start, self.writing):  # what breaks there is said at once, and not when it is needed
            if beside is not None and beside.done() and not beside.cancelled():
                beside.result()
        if self.error is not None:
            raise self.error

    def forget_errors(self) -> None:
        """Those of tasks that ended: the run goes on without them."""
        self.error = None
        self.failed.clear()

    async def cancel_background(self) -> None:
        tasks, self.background = list(self.background), set()
        for task in tasks:
            task.remove_done_callback(self._ended)  # what breaks while it is being cancelled fails nobody
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def stop_deadline_s(self) -> float:
        return self.config.recipe.checkpoint.stop_deadline_s

    @property
    def grace_s(self) -> float:
        """Seconds of it that are left, at least a moment."""
        spent = time.monotonic() - (self.stopped_at or time.monotonic())
        return max(self.stop_deadline_s - spent, LEAST_GRACE_S)

    def check_stop(self) -> None:
        if self.stop.is_set():
            raise StopRequested

    # -- stages -------------------------------------------------------------------------------------------------------

    def enter_stage(self) -> None:
        """The next stage, as `state` says; the last one when all have been gone through."""
        stage = self.config.stages[min(self.state.stage_index, len(self.config.stages) - 1)]
        self.active = StageRun(stage=stage, world=make_world(stage.config.env))

    @property
    def saved_model(self) -> str:
        """What a stage starts from: the newest checkpoint's weights, or the run's first ones."""
        folder = self.dir.newest()
        return str(folder / "hf") if folder is not None else self.model_path

    async def begin_stage(self, stage: StageConfig, *, temperature: float = 1.0) -> None:
        """The learner takes the weights that this stage starts from and, in its middle or by its config, the optimizer.

        temperature: of the answers that it will learn from; 1 where nobody sampled them.
        """
        folder = self.dir.newest()
        self.active.reference = reference_of(stage, self.state, folder)
        await self.until(
            self.learner.begin(
                self.saved_model,
                stage.config.learner,
                stage.config.algorithm,
                total_steps=stage.steps,
                temperature=temperature,
                reference_path=str(self.active.reference or self.model_path),
            )
        )
        if folder is not None and takes_optimizer(stage, self.state):
            await self.until(self.learner.load(folder, optimizers_alone=self.state.stage_step == 0))
        self.active.watch = watch_on(self, stage)

    def end_stage(self, seconds: float) -> None:
        """Count it as gone through: the next checkpoint is of its end."""
        state, name, groups = self.state, self.active.stage.name, self.active.groups
        state.stage_s[name] = state.stage_s.get(name, 0.0) + seconds
        state.health = [asdict(finding) for finding in health(self)]
        if groups is not None:
            groups.save(state, name)
            state.sequences[name] = state.next_sequence
            self.active.groups = None
        state.end_stage()

    # -- weights ------------------------------------------------------------------------------------------------------

    async def export(self, version: int, *, perturb: bool = False) -> Publication:
        """Send the learner's weights as `version`, with its own log-probabilities of the probe to compare with."""
        folder = await self.pool.publisher.folder_on(self.learner.node_ids)
        published, expected = await self.learner.export(folder, version, self.probe, perturb=perturb)
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
        try:
            arrivals = await self.pool.publisher.publish(publication)
        except RunFailed:  # what the ranks wrote may have gone with their node: the next ones send it anew
            await self.learner.check(f"publishing version {publication.version}")
            raise
        seconds = time.monotonic() - started
        self.gap = {
            "mismatch/probe_mean": max(arrival.gap_mean for arrival in arrivals),
            "mismatch/probe_max": max(arrival.gap_max for arrival in arrivals),
        }
        carried, carry_s = self.pool.publisher.carried
        return {
            "weights/publish_s": seconds,
            "weights/pause_s": max(arrival.delivery.seconds for arrival in arrivals),
            "weights/probe_s": max(arrival.delivery.probe_s for arrival in arrivals),
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
        return self.earlier.wall_s + time.monotonic() - self.started

    @property
    def lost_tokens(self) -> int:
        return self.earlier.lost_tokens + self.pool.lost_tokens

    @property
    def restarts(self) -> dict[str, int]:
        counts = self.pool.restarts | self.services.restarts | {"learner": self.learner.restarts}
        return {name: self.earlier.restarts.get(name, 0) + count for name, count in counts.items()}

    def count_step(self) -> None:
        """Before a step enters the account: until it has its row, whoever sums up the run leaves it out."""
        self.before_row = replace(self.state, failures=dict(self.state.failures))

    def spend(self, generated: int, discarded: int) -> None:
        """Tokens of an evaluation, which belong to no step."""
        for account in filter(None, (self.state, self.before_row)):
            account.generated += generated
            account.discarded += discarded

    def record(self, row: StepRow, stage_steps: int, raised: Failure | None = None) -> None:
        """Into metrics.jsonl, to the tracker, and onto the terminal. raised: the first of what its episodes raised."""
        line = row.to_json() | self.pulse.row() | {"wall_s": self.wall_s}
        self.dir.log(line)
        self.before_row = None
        self.tracker.log(line)
        self.gauges.set(line)
        self.progress.step(row, stage_steps)
        watch = self.active.watch
        if watch is not None:
            watch.heard(raised)
        for says in watch.see(line) if watch is not None else ():
            self.progress.say(f"health: {says}")
            self.journal.note(row.stage, row.step, says)


def watch_on(run: Run, stage: StageConfig) -> Watch:
    """Over the rows that a resumed stage has already: what was said of them is not said again."""
    by = solved_by(stage.config.reward) or {}
    gpus = run.device is not None and run.device.gpus_per_actor > 0
    turns, place = run.active.world.max_turns, str(run.dir.path)
    watch = Watch(stage.name, Setting(recipe=stage.config, max_turns=turns, solved_by=by, gpus=gpus, run=place))
    for row in run.dir.rows(stage.name):
        watch.see(row)
    return watch


def health(run: Run) -> list[Finding]:
    """What was wrong, in the stages so far."""
    running = run.active.watch.findings() if run.active.watch is not None else []
    earlier = [each for each in (Finding(**row) for row in run.state.health) if each.what != HELD_OUT]
    of_rows = [*(each for each in earlier if each.stage not in {other.stage for other in running}), *running]
    return [*of_rows, *fallen(run.dir.evaluations(), run.config.stages)]


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
    world = run.active.world
    tasks = world.tasks("held_out")[:PROBE_TASKS] or world.tasks("train")[:PROBE_TASKS]
    prompts = [run.renderer.prompt_ids(world.env(task).first_messages()) for task in tasks]
    length = min(PROBE_TOKENS, run.config.recipe.engine.max_model_len - 1)
    probes = tuple(ids[-length:] for ids in prompts if len(ids) > 1)
    if not probes:
        raise BadInput(
            "the prompts of this environment have fewer than two tokens: engine and learner cannot be compared"
        )
    return probes
