"""`rlsys eval`: a checkpoint's held-out accuracy, on the engines alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.commands.shared import add_checkpoint, add_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.pool import RolloutPool
    from actors.services import Services
    from launch.run.evaluate import Score
    from launch.run.progress import Progress
    from rlsys.types import Group

HELP = "the recipe's evaluation of a checkpoint"
EXAMPLES = """examples:
  rlsys eval quickstart                                   the last run's checkpoint on held-out tasks
  rlsys eval quickstart env.data=gsm8k.jsonl --output result.json
  rlsys eval quickstart --checkpoint runs/mine            any run, checkpoint, model folder or hub name
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_checkpoint(parser)
    parser.add_argument("--output", metavar="F", help="write accuracy and trajectories as JSON")


def run(options: argparse.Namespace) -> int:
    from launch.run.progress import Progress

    with Progress() as progress:
        progress.doing("reading the configuration")
        return evaluate(options, progress)


def evaluate(options: argparse.Namespace, progress: Progress) -> int:
    from launch.config.compose import compose

    config = compose(options.config, options.overrides)

    from actors.renderer import ChatRenderer
    from envs import make_world
    from launch.run import preflight
    from launch.run.cleanup import orderly_exit
    from launch.run.engines import find_checkpoint, model_or_scratch, on_engines
    from launch.run.evaluate import plans, rollout_tasks, score

    recipe = config.stages[-1].config  # the last stage's environment is the one that the recipe ends in
    found = find_checkpoint(config.recipe, options.checkpoint)
    split = split_to_evaluate(recipe.env, trained_on(found) if found is not None else None)
    available = make_world(recipe.env).tasks(split)
    tasks = available[: recipe.eval.tasks]
    preflight.check(recipe, learner=False)
    preflight.check_rollouts(recipe)
    if options.output is not None:
        preflight.check_output(options.output)

    async def work(pool: RolloutPool, services: Services) -> dict[str, list[Group]]:
        groups: dict[str, list[Group]] = {}
        for name, plan in plans(recipe, services).items():
            progress.say(f"playing {len(tasks) * plan.group_size} episodes, {name}")
            progress.doing(f"{name}: tasks played")
            groups[name] = await rollout_tasks(pool, tasks, plan, recipe.eval.concurrency, progress.count)
        return groups

    with orderly_exit():
        if found is None:
            progress.say("no checkpoint and no model.path: evaluating the untrained policy")
        with model_or_scratch(recipe, found) as model:
            limit = f"{len(tasks)} of {len(available)} tasks ({split}; eval.tasks={recipe.eval.tasks})"
            progress.say(f"evaluating {model} on {limit}")
            ChatRenderer(model)  # a hub name or a folder without a tokenizer: said before anything starts
            groups = on_engines(recipe, model, progress, work)
            progress.doing("ending every process")
        scores = {name: score(played, recipe.reward) for name, played in groups.items()}
        for line in table(scores):
            progress.say(line)
        if options.output is not None:
            write(Path(options.output), {"checkpoint": model, "tasks": len(tasks)}, scores, groups)
            progress.say(f"wrote {options.output}")
    return 0


def split_to_evaluate(env: Any, trained: Any) -> str:
    """`all` for a data file that the checkpoint has not seen; else `held_out`, whatever other keys were changed."""
    from envs.tasks.config import TaskConfig

    data = env.data if isinstance(env, TaskConfig) else None
    if data is None or env.eval_data is not None:
        return "held_out"
    seen = trained.data if isinstance(trained, TaskConfig) else None
    return "held_out" if seen is not None and Path(seen).resolve() == Path(data).resolve() else "all"


def trained_on(checkpoint: str) -> Any:
    """The environment that a run's checkpoint was trained in: its training tasks are no evaluation. None if unknown."""
    from launch.config.compose import compose

    saved = next(
        (parent / "config.yaml" for parent in Path(checkpoint).parents if (parent / "config.yaml").is_file()), None
    )
    return compose(str(saved), []).stages[-1].config.env if saved is not None else None


def table(scores: Mapping[str, Score]) -> list[str]:
    lines = [f"{'':<10}{'accuracy':>10}{'episodes':>10}{'failures':>10}   how they ended"]
    for name, each in scores.items():
        ends = ", ".join(f"{end} {count}" for end, count in sorted(each.ends.items()))
        shown = "-" if each.accuracy is None else f"{each.accuracy:.3f}"
        lines.append(f"{name:<10}{shown:>10}{each.episodes:>10}{each.failures:>10}   {ends}")
    return lines


def write(
    path: Path, about: dict[str, Any], scores: Mapping[str, Score], groups: Mapping[str, Sequence[Group]]
) -> None:
    from rlsys.records import record_of, to_json

    report = about | {
        key: {name: getattr(each, key) for name, each in scores.items()}
        for key in ("accuracy", "episodes", "failures", "ends")
    }
    episodes = [
        {"play": name} | to_json(record_of(t, group))
        for name, plans in groups.items()
        for group in plans
        for t in group.trajectories
    ]
    path.write_text(json.dumps(report | {"trajectories": episodes}, indent=1, ensure_ascii=False) + "\n")
