"""One run: what the stages share, how they wait, and how a run is saved, stopped and summed up."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from actors.renderer import ChatRenderer
from envs import make_world
from envs.base import World
from envs.rewards import solved_thresholds
from envs.services.secrets import secret_variables
from launch.checks.models import whole_path
from launch.driver.checkpoints.beginning import (
    begins_adapter,
    continues_optimizer,
    initial_weights_of,
    learner_config_of,
    reference_weights_folder,
)
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.checkpoints.stop_time import stop_deadline_s
from launch.driver.incidents.keeper import IncidentKeeper
from launch.driver.observe.events import Events, Kind
from launch.driver.observe.gauges import Gauges
from launch.driver.observe.health import Finding, HealthMonitor
from launch.driver.observe.held_out import OF_EVALUATIONS, find_in_evaluations
from launch.driver.observe.history import HealthSetting
from launch.driver.observe.phases import PhaseWatch
from launch.driver.observe.progress import Progress
from launch.driver.observe.row import EventLoopLag, StepRow
from launch.driver.observe.trackers.feed import Trackers
from launch.driver.run.record import RunRecord
from launch.driver.run.rundir import RunDir
from launch.driver.run.tasks import Tasks
from launch.driver.run.weight_sync import WeightSync
from launch.run_dir.names import EVENTS, metrics_line_name
from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE
from rlsys.adapters import BASES
from rlsys.alternating_cards import AlternatingCards
from rlsys.buffer import SlotBuffer
from rlsys.config.recipe import RecipeConfig, RunConfig, StageConfig
from rlsys.curriculum import Curriculum
from rlsys.journal import Journal
from rlsys.summaries import GroupRef
from rlsys.system.device import Device, dtype_of, rounding_units
from rlsys.system.served import REFERENCE_SERVICE, ReferenceAddress
from rlsys.types import Failure, Reward

if TYPE_CHECKING:  # Ray and torch behind these: a stage's file is loaded where its keys are checked
    from actors.pool import RolloutPool
    from actors.services import Services
    from learners.group import LearnerGroup


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
    """What belongs to one stage while it runs: made when it begins, never reset. A run that goes back makes another."""

    stage: StageConfig
    world: World  # whose training tasks the stage goes through
    long: Mapping[str, float] = field(default_factory=dict)  # seconds that its phases may well take
    watch: HealthMonitor | None = None  # on its rows, from `Run.begin_stage` on
    reference: Path | None = None  # (launch.driver.checkpoints.beginning): in the newest checkpoint
    groups: OpenGroups | None = None  # of an rl stage, once it plays


def tokens_and_reward(group: GroupRef) -> list[float]:
    """Its sampled tokens and its mean reward."""
    rewards = [trajectory.reward.value for trajectory in group.summaries if isinstance(trajectory.reward, Reward)]
    return [float(sum(trajectory.num_sampled for trajectory in group.summaries)), sum(rewards) / len(rewards)]


@dataclass(slots=True, kw_only=True)
class Run:
    """What the stages of one run share. Made once by `run/parts.py`; the stages change what is below the line."""

    config: RunConfig
    dir: RunDir
    state: DriverState  # how far the run has come: what a checkpoint saves of the driver
    journal: Journal  # what became of every group of tasks
    renderer: ChatRenderer
    device: Device  # what the actors compute on: CPUs or GPUs
    learner: LearnerGroup
    pool: RolloutPool
    cards: AlternatingCards = field(default_factory=AlternatingCards)  # that the two share
    services: Services  # tool servers and judges of the run's own
    progress: Progress
    tracker: Trackers
    gauges: Gauges
    provenance: RunRecord | None = None  # run.json; None where nothing of it is to be kept, as in tests
    model_path: str  # the model that the first stage begins with
    playing: Sequence[RecipeConfig] = ()  # the stages whose episodes the engines play
    forecast: Mapping[str, float] = field(default_factory=dict)  # seconds of a step's phases, where they are known
    earlier: DriverState  # as this process found it: what those that it continues have spent
    started: float = field(default_factory=time.monotonic)
    # -- what changes while it runs --
    ended: float | None = None  # when its summary was made: the closing line says the same seconds
    loop_lag: EventLoopLag = field(default_factory=EventLoopLag)
    saved_at: float = field(default_factory=time.monotonic)  # when the learner was last copied, or loaded
    before_row: DriverState | None = None  # where the account stood before a step whose row is yet to be written
    tasks: Tasks = field(init=False)
    sync: WeightSync = field(init=False)
    events: Events = field(init=False)
    phases: PhaseWatch = field(init=False)  # of the step in progress
    incidents: IncidentKeeper = field(init=False)
    asks_reference: bool = False  # the learner has been told where its reference model answers
    active: StageRun = field(init=False)  # the stage that is running, or the one that ended last

    def __post_init__(self) -> None:
        self.tasks = Tasks(stop_deadline_s(self.config, self.device))
        units = rounding_units(self.config.recipe, self.device)
        limit = self.config.recipe.loop.mismatch_limit
        self.sync = WeightSync(self.learner, self.pool, units, limit, self.cards)
        self.enter_stage()
        self.events = Events(self.dir.path / EVENTS, self.where)
        incidents_config = self.config.recipe.incidents
        self.phases = PhaseWatch(
            incidents_config.stall_factor, incidents_config.stall_floor_s, lambda: self.active.stage.name,
            deadline_s=self.config.recipe.learner.update_timeout_s, forecast=self.forecast,
            long=lambda: self.active.long,
        )  # fmt: skip
        self.incidents = IncidentKeeper(
            self.dir.path, incidents_config, self.where, self.phases, lines=lambda: self.progress.last_lines,
            named=_secret_names(self.config),
        )  # fmt: skip

    def where(self) -> tuple[int, str]:
        """The steps that were taken, and the stage that runs."""
        return self.state.step, self.active.stage.name

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

        temperature: of the answers that it will learn from; 1 where none was sampled.
        """
        folder = self.dir.newest()
        self.progress.doing(f"stage {stage.name}: the ranks load its weights")
        self.active.reference = reference_weights_folder(stage, self.state, folder)
        model, adapter = initial_weights_of(self.dir.path, stage, self.saved_model, self.model_path)
        if Path(model).parent == self.dir.path.resolve() / BASES:
            self.journal.seal(f"{BASES}/{Path(model).name}", Path(model).name)
        compared = model if begins_adapter(stage) and stage.config.learner.reference == "stage" else self.model_path
        teacher = stage.config.learner.teacher
        teacher_path = None if teacher is None else whole_path(teacher)
        served = await self.find_reference(stage)
        await self.tasks.until(
            self.learner.begin(
                model,
                learner_config_of(stage),
                stage.config.algorithm,
                total_steps=stage.steps,
                temperature=temperature,
                reference_path=str(self.active.reference or teacher_path or compared),
                start=adapter,
                **({} if served is None else {"served": served}),
            )
        )
        # Started again while they were loading, it had no stage to be told to.
        if served is not None and served != (newest := self.reference_address):
            await self.tasks.until(self.learner.connect(newest))
        if folder is not None and continues_optimizer(stage, self.state):
            await self.tasks.until(self.learner.load(folder, optimizers_alone=self.state.stage_step == 0))
        self.active.watch = watch_on(self, stage)
        self.saved_at = time.monotonic()

    async def find_reference(self, stage: StageConfig) -> ReferenceAddress | None:
        """Where the reference model of a stage answers, if it has an engine of its own, once it does."""
        if stage.config.learner.served_teacher is None or REFERENCE not in make_algorithm(stage.config.algorithm).needs:
            return None
        assert self.tasks.pool_start is not None, "an rl stage without engines"
        await self.tasks.until(asyncio.shield(self.tasks.pool_start))
        self.asks_reference = True
        return self.reference_address

    @property
    def reference_address(self) -> ReferenceAddress:
        return ReferenceAddress(url=self.services.addresses[REFERENCE_SERVICE], token=self.services.token)

    async def connect(self, addresses: Mapping[str, str]) -> None:
        """Services have these addresses from now on."""
        await self.pool.connect(addresses)
        if self.asks_reference and REFERENCE_SERVICE in addresses:
            await self.learner.connect(self.reference_address)

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

    # -- what happens -------------------------------------------------------------------------------------------------

    def note(self, kind: Kind, text: str, *, who: str = "", sign: str = "", **numbers: float | None) -> None:
        """On the terminal, and into events.jsonl."""
        self.progress.say(text)
        self.events.add(kind, text, who=who, sign=sign, **numbers)

    def begin(self, kind: Kind, text: str) -> None:
        """The same of something that takes a while, and is awaited from now on."""
        self.progress.doing(text)
        self.note(kind, text)

    # -- the account --------------------------------------------------------------------------------------------------

    @property
    def wall_s(self) -> float:
        return self.earlier.wall_s + (self.ended or time.monotonic()) - self.started

    @property
    def lost_tokens(self) -> int:
        return self.earlier.lost_tokens + self.pool.lost_tokens

    @property
    def restarts(self) -> dict[str, int]:
        """Of all processes; also of parts that this one no longer has."""
        counts = self.pool.restarts | self.services.restarts | {"learner": self.learner.restarts}
        earlier = self.earlier.restarts
        return {name: earlier.get(name, 0) + counts.get(name, 0) for name in {**earlier, **counts}}

    def export_account(self, planned: int) -> dict[str, float]:
        """What Prometheus gets besides a row. planned: steps of the stages up to this one."""
        later = self.config.stages[self.state.stage_index + 1 :]
        return {
            "run/steps_planned": planned + sum(stage.steps for stage in later),
            "restarts/engine": sum(self.pool.restarts.values()),
            "restarts/service": sum(self.services.restarts.values()),
            "restarts/learner": self.learner.restarts,
        }

    def count_step(self, trained: int) -> None:
        """A step enters the account: until it has its row, a summary of the run leaves it out."""
        self.before_row = replace(self.state, failures=dict(self.state.failures))
        self.state.step += 1
        self.state.stage_step += 1
        self.state.trained += trained

    def add_evaluation_tokens(self, generated: int, discarded: int) -> None:
        """Tokens of an evaluation, which belong to no step."""
        for account in filter(None, (self.state, self.before_row)):
            account.generated += generated
            account.discarded += discarded

    def log_step_metrics(self, row: StepRow, stage_steps: int, raised: Failure | None = None) -> None:
        """Into metrics.jsonl (its seal into the journal), to the tracker, and onto the terminal; with what
        the health signs say of it. raised: the first of what its episodes raised."""
        line = row.to_json() | self.loop_lag.row() | {"wall_s": self.wall_s, "time": round(time.time(), 3)}
        self.journal.seal(metrics_line_name(row.step), self.dir.log(line))
        self.before_row = None
        self.tracker.log(line)
        self.gauges.set(line | self.export_account(row.step - row.stage_step + stage_steps))
        self.progress.step(row, stage_steps)
        watch = self.active.watch
        if watch is not None:
            watch.record_failure(raised)
        for sign, says in watch.see(line).items() if watch is not None else ():
            self.note("health", f"health: {says}", sign=sign)
            self.journal.note(row.stage, row.step, says)


def _secret_names(config: RunConfig) -> tuple[str, ...]:
    """The variables that any part of it names."""
    recipes = [config.recipe, *(stage.config for stage in config.stages)]
    parts = [part for recipe in recipes for view in recipe.by_env.values() for part in (view, view.env, view.reward)]
    return tuple(sorted({name for part in parts if is_dataclass(part) for name in secret_variables(part)}))


def watch_on(run: Run, stage: StageConfig) -> HealthMonitor:
    """Over the rows that a resumed stage has already: what was said of them is not said again."""
    by = solved_thresholds(stage.config.reward) or {}
    gpus = run.device.gpus_per_actor > 0
    turns, place = run.active.world.max_turns, str(run.dir.path)
    dtype = dtype_of(stage.config.model.dtype, run.device)
    watch = HealthMonitor(
        stage.name, HealthSetting(recipe=stage.config, max_turns=turns, solved_by=by, gpus=gpus, run=place, dtype=dtype)
    )
    for row in run.dir.rows(stage.name):
        watch.see(row)
    return watch


def health(run: Run) -> list[Finding]:
    """What was wrong, in the stages so far."""
    running = run.active.watch.findings() if run.active.watch is not None else []
    earlier = [entry for entry in (Finding(**row) for row in run.state.health) if entry.what not in OF_EVALUATIONS]
    of_rows = [*(old for old in earlier if old.stage not in {new.stage for new in running}), *running]
    played = run.dir.evaluations()
    return [*of_rows, *find_in_evaluations(played, run.config.stages)]
