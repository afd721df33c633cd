"""`rlsys eval`: a checkpoint on held-out tasks, on the engines alone."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.commands.shared import add_checkpoint, add_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.pool import RolloutPool
    from launch.run.evaluate import Score
    from launch.run.progress import Progress
    from rlsys.config import RecipeConfig
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
    parser.add_argument("--output", metavar="F", help="write scores and trajectories as JSON")


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
    from launch.run import nodes, preflight
    from launch.run.cleanup import orderly_exit
    from launch.run.engines import find_checkpoint, model_or_scratch, on_engines
    from launch.run.evaluate import plans, rollout_tasks, score
    from rlsys.harvest import check_failed

    recipe = config.stages[-1].config  # the last stage's environment is the one that the recipe ends in
    found = find_checkpoint(config.recipe, options.checkpoint)
    split = split_to_evaluate(recipe.env, trained_on(found) if found is not None else None)
    available = make_world(recipe.env).tasks(split)
    tasks = available[: recipe.eval.tasks]
    preflight.check(recipe, learner=False)
    nodes.check_rollouts(recipe)
    if options.output is not None:
        preflight.check_output(options.output)

    async def work(playing: RecipeConfig, pool: RolloutPool) -> dict[str, list[Group]]:
        groups: dict[str, list[Group]] = {}
        for name, plan in plans(playing).items():
            progress.say(f"playing {len(tasks) * plan.group_size} episodes, {name}")
            progress.doing(f"{name}: tasks played")
            groups[name] = await rollout_tasks(pool, tasks, plan, recipe.eval.concurrency, progress.count)
        return groups

    with orderly_exit():
        if found is None:
            progress.say("no checkpoint and no model.path: evaluating the untrained policy")
        with model_or_scratch(recipe, found, options.output) as model:
            of = f"{len(tasks)} of {len(available)} tasks ({split}; eval.tasks={recipe.eval.tasks})"
            progress.say(f"evaluating {model} on {of}")
            ChatRenderer(model)  # a hub name or a folder without a tokenizer: said before anything starts
            groups = on_engines(recipe, model, progress, work, scratch=found is None)
            progress.doing("ending every process")
        limit = recipe.loop.max_failed_share
        scores = {name: score(played, recipe.reward, limit) for name, played in groups.items()}
        for line in table(scores):
            progress.say(line)
        if options.output is not None:
            write(Path(options.output), {"checkpoint": model, "tasks": len(tasks)}, scores, groups)
            progress.say(f"wrote {options.output}")
        for name, each in scores.items():
            check_failed(each.failed, each.episodes, limit, f"episodes, {name},")
    return 0


def split_to_evaluate(env: Any, trained: str | None) -> str:
    """`all` for a data file that the checkpoint has not seen; else `held_out`, whatever other keys were changed."""
    from envs.tasks.config import TaskConfig

    data = env.data if isinstance(env, TaskConfig) else None
    if data is None or env.eval_data is not None:
        return "held_out"
    return "held_out" if trained is not None and Path(trained).resolve() == Path(data).resolve() else "all"


def trained_on(checkpoint: str) -> str | None:
    """`env.data` of the run that a checkpoint is from: what it was trained on is no evaluation. None if unknown.

    Read, not composed: that would import the modules which a folder of somebody else's names (docs/trust.md).
    """
    from launch.config.layers import read_files

    folders = [folder for folder in Path(checkpoint).parents if (folder / "config.yaml").is_file()]
    if not folders:
        return None
    layers, stages = read_files(folders[0] / "config.yaml", seen=())
    envs = [layer.values.get("env") for layer in layers] + [stage.get("env") for stage in stages[-1:]]
    named = [env["data"] for env in envs if isinstance(env, dict) and "data" in env]
    return str(named[-1]) if named and named[-1] is not None else None


def table(scores: Mapping[str, Score]) -> list[str]:
    measure = next(each.measure for each in scores.values())
    lines = [f"{'':<10}{measure:>12}{'episodes':>10}{'failures':>10}   how they ended"]
    for name, each in scores.items():
        ends = ", ".join(f"{end} {count}" for end, count in sorted(each.ends.items()))
        shown = "-" if each.value is None else f"{each.value:.3f}"
        lines.append(f"{name:<10}{shown:>12}{each.episodes:>10}{each.failures:>10}   {ends}")
    return lines


def write(
    path: Path, about: dict[str, Any], scores: Mapping[str, Score], groups: Mapping[str, Sequence[Group]]
) -> None:
    from rlsys.records import record_of, to_json

    measure = next(each.measure for each in scores.values())
    keys = ["accuracy"] * (measure == "accuracy") + ["mean_reward", "episodes", "failures", "ends"]
    report = about | {"measure": measure}
    report |= {key: {name: getattr(each, key) for name, each in scores.items()} for key in keys}
    episodes = [
        {"play": name} | to_json(record_of(t, group))
        for name, plans in groups.items()
        for group in plans
        for t in group.trajectories
    ]
    path.write_text(json.dumps(report | {"trajectories": episodes}, indent=1, ensure_ascii=False) + "\n")
