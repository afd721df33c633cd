"""`rlsys eval`: a checkpoint on held-out tasks, or on the recipe's sets of tasks, on the engines alone."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from actors.renderer import ChatRenderer
from envs.tasks.config import TaskConfig
from launch.checkpoints.checkpoint import model_step
from launch.checks import preflight
from launch.checks.software import versions
from launch.commands.shared import add_checkpoint, add_config, add_test
from launch.config.compose import compose, to_yaml
from launch.config.layers import read_files
from launch.evaluation.against import against, against_lines, read_earlier
from launch.evaluation.evaluate import list_pending
from launch.evaluation.played import EvalResult
from launch.evaluation.report import describe_plan, metric_lines, of_several, papers_of, report, table, write
from launch.evaluation.results import result_of
from launch.evaluation.sets import Play, recipes_of, sets_of
from launch.evaluation.transcripts import Transcripts, file_name, transcript_folder
from launch.observe.progress import Progress, process_start
from launch.run.cleanup import orderly_exit
from launch.run.playing import PendingGroup, play_each
from launch.stages.trajectories import weights_id
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.errors import BadInput
from rlsys.harvest import check_failed
from rlsys.types import Group

if TYPE_CHECKING:
    from actors.pool import RolloutPool

HELP = "evaluate a checkpoint as the recipe says"
EXAMPLES = """examples:
  rlsys eval quickstart                                   the last run's checkpoint on held-out tasks
  rlsys eval quickstart env.data=gsm8k.jsonl --output result.json
  rlsys eval quickstart --checkpoint runs/mine            any run, checkpoint, model folder or hub name
  rlsys eval quickstart --checkpoint runs/mine@best       the best model of a run with checkpoint.best
  rlsys eval quickstart --output result.json --resume     continue a stopped or killed evaluation
  rlsys eval quickstart --output b.json --against a.json  does it differ from another evaluation?
  rlsys eval quickstart eval.samples=16 eval.temperature=0.7 eval.top_p=0.95 eval.greedy=false    mean@16, pass@k
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_checkpoint(parser)
    parser.add_argument("--output", metavar="F", help="JSON file for the result; transcripts go into F.transcripts/")
    parser.add_argument("--resume", action="store_true", help="continue a stopped evaluation of this --output")
    parser.add_argument("--against", metavar="RESULT", help="JSON result of another evaluation to compare with")
    add_test(parser)


def run(options: argparse.Namespace) -> int:
    with Progress(since=process_start()) as progress:
        progress.doing("reading the configuration")
        return evaluate(options, progress)


def evaluate(options: argparse.Namespace, progress: Progress) -> int:
    config = compose(options.config, options.overrides)

    from launch.run import nodes  # Ray behind these two: the help and a wrong key go without
    from launch.run.engines import find_checkpoint, model_or_scratch

    progress.doing("reading the checkpoint and the tasks")
    recipe = config.stages[-1].config  # the last stage's environment is the one that the recipe ends in
    if options.resume and options.output is None:
        raise BadInput(key="--resume", expected="--output, next to which the transcripts lie")
    earlier = read_earlier(options.against) if options.against is not None else None
    found = find_checkpoint(config.recipe, options.checkpoint)
    plays = plays_to_play(recipe, find_training_data(found) if found is not None else None)
    plan = describe_plan(plays)  # reads every set
    preflight.check(recipe, learner=False)
    for each in recipes_of(recipe):
        nodes.check_rollouts(each)
    if options.output is not None:
        preflight.check_output(options.output)
    with orderly_exit():
        if found is None:
            progress.say("no checkpoint and no model.path: evaluating the untrained policy")
        with model_or_scratch(recipe, found, options.output) as model:
            progress.say(f"evaluating {model} on {plan}")
            ChatRenderer(model)  # a hub name or a folder without a tokenizer: said before anything starts
            about = about_model(model, config, plays)
            with open_transcripts(options, about, plays) as transcripts:
                started = time.monotonic()
                play(recipe, model, plays, transcripts, progress, scratch=found is None)
                about |= {"seconds": round(time.monotonic() - started, 1)}
                return finish(options, about, plays, transcripts, earlier, progress)


def play(
    recipe: RecipeConfig,
    model: str,
    plays: Mapping[str, Play],
    transcripts: Transcripts,
    progress: Progress,
    *,
    scratch: bool,
) -> None:
    """All that has not been played yet; what has is in `transcripts`. scratch: the model was built by this command."""
    from launch.run.engines import on_engines  # Ray behind it

    total = sum(len(each.of.tasks) for each in plays.values())
    done = sum(len(played) for played in transcripts.played.values())
    if done:
        progress.say(f"{done} of {total} groups have been played already: {transcripts.folder}")
    if done == total:
        return

    async def work(_: RecipeConfig, pool: RolloutPool) -> None:
        nonlocal done
        waiting = list_pending(plays, transcripts.played)
        progress.say(f"playing {sum(each.plan.group_size for each in waiting)} episodes")
        progress.doing("groups played")

        def finished(each: PendingGroup, group: Group) -> None:
            nonlocal done
            transcripts.add(each.play, group)
            done += 1
            progress.count(done, total)

        await play_each(pool, waiting, recipe.eval.concurrency, finished)

    on_engines(recipe, model, progress, work, scratch=scratch, playing=recipes_of(recipe))
    progress.doing("ending every process")


def finish(
    options: argparse.Namespace,
    about: dict[str, Any],
    plays: Mapping[str, Play],
    transcripts: Transcripts,
    earlier: Mapping[str, EvalResult] | None,
    progress: Progress,
) -> int:
    """Say and write what was found. Raises RunFailed where too many episodes of a play failed."""
    progress.doing("computing intervals")
    results = {name: result_of(transcripts.records(name), each) for name, each in plays.items()}
    papers = {name: papers_of(each) for name, each in plays.items()}
    ours = {name: replace(each.played, prompts=plays[name].digest()) for name, each in results.items()}
    together, more = of_several(plays, ours, earlier)
    found = report(about, plays, results) | more
    for line in [*table(results), *metric_lines(results, papers), *together]:
        progress.say(line)
    if earlier is not None:
        differences = against(ours, earlier, options.test)
        found["against"] = {"file": options.against, "plays": {name: each.json() for name, each in differences.items()}}
        for line in against_lines(differences, options.against):
            progress.say(line)
    if options.output is not None:
        found["transcripts"] = {name: str(transcripts.folder / file_name(name)) for name in plays}
        write(Path(options.output), found)
        progress.say(f"wrote {options.output} and {transcripts.folder}/")
    for name, each in results.items():
        check_failed(each.failed, each.episodes, each.limit, f"episodes, {name},")
    return 0


@contextmanager
def open_transcripts(
    options: argparse.Namespace, about: Mapping[str, Any], plays: Mapping[str, Play]
) -> Iterator[Transcripts]:
    """The files that episodes are written to as they end: next to --output, or without it in a temporary folder."""
    sizes = {name: each.samples * each.seeds for name, each in plays.items()}
    ways = {f"{name} {key}": value for name, each in plays.items() for key, value in each.identity().items()}
    begun = {"weights": about["weights"], "plays": ", ".join(plays)} | ways
    with tempfile.TemporaryDirectory() as nowhere, ExitStack() as closing:
        folder = Path(nowhere) / "transcripts"
        if options.output is not None:
            folder = transcript_folder(Path(options.output), resume=options.resume)
        transcripts = Transcripts(folder, begun, sizes)
        closing.callback(transcripts.close)
        yield transcripts


def about_model(model: str, config: RunConfig, plays: Mapping[str, Play]) -> dict[str, Any]:
    """What was evaluated, and with what: the part of the result that does not depend on the episodes."""
    return {
        "checkpoint": model,
        "step": model_step(Path(model)),
        "weights": weights_id(model),
        "tasks": max(len(each.of.tasks) for each in plays.values()),
        "seed": config.recipe.seed,
        "versions": versions(),
        "config": yaml.safe_load(to_yaml(config)),
    }


def plays_to_play(recipe: RecipeConfig, trained: str | None) -> dict[str, Play]:
    """Of the recipe's sets; without any, of a data file that the checkpoint has not seen all tasks, else the held-out
    ones."""
    sets = [
        each if each.name else replace(each, split=split_to_evaluate(recipe.env, trained)) for each in sets_of(recipe)
    ]
    return {name: play for each in sets for name, play in each.plays().items()}


def split_to_evaluate(env: Any, trained: str | None) -> str:
    """`all` for a data file that the checkpoint has not seen; else `held_out`, whatever other keys were changed."""
    data = env.data if isinstance(env, TaskConfig) else None
    if data is None or env.eval_data is not None:
        return "held_out"
    return "held_out" if trained is not None and Path(trained).resolve() == Path(data).resolve() else "all"


def find_training_data(checkpoint: str) -> str | None:
    """`env.data` of the run that a checkpoint is from: what it was trained on is no evaluation. None if unknown.

    Read, not composed: that would import the modules that a folder of another author names (docs/trust.md).
    """
    folders = [folder for folder in Path(checkpoint).parents if (folder / "config.yaml").is_file()]
    if not folders:
        return None
    layers, stages = read_files(folders[0] / "config.yaml", seen=())
    envs = [layer.values.get("env") for layer in layers] + [stage.get("env") for stage in stages[-1:]]
    named = [env["data"] for env in envs if isinstance(env, dict) and "data" in env]
    return str(named[-1]) if named and named[-1] is not None else None
