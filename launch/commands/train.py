"""`rlsys train`: check everything, open the run directory, go through the stages, and leave nothing behind."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.services.first_question import check_addresses
from launch.checks.machine import advise_stop_deadline, expected_device, runs_elsewhere, smallest_device
from launch.checks.own_functions import try_functions_of
from launch.commands.needs import list_commands
from launch.commands.shared import add_config
from launch.config.compose import compose, to_yaml
from launch.config.extend import changed_midway, has_more_steps, refuse_other_config, with_more_steps
from launch.driver.checkpoints.beginning import describe_division, refuse_impossible
from launch.driver.checkpoints.checkpoint import DriverState
from launch.driver.checkpoints.disk_space import check_disk, describe_room, room_for
from launch.driver.checkpoints.stop_time import advise_stop, describe_stop, stop_deadline_s
from launch.driver.evaluation.sets import recipes_of
from launch.driver.observe.health import Finding
from launch.driver.observe.progress import Progress, format_start, process_start
from launch.driver.run import cleanup, parent
from launch.driver.run.choose_run import choose_run_dir, refuse_foreign
from launch.driver.run.exchanged import moved_data, refuse_exchanged
from launch.driver.run.rundir import RunDir
from launch.driver.stages.addresses import judge_and_teacher_endpoints
from launch.driver.stages.base import needs_engines, recipes_with_rollouts, scored_recipes, stages_with_rollouts
from launch.driver.stages.train import (
    arithmetic,
    check,
    check_gpus,
    check_offload,
    check_services,
    gpus_of_services,
    has_trained_nothing,
    train,
    why_nothing,
)
from launch.tools.plan.deadlines import deadline_warnings, lines_of
from launch.tools.plan.plan import time_recipe
from launch.tools.plan.schedule import Timed
from launch.tools.plan.show import time_lines
from launch.tools.report.at_end import report_at_end
from rlsys.config.recipe import RunConfig, StageConfig
from rlsys.errors import BadInput, RunFailed, require
from rlsys.files import files_or_bad_input, shorten_path
from rlsys.system.device import resolve_run
from rlsys.system.weight_folder import WeightFolder

HELP = "train a model: all stages of a recipe"
EXAMPLES = """examples:
  rlsys train quickstart                                  trains on this machine
  rlsys train quickstart --dry-run                        the resolved config and the arithmetic behind it
  rlsys train quickstart stages.rl.steps=10 seed=1        overrides; stages.NAME.key=value sets a key of one stage
  rlsys train quickstart stages.sft=null                  leave out a stage
  rlsys train quickstart --run-dir runs/mine --resume     continue a stopped run
  rlsys train quickstart --run-dir runs/mine --resume stages.rl.steps=+100      extend a finished run by 100 steps
  rlsys train quickstart --run-dir runs/mine --resume-from step-000100   go back to an older checkpoint of it
  rlsys train quickstart model.path=./my-model            a causal LM, by folder or hub name (docs/models.md)
  rlsys submit quickstart --address http://10.0.0.1:8265 --run-dir /shared/runs/q1     as a job of a Ray cluster
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--run-dir",
        metavar="D",
        help="run directory; an unfinished run in it is continued (default: the unfinished runs/NAME or "
        "runs/NAME-N of this configuration, else the next that is free)",
    )
    parser.add_argument("--resume", action="store_true", help="fail if there is no checkpoint to continue from")
    trusted = "continue a run that another user began (docs/trust.md)"
    parser.add_argument("--trust-run-dir", action="store_true", help=trusted)
    parser.add_argument(
        "--resume-from",
        metavar="STEP",
        help="continue from this checkpoint (step-000100); newer checkpoints are set aside",
    )
    dry = "print the resolved config, its arithmetic and what is missing, and start nothing; 2 if data are missing"
    parser.add_argument("--dry-run", action="store_true", help=dry)
    shown = "with --dry-run: the resolved config at a terminal too, where its lines are left out otherwise"
    parser.add_argument("-v", "--verbose", action="store_true", help=shown)


def run(options: argparse.Namespace) -> int:
    with Progress(since=process_start()) as progress:
        progress.doing("reading the configuration")
        return go(options, progress)


def go(options: argparse.Namespace, progress: Progress) -> int:
    require(options.dry_run or not options.verbose, "--verbose", True, "--dry-run with it")
    if options.run_dir is not None and not options.trust_run_dir:
        refuse_foreign(Path(options.run_dir))  # before anything that its config.yaml names is imported
    config = compose(options.config, with_more_steps(options.overrides, options.run_dir))
    if options.dry_run:
        return dry_run(config, progress, options)
    progress.doing("reading the data, and looking at the machine")
    check(config, progress.say)
    timed = time_recipe(config)
    for warning in deadline_warnings(config, timed):
        progress.say(f"warning: {warning}")

    from launch.driver.run import parts, session  # Ray and torch behind these: a dry run goes without
    from launch.tools.audit.at_end import audit_lines

    text = to_yaml(config)
    with files_or_bad_input():
        directory, checkpoint, state = open_run(config, text, options)
        with directory.removed_if_refused():
            finished = state.stage_index >= len(config.stages)
            extended = finished and checkpoint is not None and has_more_steps(state, directory.path, config)
            if finished and not extended:
                return say_finished(config, directory, state, progress)
            entered = config.stages[state.stage_index]
            progress.doing("comparing the data with its digests")
            file_facts = refuse_exchanged(directory.path, text, checkpoint) if checkpoint is not None else {}
            progress.doing("comparing the checkpoint with its digests")
            checked = checkpoint is None or directory.verify(checkpoint, progress.say)
            check_disk(room_for(config, smallest_device(config.recipe.cluster)), directory.path)
            if checkpoint is not None:
                refuse_impossible(entered, state, checkpoint, directory.checkpoints())
            progress.doing("trying reward functions, and asking judges and teachers one question")
            try_users_parts(config, config.stages[state.stage_index :], progress, continued=checkpoint is not None)
            changed = changed_midway(directory.path, config, state) if checkpoint is not None else []
            if extended and checkpoint is not None:
                directory.renew_checkpoint(checkpoint, state)  # a kill from here on finds a run that is not finished
                directory.write("config.yaml", text)
    playing = [stage for stage in config.stages if needs_engines(config, stage)]
    engines = any(stage in playing for stage in config.stages[state.stage_index :])
    weights = WeightFolder.open(cleanup.tag(), config.recipe.cluster.weights_dir)
    parent.tell(run=str(directory.path))
    with report_at_end(directory, config.recipe.report, progress.say), cleanup.orderly_exit():
        progress.say(f"run directory {shorten_path(directory.path)}; {format_start()}")
        for advice in advise_stopping(config):
            progress.say(advice)
        if checkpoint is not None:
            say_continued(directory, state, checkpoint, entered, changed, progress)
        if not checked:
            progress.say("that checkpoint was saved without digests: its files are taken as they are")
        played = [recipe for stage in playing for recipe in recipes_of(stage.config)]
        run = parts.make_run(
            config, directory, state, progress, text=text, playing=played, trained=recipes_with_rollouts(config),
            weights=weights, overrides=options.overrides, known=file_facts,
            forecast={} if timed is None else timed.forecast.first_s,
        )  # fmt: skip
        code = asyncio.run(session.go_through(run, train, engines=engines))
        for line in audit_lines(directory.path, str(shorten_path(directory.path))):
            progress.say(line)
    return code


def try_users_parts(config: RunConfig, stages: Sequence[StageConfig], progress: Progress, *, continued: bool) -> None:
    """The reward functions of these stages are called once, their judges and teachers asked one question. Raises
    BadInput for a function that raises, unless the run is continued: then it is said."""
    for stage in stages:
        try_functions_of(scored_recipes(config, stage), progress.say if continued else None)
    check_addresses(judge_and_teacher_endpoints(config, stages), progress.say)


def advise_stopping(config: RunConfig) -> Iterator[str]:
    device = smallest_device(config.recipe.cluster)
    yield from filter(None, (advise_stop(config, device), advise_stop_deadline(stop_deadline_s(config, device))))


def say_continued(
    directory: RunDir,
    state: DriverState,
    checkpoint: Path,
    entered: StageConfig,
    changed: Sequence[str],
    progress: Progress,
) -> None:
    """From where, what is another than before, and the newer checkpoints, which are set aside."""
    progress.say(f"continuing from {checkpoint.name}: stage {entered.name}, step {state.stage_step}")
    for line in changed:
        progress.say(line)
    if divided := describe_division(entered, state, checkpoint):
        progress.say(divided)
    for aside in directory.set_aside_after(checkpoint):
        progress.say(f"set aside, to be removed by hand: {shorten_path(aside)}")


def say_finished(config: RunConfig, directory: RunDir, state: DriverState, progress: Progress) -> int:
    if has_trained_nothing(state):
        ended = f"{directory.path} is finished after {state.step} steps, none of which trained anything"
        why = why_nothing(Finding(**finding) for finding in state.health)
        raise RunFailed(": ".join([ended, *why, "give another --run-dir to train again"]))
    progress.close()
    ways = f"give another --run-dir to train again, stages.{config.stages[-1].name}.steps=+100 to continue"
    print(f"{directory.path} is finished after {state.step} steps: {ways}")
    return 0


def dry_run(config: RunConfig, progress: Progress, options: argparse.Namespace) -> int:
    """What is known is shown, also where something is missing. A missing file of tasks is raised at the end, since some
    numbers are not known without it; an index, which a start needs too, is listed. The resolved config, hundreds of
    lines, comes first where no one would have to scroll back over it."""
    place, begins, refused = find_place(config, options)
    whole = options.verbose or not sys.stdout.isatty()
    device = expected_device(config.recipe.cluster)
    runs_here = not runs_elsewhere(config.recipe.cluster, device)
    follows, problem = arithmetic(config)
    room = room_for(config, smallest_device(config.recipe.cluster))
    progress.close()
    if whole:
        print(to_yaml(resolve_run(config, device)))
    print("# what follows from it" if whole else f"# {config.recipe.name} (-v: the resolved config before this)")
    timed = time_recipe(config)
    time = [f"{'time (GPU)':<25} {line}" for line in (_time_lines(config, timed) if timed is not None else [])]
    limits = [f"{'deadlines':<25} {line}" for line in (lines_of(config, timed) if problem is None else [])]
    disk = f"{'checkpoints (disk)':<25} {describe_room(room, place if runs_here else None)}"
    stop = f"{'stop':<25} {describe_stop(config, smallest_device(config.recipe.cluster))}"
    lacking = [f"{'missing':<25} {missing}: {command}" for missing, command in list_commands(config)]
    taken = [f"{'run directory':<25} {line}" for line in begins]
    for line in [*follows, *time, *limits, disk, stop, *lacking, *taken]:
        print(f"#   {line}")
    check_gpus(config)
    check_services(config, lambda _: None)  # a warning stands in the lines above
    check_offload(config)
    if runs_here:
        check_disk(room, place)
    if (error := problem or refused) is not None:
        raise error
    where = "it can start" if runs_here else "nothing in it is refused; whether its machines are there a start says"
    print(f"#   {'verdict':<25} {where}")
    return 0


def find_place(config: RunConfig, options: argparse.Namespace) -> tuple[Path, list[str], BadInput | None]:
    """Which directory a start takes, and what is said of it: from where it continues, and what is another than before.
    Why it would be refused, which is raised at once only where `--resume` asked for it."""
    must_resume, text = options.resume or options.resume_from is not None, to_yaml(config)
    with files_or_bad_input():
        path = choose_run_dir(config.recipe.name, text, options.run_dir, must_resume, _reread)
        shown = shorten_path(path)
        if not must_resume and not any((path / "checkpoints").glob("step-*")):
            return shown, [f"{shown}: {'begins again, without a checkpoint in it' if path.is_dir() else 'new'}"], None
        try:
            directory, checkpoint, state = open_run(config, text, options)
            directory.close()
            return shown, [*_continues(config, path, shown, checkpoint, state)], None
        except BadInput as error:
            if must_resume:
                raise
            return shown, [f"{shown}: refused"], error


def _continues(
    config: RunConfig, path: Path, shown: Path, checkpoint: Path | None, state: DriverState
) -> Iterator[str]:
    if state.stage_index >= len(config.stages) and not has_more_steps(state, path, config):
        yield f"{shown}: finished after {state.step} steps, a start would say so and train nothing"
        return
    entered = config.stages[state.stage_index]
    left = "" if entered.epochs is not None else f", {entered.steps - state.stage_step} of its {entered.steps} to take"
    name = checkpoint.name if checkpoint is not None else ""
    yield f"{shown}: continues from {name}, stage {entered.name}, step {state.stage_step}{left}"
    yield from changed_midway(path, config, state)


def _reread(saved: Path) -> str:
    return to_yaml(compose(str(saved), [], saved=True))


def _time_lines(config: RunConfig, timed: Timed) -> list[str]:
    """At the limits, and at the length with which docs/recipes.md counts."""
    longest, about = round(timed.answers.packed), config.recipe.about
    length = f"at {longest:,} tokens an answer, all as long as allowed"
    lines = [*time_lines(timed), f"  {length} (`rlsys plan` with --answer-tokens N: at others)"]
    if (tokens := about.answer_tokens) is not None and tokens < longest:
        usual = time_recipe(config, tokens, about.prefill_tokens)
        assert usual is not None  # as the longest was
        stages = stages_with_rollouts(config)
        steps = sum(stage.steps for stage in stages)
        gpu_hours = steps * usual.forecast.seconds / 3600 * (usual.split.gpus + gpus_of_services(config))
        known = all(stage.epochs is None for stage in stages)  # the others' steps are those of a set to come
        all_steps = f": {steps} steps are {gpu_hours:,.0f} GPU-hours" if known else ""
        counted = f"{usual.forecast.seconds:.0f} s at about.answer_tokens={tokens:,}{all_steps}"
        lines.append(f"  {counted} (docs/recipes.md counts so, all stages, and money)")
    return lines


def open_run(config: RunConfig, text: str, options: argparse.Namespace) -> tuple[RunDir, Path | None, DriverState]:
    """The run directory, the checkpoint in it to continue from, and where the driver was then. Raises BadInput."""
    resume_from = options.resume_from
    must_resume = options.resume or resume_from is not None
    path = choose_run_dir(config.recipe.name, text, options.run_dir, must_resume, _reread)
    if not options.trust_run_dir:
        refuse_foreign(path)
    directory = RunDir(path)
    checkpoint = directory.checkpoint_named(resume_from) if resume_from is not None else directory.newest()
    if must_resume and checkpoint is None:
        raise BadInput(f"{path} has no checkpoint to resume from", key="--resume")
    state = directory.load_state(checkpoint) if checkpoint is not None else DriverState()
    refuse_other_config(path, config, state, moved_data(path, text) if checkpoint is not None else {})
    if state.stage_index < len(config.stages):
        refuse_fewer_steps(config.stages[state.stage_index], state)
    return directory, checkpoint, state


def refuse_fewer_steps(entered: StageConfig, state: DriverState) -> None:
    """Than were taken, or than the prompts fill that have been begun: each of those comes to an end."""
    if entered.epochs is not None:
        return
    prompts, per_step = len(state.open_sequences), entered.config.loop.groups_per_step
    least = state.stage_step + math.ceil(prompts / per_step)
    if entered.steps < least:
        reason = f"the run has taken {state.stage_step} of them already"
        raise BadInput(
            reason if not prompts else f"{reason}, and begun {prompts} prompts, {per_step} a step",
            key=f"stages.{entered.name}.steps",
            found=entered.steps,
            expected=f"at least {least}",
        )
