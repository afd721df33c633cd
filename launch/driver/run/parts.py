"""The parts of a run: made from its configuration, and started."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from actors.placement import place
from actors.renderer import ChatRenderer
from actors.services import Services
from launch.checks import model_size
from launch.checks.chat_template import copy_with_template
from launch.checks.gpu_plan import host_bytes
from launch.checks.model_size import TEACHER
from launch.checks.models import whole_path
from launch.checks.prompts import prompt_lines
from launch.checks.teachers import check_teachers, teachers_of
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.checkpoints.proof import model_seal, seal_book
from launch.driver.observe.gauges import Gauges
from launch.driver.observe.progress import Progress
from launch.driver.observe.trackers.base import TrackedRun, flatten_config
from launch.driver.observe.trackers.feed import Trackers
from launch.driver.observe.trackers.table import make_trackers
from launch.driver.run import nodes, wire
from launch.driver.run.alternate import alternate
from launch.driver.run.cluster import connect, driver_node
from launch.driver.run.now_playing import forget_playing, show_playing
from launch.driver.run.record import begin_record, place_parts
from launch.driver.run.run import Run
from launch.driver.run.rundir import RunDir
from launch.run_dir.names import METRICS
from learners.rope import copy_scaled
from rlsys.adapters import MODEL
from rlsys.alternating_cards import AlternatingCards
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.files import files_or_bad_input, shorten_path
from rlsys.journal import Journal, read_journal
from rlsys.seals import digest_of
from rlsys.system.device import Device, require_device, resolve, resolve_run
from rlsys.system.weight_folder import WeightFolder

SHOWN_AT_START = 400  # characters of the first prompt


def make_run(
    config: RunConfig,
    directory: RunDir,
    state: DriverState,
    progress: Progress,
    *,
    text: str,
    playing: Sequence[RecipeConfig],
    trained: Sequence[RecipeConfig],
    weights: WeightFolder,
    overrides: Sequence[str] = (),
    known: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    forecast: Mapping[str, float] | None = None,
) -> Run:
    """Connects to Ray, builds a scratch policy where the recipe has no model, and starts no actor yet.

    text: the configuration as YAML. playing: of the stages that need engines. trained: of those whose learner trains on
    what the engines play. overrides: as typed. known: data files whose digests have just been compared.
    forecast: seconds of a step's phases, where they are known.
    """
    with files_or_bad_input():
        journal = open_journal(directory, state, text, progress)
        provenance = begin_record(directory.path, config, text, state.step, overrides, known)
        model_path = starting_model(config.recipe, directory, progress)
        if Path(model_path) == directory.path.resolve() / MODEL and wire.resolved_model_path(config.recipe) is None:
            seal_model(directory, journal)
    renderer = load_renderer(config, model_path, playing, progress)
    device = start_ray(config.recipe, wire.services(playing, trained) if playing else None, progress)
    config = resolve_run(config, device)
    recipe, playing = config.recipe, [resolve(stage_recipe, device) for stage_recipe in playing]
    services = wire.services(playing, [resolve(stage_recipe, device) for stage_recipe in trained])
    services.on_gpus = bool(device.gpus_per_actor)
    for stage in config.stages:
        require_device(stage.config.learner, device)
    cards, update_s = AlternatingCards(), (forecast or {}).get("update")
    learner = wire.learner(recipe, device, directory.path / "nccl", loaded_teachers(config), update_s, cards)
    pool = wire.pool(recipe, device, model_path, services.token, wire.secrets_of(playing), weights, playing, cards)
    alternate(recipe, cards, learner, pool)
    return Run(
        config=config,
        dir=directory,
        state=state,
        journal=journal,
        renderer=renderer,
        device=device,
        learner=learner,
        pool=pool,
        cards=cards,
        services=services,
        provenance=provenance,
        progress=progress,
        tracker=start_trackers(recipe, directory, text, state.step, progress),
        gauges=Gauges(directory.path.name, gauges_at_start(config, state)),
        model_path=model_path,
        playing=playing,
        forecast=forecast or {},
        earlier=state,
        started=progress.started,
    )


def start_ray(recipe: RecipeConfig, services: Services | None, progress: Progress) -> Device:
    """Or find the cluster. services: None where nothing is played."""
    progress.begin("starting Ray")
    return connect(recipe.cluster, partial(wire.needs_of_run, recipe, services), run=recipe.name)


def open_journal(directory: RunDir, state: DriverState, text: str, progress: Progress) -> Journal:
    """Of a process that begins or continues the run, with the configuration that it has."""
    if missing := directory.rewind_metrics(state.step):
        progress.say(
            f"{shorten_path(directory.path / METRICS)}: the rows of {len(missing)} of {state.step} steps are "
            f"missing, the first of step {missing[0]}: the run continues, its curves have a hole and `health` has "
            "not seen them"
        )
    journal = Journal(directory.journal, keep=state.mark)
    directory.write("config.yaml", text)
    journal.seal("config.yaml", digest_of(text.encode()))
    directory.seal_newest(journal)
    directory.keep_reserve()
    return journal


def load_renderer(
    config: RunConfig, model_path: str, playing: Sequence[RecipeConfig], progress: Progress
) -> ChatRenderer:
    """With a look at what it renders: the first prompt of each stage is shown, teachers must read the same tokens."""
    renderer = ChatRenderer(model_path)
    check_teachers((stage.config for stage in config.stages), renderer.tokenizer, "the policy")
    for line in prompt_lines(renderer, model_path, playing, most=SHOWN_AT_START, config=config):
        progress.say(line)
    return renderer


def gauges_at_start(config: RunConfig, state: DriverState) -> dict[str, float]:
    return {"step": state.step, "time": time.time(), "run/steps_planned": sum(stage.steps for stage in config.stages)}


def start_trackers(recipe: RecipeConfig, directory: RunDir, text: str, step: int, progress: Progress) -> Trackers:
    tracked = TrackedRun(
        directory=directory.path,
        name=f"{recipe.name} seed {recipe.seed}",
        config=flatten_config(text),
        step=step,
        settings=recipe.wandb,
    )
    tracker, uploads = make_trackers(recipe, tracked)
    for line in uploads:
        progress.say(line)
    return tracker


def starting_model(recipe: RecipeConfig, directory: RunDir, progress: Progress) -> str:
    """`model.path`, or the scratch policy, built once per run directory."""
    model_path = wire.resolved_model_path(recipe)
    scale, window = recipe.learner.rope_theta_scale, recipe.engine.max_model_len
    folder = directory.path / MODEL
    if model_path is not None:
        scaled = copy_scaled(model_path, scale, folder, window) if scale != 1.0 else model_path
        return copy_with_template(scaled, recipe.model, folder)
    if not directory.checkpoints():  # nothing was learned yet: the configuration may be another one now
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        progress.begin("building the policy and its tokenizer from nothing")
        temporary = folder.with_name(".model.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        wire.build_scratch_model(recipe, temporary)
        temporary.rename(folder)
    return copy_with_template(str(folder.resolve()), recipe.model, folder)


def seal_model(directory: RunDir, journal: Journal) -> None:
    """The policy that the run has built is read once, when it has been built."""
    seal = seal_book(read_journal(directory.journal)).newest(MODEL)
    if not seal or not directory.checkpoints():
        journal.seal(MODEL, model_seal(directory.path / MODEL))


def loaded_teachers(config: RunConfig) -> list[str]:
    return teachers_of((stage.config for stage in config.stages), loaded_by_ranks=True)


async def start_parts(run: Run, *, engines: bool) -> None:
    """The learner first: a supervised stage trains while the engines are still starting, on cards of their own."""
    forget_playing(run.dir.path)
    recipe = run.config.recipe
    ranks, workers = recipe.learner.ranks, recipe.rollout.workers
    run.progress.begin(f"starting {ranks} learner rank(s)" + (f", {workers} rollout worker(s)" if engines else ""))
    needs = wire.needs_of_run(recipe, run.services if engines else None, run.device)
    places = await place(needs, timeout_s=recipe.cluster.placement_timeout_s, run=recipe.name)
    placement = wire.places_of_run(recipe, places) if engines else places
    shared = [(f"--run-dir {run.dir.path}", run.dir.path)]
    model = ("model.path", run.model_path)
    trained = [stage.config for stage in run.config.stages]
    report = await nodes.check_nodes(
        placement, recipe, run.playing, run.services, run.device, model=model, shared=shared, ranks=ranks,
        teachers=[(TEACHER, whole_path(path)) for path in loaded_teachers(run.config)],
        host_bytes=host_bytes(recipe, trained, run.device, model_size.parameters(recipe)), doing=run.progress.doing,
    )  # fmt: skip
    for line in report.held:
        run.progress.say(line)
    if run.provenance is not None:
        run.provenance.update(nodes=await asyncio.to_thread(nodes_of, run, report, engines))
    if run.cards.alternate:  # an engine measures its card as it starts: what a rank always keeps there has to be there
        await run.learner.start(placement[:ranks])
    if engines:
        for_workers, for_services = placement[ranks : ranks + workers], placement[ranks + workers :]
        run.tasks.pool_start = asyncio.create_task(start_engines(run, for_workers, for_services))
    await run.learner.start(placement[:ranks])
    if len(set(run.learner.nodes)) > 1:
        run.progress.say(f"learner ranks: {on_nodes(run.learner.nodes)}")


def nodes_of(run: Run, report: nodes.CheckedNodes, engines: bool) -> list[dict[str, Any]]:
    """The machines of a run and what is on each, for its record."""
    recipe = run.config.recipe
    names = [f"learner rank {rank}" for rank in range(recipe.learner.ranks)]
    if engines:
        names += [f"rollout:{worker}" for worker in range(recipe.rollout.workers)]
        names += [spec.name for spec in run.services.servers]
    return place_parts(names, report.placed, report.machines, driver=driver_node() if report.placed else "")


def on_nodes(nodes: Sequence[str]) -> str:
    """The address of every rank, in their order: "0-7 on 10.0.0.2, 8-15 on 10.0.0.3"."""
    ranges, first = [], 0
    for node, group in groupby(nodes):
        last = first + len(list(group)) - 1
        ranges.append((f"{first}-{last}" if last > first else f"{first}") + f" on {node}")
        first = last + 1
    return ", ".join(ranges)


async def start_engines(run: Run, for_workers: list[Any], for_services: list[Any]) -> None:
    """The rollout workers, and the tool services that their environments call."""
    show_playing(run)
    await asyncio.gather(run.pool.start(for_workers), run.services.start(for_services, run.connect))
