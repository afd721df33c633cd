"""`rlsys eval`: a checkpoint's held-out accuracy, on the engines alone."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actors.renderer import ChatRenderer
from envs import make_world
from envs.tasks.config import TaskConfig
from launch.commands.train import orderly_exit
from launch.config import compose
from launch.run import engines, preflight, wire
from launch.run.evaluate import accuracy, plans, rollout_tasks
from launch.run.progress import Progress
from rlsys.config import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.records import record_of, to_json
from rlsys.types import Failure, Group, Task


def eval_command(name: str, overrides: list[str], checkpoint: str | None, output: str | None) -> int:
    config = compose.compose(name, overrides)
    recipe = config.stages[-1].config  # the last stage's environment is the one that the recipe ends in
    found = find_checkpoint(config, checkpoint)
    split = split_to_evaluate(recipe.env, trained_on(found) if found is not None else None)
    available = make_world(recipe.env).tasks(split)
    tasks = available[: recipe.eval.tasks]
    preflight.check_model_folder(found)
    preflight.check(recipe, learner=False)
    preflight.check_rollouts(recipe)
    if output is not None:
        preflight.check_output(output)
    with Progress() as progress, orderly_exit() as ended, tempfile.TemporaryDirectory() as scratch:
        if found is None:
            progress.say("no checkpoint and no model.path: evaluating the untrained policy")
            found = str(Path(scratch) / "model")
            wire.build_scratch_model(recipe, Path(found))
        progress.say(
            f"evaluating {found} on {len(tasks)} of {len(available)} tasks ({split}; eval.tasks={recipe.eval.tasks})"
        )
        ChatRenderer(found)  # a hub name that does not exist, a folder without a tokenizer: said before anything starts
        groups = asyncio.run(_evaluate(engines.engines_of(recipe, found), recipe, tasks, progress))
        report = summarize(groups, found, len(tasks), recipe.reward)
        for line in table(report):
            progress.say(line)
        if output is not None:
            write(Path(output), report, groups)
            progress.say(f"wrote {output}")
        ended.code = 0
    return ended.code


async def _evaluate(
    parts: engines.Engines, recipe: RecipeConfig, tasks: Sequence[Task], progress: Progress
) -> dict[str, list[Group]]:
    await engines.start(parts, progress)
    groups: dict[str, list[Group]] = {}
    for name, plan in plans(recipe, parts.services).items():
        progress.say(f"playing {len(tasks) * plan.group_size} episodes, {name}")
        groups[name] = await rollout_tasks(parts.pool, tasks, plan, recipe.eval.concurrency, progress.count)
    await engines.stop(parts)
    return groups


def find_checkpoint(config: RunConfig, given: str | None) -> str | None:
    """A run directory's newest checkpoint, a checkpoint's `hf`, a model folder, a hub name; or the last run's."""
    if given is not None:
        path = Path(given)
        if not path.exists():
            if given.startswith((".", "/", "~")) or given.count("/") > 1:
                raise BadInput(f"--checkpoint {given}: no such folder")
            return given  # a hub name
        found = _weights_in(path)
        if found is None:
            raise BadInput(f"--checkpoint {given}: neither a run directory, a checkpoint nor a model folder")
        return str(found.resolve())
    if config.recipe.model.path is not None:
        return wire.resolved_model_path(config.recipe)
    numbered = re.compile(re.escape(config.recipe.name) + r"(-\d+)?")
    runs = [run for run in Path("runs").glob("*") if numbered.fullmatch(run.name) and _weights_in(run) is not None]
    newest = max(runs, key=lambda run: run.stat().st_mtime, default=None)
    return str(_weights_in(newest).resolve()) if newest is not None else None  # type: ignore[union-attr]


def split_to_evaluate(env: Any, trained: Any) -> str:
    """`all` for a data file that the checkpoint has not seen; else `held_out`, whatever other keys were changed."""
    data = env.data if isinstance(env, TaskConfig) else None
    if data is None or env.eval_data is not None:
        return "held_out"
    seen = trained.data if isinstance(trained, TaskConfig) else None
    return "held_out" if seen is not None and Path(seen).resolve() == Path(data).resolve() else "all"


def trained_on(checkpoint: str) -> Any:
    """The environment that a run's checkpoint was trained in: its training tasks are no evaluation. None if unknown."""
    saved = next(
        (parent / "config.yaml" for parent in Path(checkpoint).parents if (parent / "config.yaml").is_file()), None
    )
    return compose.compose(str(saved), []).stages[-1].config.env if saved is not None else None


def _weights_in(path: Path) -> Path | None:
    candidates = [path, path / "hf", *sorted((path / "checkpoints").glob("step-*/hf"), reverse=True)]
    return next((folder for folder in candidates if (folder / "config.json").is_file()), None)


def summarize(groups: dict[str, list[Group]], checkpoint: str, num_tasks: int, reward: Any) -> dict[str, Any]:
    trajectories = {name: [t for group in plans for t in group.trajectories] for name, plans in groups.items()}
    return {
        "checkpoint": checkpoint,
        "tasks": num_tasks,
        # null, and no bare NaN, where nothing was graded
        "accuracy": {
            name: score if (score := accuracy(plans, reward)) == score else None for name, plans in groups.items()
        },
        "episodes": {name: len(played) for name, played in trajectories.items()},
        "failures": {name: sum(isinstance(t.reward, Failure) for t in played) for name, played in trajectories.items()},
        "ends": {name: _count(t.end for t in played) for name, played in trajectories.items()},
    }


def _count(ends: Any) -> dict[str, int]:
    counted: dict[str, int] = {}
    for end in ends:
        counted[str(end)] = counted.get(str(end), 0) + 1
    return counted


def table(report: dict[str, Any]) -> list[str]:
    lines = [f"{'':<10}{'accuracy':>10}{'episodes':>10}{'failures':>10}   how they ended"]
    for name, value in report["accuracy"].items():
        ends = ", ".join(f"{end} {count}" for end, count in sorted(report["ends"][name].items()))
        shown = "-" if value is None else f"{value:.3f}"
        lines.append(f"{name:<10}{shown:>10}{report['episodes'][name]:>10}{report['failures'][name]:>10}   {ends}")
    return lines


def write(path: Path, report: dict[str, Any], groups: dict[str, list[Group]]) -> None:
    episodes = [
        {"play": name} | to_json(record_of(t, group))
        for name, plans in groups.items()
        for group in plans
        for t in group.trajectories
    ]
    path.write_text(json.dumps(report | {"trajectories": episodes}, indent=1, ensure_ascii=False) + "\n")
