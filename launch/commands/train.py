"""`rlsys train`: open the run directory, start the parts, go through the stages, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from actors.placement import Need, place
from actors.renderer import ChatRenderer
from envs import make_world
from launch.config import compose
from launch.run import cleanup as reap
from launch.run import preflight, wire
from launch.run.cluster import connect
from launch.run.progress import Progress
from launch.run.run import Run, StopRequested
from launch.run.run_dirs import choose_run_dir
from launch.run.rundir import DriverState, RunDir
from launch.run.tracking import Tracker
from launch.stages.datasets import given_data
from launch.stages.dpo import dpo_stage
from launch.stages.generate import generate_stage
from launch.stages.rl import rl_stage
from launch.stages.sft import demonstrable, sft_stage
from learners.rope import scaled_copy
from learners.zero import require_device
from rlsys.channels import open_channel, remove_stale
from rlsys.config import RunConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.journal import Journal

STAGES = {"sft": sft_stage, "rl": rl_stage, "generate": generate_stage, "dpo": dpo_stage}
SAVE_DEADLINE_S = 10.0  # of the checkpoint that a stop writes


async def train(run: Run) -> None:
    """All stages of a recipe, in order; a resumed run enters the one that it was in."""
    state, stages = run.state, run.config.stages
    while state.stage_index < len(stages):
        stage = stages[state.stage_index]
        started = time.monotonic()
        run.world = make_world(stage.config.env)
        await STAGES[stage.kind](run, stage)
        await run.cancel_background()
        state.stage_s[stage.name] = state.stage_s.get(stage.name, 0.0) + time.monotonic() - started
        state.stage_index, state.stage_step = state.stage_index + 1, 0
        state.next_sequence, state.open_sequences, state.reference, run.buffer = 0, [], [], None
        run.reissue.clear()
        await run.checkpoint(stage)


# -- around it ------------------------------------------------------------------------------------------------------


def train_command(name: str, overrides: list[str], run_dir: str | None, must_resume: bool) -> int:
    """Everything from the command line to the exit code."""
    config = compose.compose(name, overrides)
    recipe = config.recipe
    world = make_world(recipe.env)
    preflight.check(recipe, learner=True)
    for stage in config.stages:
        if config.needs_engines(stage):
            preflight.check_rollouts(stage.config)
        if stage.data is not None and config.maker(stage) is None:
            given_data(stage)
        elif stage.data is None and stage.kind == "sft":
            demonstrable(stage)
    if recipe.model.path is not None:
        ChatRenderer(recipe.model.path)  # a model without a tokenizer is said before anything is written
    directory = RunDir(choose_run_dir(config, run_dir, must_resume))
    newest = directory.newest()
    state = directory.load_state(newest) if newest else DriverState()
    if must_resume and not newest:
        raise BadInput(f"--resume: {directory.path} has no checkpoint to resume from")
    if state.stage_index >= len(config.stages):
        print(f"{directory.path} is finished after {state.step} steps: give another --run-dir to train again")
        return 0
    entered = config.stages[state.stage_index]
    if entered.epochs is None and entered.steps < state.stage_step:
        raise BadInput(
            f"stages.{entered.name}.steps={entered.steps}: the run has taken {state.stage_step} of them already"
        )
    weights = open_channel(recipe.weights.channel, reap.tag())
    with Progress() as progress, contextlib.closing(weights), orderly_exit() as ended:
        progress.say(f"run directory {shown(directory.path)}")
        if newest:
            progress.say(f"continuing from {newest.name}: stage {entered.name}, step {state.stage_step}")
        directory.write_config(compose.to_yaml(config))
        directory.rewind_metrics(state.step)
        journal = Journal(directory.journal, keep=state.mark if newest else 0)
        model_path = starting_model(config, directory, progress)
        playing = [stage.config for stage in config.stages if config.needs_engines(stage)]
        services = wire.services(playing)
        cpus = recipe.rollout.workers * recipe.rollout.threads + recipe.learner.ranks * recipe.learner.threads
        cpus += len(services.needs)
        gpus = recipe.rollout.workers + recipe.learner.ranks + services.engines
        progress.say("starting Ray")
        device = connect(recipe.cluster, cpus_needed=cpus, gpus_needed=gpus)
        for stage in config.stages:
            require_device(stage.config.learner, device)
        services.gpus_per_engine = device.gpus_per_actor
        run = Run(
            config=config,
            dir=directory,
            state=state,
            journal=journal,
            world=world,
            renderer=ChatRenderer(model_path),
            device=device,
            learner=wire.learner(recipe, device),
            pool=wire.pool(recipe, device, model_path, services.token, wire.secrets_of(playing)),
            services=services,
            progress=progress,
            tracker=Tracker(recipe.wandb, directory.path, recipe.name, {"config": compose.to_yaml(config)}),
            weights=weights,
            model_path=model_path,
            earlier_s=state.wall_s,
            earlier_generated=state.generated,
            earlier_restarts=state.restarts,
        )
        ended.code = asyncio.run(supervised(run))
        directory.close()
    return ended.code


async def supervised(run: Run) -> int:
    """`train`, with its endings: done, stopped, failed. Each one leaves a summary."""
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def on_signal(number: int) -> None:
        signals.append(number)
        run.stopped_at = run.stopped_at or time.monotonic()
        run.stop.set()
        run.progress.say("stopping: a checkpoint is written, then every process ends")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal, number)
    status, reason, code = "failed", None, 1
    try:
        await run.until(start_parts(run))
        await train(run)
        status, code = "done", 0
    except StopRequested:
        status, code = "stopped", 128 + signals[0]
        await save_at_stop(run)
    except BaseException as error:
        reason = f"{error}" if isinstance(error, (RunFailed, BadInput)) else f"{type(error).__name__}: {error}"
        raise
    finally:
        await run.cancel_background()
        if run.pool_start is not None:
            run.pool_start.cancel()
            await asyncio.gather(run.pool_start, return_exceptions=True)
        try:
            summary = run.summary(status, reason)
            run.dir.write_summary(summary)
            run.journal.close()
        finally:
            with contextlib.suppress(Exception):  # the parts may be what failed
                async with asyncio.timeout(15):
                    await run.learner.close_channel(run.weights)
                    await asyncio.gather(run.pool.stop(), run.services.stop(), run.learner.stop())
            run.tracker.finish()
    run.progress.say(closing_line(summary, run.dir.path))
    return code


async def start_parts(run: Run) -> None:
    """The learner first: a supervised stage trains while the engines are still starting."""
    recipe = run.config.recipe
    run.progress.say(f"starting {recipe.learner.ranks} learner rank(s), {recipe.rollout.workers} rollout worker(s)")
    engines = any(run.config.needs_engines(stage) for stage in run.config.stages[run.state.stage_index :])
    rank = Need(cpus=recipe.learner.threads, gpus=run.device.gpus_per_actor)
    ranks = [rank] * recipe.learner.ranks
    needs = [*ranks, *run.pool.needs, *run.services.needs] if engines else ranks
    placement = iter(await place(needs, one_node=run.weights.one_node))
    for_learner = list(islice(placement, len(ranks)))
    if engines:
        run.pool_start = asyncio.create_task(start_engines(run, list(placement)))
    await run.learner.start(for_learner)


async def start_engines(run: Run, placement: list[Any]) -> None:
    """The rollout workers, and the tool services that their environments call."""
    workers = len(run.pool.needs)
    await asyncio.gather(run.pool.start(placement[:workers]), run.services.start(placement[workers:]))


async def save_at_stop(run: Run) -> None:
    """The newest state, unless a checkpoint already holds it or nobody knows the weights any more.

    A save that fails is reported and costs the steps since the last checkpoint: the run can go on from there.
    """
    newest = run.dir.newest()
    if run.gave_up:
        run.progress.say("what was going on took too long to wait for: the last checkpoint stands")
    elif run.state.step > (run.dir.load_state(newest).step if newest else 0):
        try:
            async with asyncio.timeout(SAVE_DEADLINE_S):
                await run.checkpoint(run.config.stages[run.state.stage_index])
        except Exception as error:
            run.progress.say(f"no checkpoint was written ({type(error).__name__}: {error}): the last one stands")


class Ended:
    code = 1


@contextlib.contextmanager
def orderly_exit() -> Iterator[Ended]:
    """Orphans of dead runs go first; afterwards no process of this one is left."""

    def stop_early(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM):  # until the loop takes over
        signal.signal(number, stop_early)
    reap.reap()
    remove_stale(reap.dead)
    try:
        yield Ended()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # tidying up is short, and must not be left half-done
            signal.signal(number, signal.SIG_IGN)
        if "ray" in sys.modules:
            import ray

            ray.shutdown()
        reap.reap(reap.tag())


def starting_model(config: RunConfig, directory: RunDir, progress: Progress) -> str:
    """`model.path`, or the scratch policy, built once per run directory."""
    given = wire.resolved_model_path(config.recipe)
    scale = config.recipe.learner.rope_theta_scale
    if given is not None:
        return scaled_copy(given, scale, directory.path / "model") if scale != 1.0 else given
    folder = directory.path / "model"
    if not directory.checkpoints():  # nothing was learned yet: the configuration may be another one now
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        progress.say("building the policy and its tokenizer from nothing")
        temporary = folder.with_name(".model.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        wire.build_scratch_model(config.recipe, temporary)
        temporary.rename(folder)
    return str(folder.resolve())


def shown(path: Path) -> Path:
    """As a person at this prompt would write it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def closing_line(summary: dict[str, object], path: Path) -> str:
    before, after = summary["eval"]["before"], summary["eval"]["after"]  # type: ignore[index]
    change = ""
    if before and after:
        scores = (f"{name} {before[name]:.3f} -> {after[name]:.3f}" for name in after if name in before)
        change = "; held-out accuracy " + ", ".join(scores)
    again = "" if summary["status"] == "done" else "; the same command continues it"
    taken = f"{summary['status']} after {summary['steps']} steps in {summary['wall_s']:.0f} s"
    return f"{taken}{change}; see {shown(path)}{again}"
