"""`rlsys train`: check everything, open the run directory, go through the stages, and leave nothing behind."""

from __future__ import annotations

import argparse

from launch.commands.shared import add_config
from rlsys.errors import BadInput

HELP = "all stages of a recipe"
EXAMPLES = """examples:
  rlsys train quickstart                                  the main job, on this machine
  rlsys train quickstart --dry-run                        the resolved config and the arithmetic behind it
  rlsys train quickstart stages.rl.steps=10 seed=1        overrides: key=value, stages.NAME.key=value for one stage
  rlsys train quickstart stages.sft=null                  without this stage
  rlsys train quickstart --run-dir runs/mine --resume     continue a stopped run
  rlsys train quickstart --run-dir runs/mine --resume stages.rl.steps=+100      100 steps more of a finished run
  rlsys train quickstart model.path=./my-model            a causal LM, by folder or hub name (docs/models.md)
  ray job submit --working-dir . -- python -m launch train quickstart --run-dir /shared/runs/q1
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--run-dir", metavar="D", help="where the run writes; an unfinished one is continued (default: runs/NAME)"
    )
    parser.add_argument("--resume", action="store_true", help="insist that there is a checkpoint to continue from")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the resolved config and its arithmetic, start nothing"
    )


def run(options: argparse.Namespace) -> int:
    from launch.config.compose import compose, refuse_other_config, to_yaml
    from launch.config.extend import goes_on, with_more_steps
    from launch.stages.train import arithmetic, check, train

    config = compose(options.config, with_more_steps(options.overrides, options.run_dir))
    if options.dry_run:
        follows = arithmetic(config)  # first: it is where a task file that cannot be read is said
        print(to_yaml(config))
        print("# what follows from it")
        for line in follows:
            print(f"#   {line}")
        return 0
    check(config)

    import asyncio
    import contextlib

    from launch.run import cleanup
    from launch.run.parts import make_run, shown
    from launch.run.progress import Progress
    from launch.run.rundir import DriverState, RunDir, choose_run_dir
    from launch.run.session import go_through
    from launch.stages.base import needs_engines
    from rlsys.channels import open_channel

    text = to_yaml(config)
    path = choose_run_dir(config.recipe.name, text, options.run_dir, options.resume)
    refuse_other_config(path, config)
    directory = RunDir(path)
    newest = directory.newest()
    state = directory.load_state(newest) if newest else DriverState()
    if options.resume and not newest:
        raise BadInput(f"--resume: {path} has no checkpoint to resume from")
    if state.stage_index >= len(config.stages) and not goes_on(state, path, config):
        more = f"stages.{config.stages[-1].name}.steps=+100 to go on"
        print(f"{path} is finished after {state.step} steps: give another --run-dir to train again, {more}")
        return 0
    entered = config.stages[state.stage_index]
    if entered.epochs is None and entered.steps < state.stage_step:
        raise BadInput(
            f"stages.{entered.name}.steps={entered.steps}: the run has taken {state.stage_step} of them already"
        )
    playing = [stage for stage in config.stages if needs_engines(config, stage)]
    engines = any(stage in playing for stage in config.stages[state.stage_index :])
    weights = open_channel(config.recipe.weights.channel, cleanup.tag())
    with Progress() as progress, contextlib.closing(weights), cleanup.orderly_exit():
        progress.say(f"run directory {shown(path)}")
        if newest:
            progress.say(f"continuing from {newest.name}: stage {entered.name}, step {state.stage_step}")
        recipes = [stage.config for stage in playing]
        parts = make_run(config, directory, state, progress, text=text, playing=recipes, weights=weights)
        code = asyncio.run(go_through(parts, train, engines=engines))
        directory.close()
    return code
