"""`rlsys eval`: a checkpoint on held-out tasks, or on the recipe's sets of tasks, on the engines alone; or a model
behind an address, without engines."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from actors.chat import PROBE_OFFER
from actors.renderer import ChatRenderer
from envs import make_world
from envs.services.endpoint import Question
from envs.services.first_question import Address, check_addresses, served_model_address
from envs.tasks.config import TaskConfig
from launch.checks import preflight
from launch.checks.deadlines import evaluated_at_once
from launch.checks.machine import expected_device
from launch.checks.own_functions import try_functions_of
from launch.checks.prompts import check_prompts
from launch.checks.service_needs import Load, ServiceNeed, check_needs, service_needs, with_every_core
from launch.checks.software import versions
from launch.commands.served import add_served, read_served
from launch.commands.shared import add_checkpoint, add_config, add_test
from launch.commands.trained import with_trained_args
from launch.config.compose import compose, to_yaml
from launch.config.layers import read_config_layers
from launch.driver.checkpoints.checkpoint import model_step
from launch.driver.evaluation.against import against_lines, compare_with_earlier, read_earlier
from launch.driver.evaluation.evaluate import list_pending
from launch.driver.evaluation.report import (
    combine_plays,
    describe_plan,
    evaluation_report,
    failure_lines,
    metric_lines,
    paper_figures_of,
    results_table,
    write,
)
from launch.driver.evaluation.results import result_of
from launch.driver.evaluation.sets import Play, recipes_of, recipes_played, sets_of
from launch.driver.evaluation.transcripts import Transcripts, file_name, transcript_folder
from launch.driver.observe.progress import Progress, process_start
from launch.driver.run.cleanup import orderly_exit
from launch.driver.run.playing import PendingGroup, Plays, play_each
from launch.driver.stages.addresses import judge_endpoints_of_eval_sets
from launch.driver.stages.base import check_columns
from launch.driver.stages.trajectories import tokenizer_id, weights_id
from launch.run_dir.listing import is_run
from launch.run_dir.played import EvalResult
from rlsys.config.recipe import RecipeConfig, RunConfig
from rlsys.config.served import ServedConfig
from rlsys.errors import BadInput, require
from rlsys.harvest import check_failure_share
from rlsys.rollout import template_args_of
from rlsys.types import Failure, Group

HELP = "evaluate a checkpoint as the recipe says"
EXAMPLES = """examples:
  rlsys eval quickstart                                   the last run's checkpoint on held-out tasks
  rlsys eval quickstart env.data=gsm8k.jsonl --output result.json
  rlsys eval quickstart --checkpoint runs/mine            any run, checkpoint, model folder or hub name
  rlsys eval quickstart --checkpoint runs/mine@best       the best model of a run with checkpoint.best
  rlsys eval quickstart --output result.json --resume     continue a stopped or killed evaluation
  rlsys eval quickstart --output b.json --against a.json  does it differ from another evaluation?
  rlsys eval quickstart eval.samples=16 eval.temperature=0.7 eval.top_p=0.95 eval.greedy=false    mean@16, pass@k
  rlsys eval quickstart --endpoint https://host/v1 --model NAME --key-env KEY --output served.json
                                                          a model behind an address: no engine is started
"""
ANSWERS = "answers.jsonl"  # among the transcripts, and none of them: what a model behind an address has answered
FEW = 64  # episodes: fewer say nothing yet about the share that fails
Work = Callable[[Plays], Awaitable[None]]


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    add_checkpoint(parser)
    parser.add_argument("--output", metavar="F", help="JSON file for the result; transcripts go into F.transcripts/")
    parser.add_argument("--resume", action="store_true", help="continue a stopped evaluation of this --output")
    parser.add_argument("--against", metavar="RESULT", help="JSON result of another evaluation to compare with")
    parser.add_argument("--dry-run", action="store_true", help="show what would be played, and start nothing")
    add_test(parser)
    add_served(parser)


def run(options: argparse.Namespace) -> int:
    with Progress(since=process_start()) as progress:
        progress.doing("reading the configuration")
        return evaluate(options, progress)


def evaluate(options: argparse.Namespace, progress: Progress) -> int:
    served = read_served(options)
    config = compose(options.config, options.overrides, served=None if served is None else served.model)

    from launch.driver.run import nodes  # Ray behind these two: the help and a wrong key go without
    from launch.driver.run.engines import find_checkpoint, model_or_scratch

    progress.doing("reading the checkpoint and the tasks")
    recipe = config.stages[-1].config  # the last stage's environment is the one that the recipe ends in
    if options.resume and options.output is None:
        raise BadInput(key="--resume", expected="--output, next to which the transcripts lie")
    earlier = read_earlier(options.against) if options.against is not None else None
    policy = find_checkpoint(config.recipe, options.checkpoint, ask=not options.dry_run)
    if served is None:
        recipe = with_trained_args(recipe, options.overrides, policy, progress.say)
        config = replace(config, stages=(*config.stages[:-1], replace(config.stages[-1], config=recipe)))
    for env_recipe in recipes_of(recipe) if served is not None else ():
        expected = "{}: the server renders its own prompts"
        require(not template_args_of(env_recipe.env), "env.template_args", template_args_of(env_recipe.env), expected)
    plays = plays_to_play(recipe, find_training_data(policy) if policy is not None else None)
    plan = describe_plan(plays)  # reads every set
    if options.dry_run:
        return dry_run(plays, served.described if served is not None else policy or "the untrained policy", progress)
    if served is None:
        preflight.check(recipe, learner=False)
    for env_recipe in recipes_of(recipe):
        nodes.check_rollouts(env_recipe)
    scored = [(entry.of.recipe, entry.of.tasks) for entry in plays.values()]
    for scored_recipe, tasks in scored:
        check_columns(scored_recipe, tasks)
    try_functions_of(scored, progress.say if options.resume else None)
    check_needs(needs_of(recipe, plays, served), progress.say)
    addresses = judge_endpoints_of_eval_sets(recipe) + ([first_question(served, plays)] if served is not None else [])
    if not options.resume:  # else it is not yet known whether anything is left to play
        ask_first(addresses, progress)
    if options.output is not None:
        preflight.check_output(options.output)
    with orderly_exit():
        if policy is None and served is None:
            progress.say("no checkpoint and no model.path: evaluating the untrained policy")
        with model_or_scratch(recipe, policy, options.output) as model:
            progress.say(f"evaluating {model if served is None else served.described} on {plan}")
            renderer = ChatRenderer(model)  # without a tokenizer: said before anything starts
            if served is None:
                check_prompts(renderer, model, recipes_played(plays), progress.say)
            player = about_model(model) if served is None else about_served(served, renderer)
            metadata = player | about_plays(config, plays)
            with open_transcripts(options, player, plays) as transcripts:
                started = time.monotonic()
                if options.resume and list_pending(plays, transcripts.played):
                    ask_first(addresses, progress)
                if served is None:
                    on = partial(play_on_engines, recipe, model, progress, scratch=policy is None)
                else:
                    on = partial(play_on_endpoint, served, recipe, renderer, plays, transcripts.folder, progress)
                play(recipe, plays, transcripts, progress, on, served=served is not None)
                metadata |= {"seconds": round(time.monotonic() - started, 1)}
                return finish(options, metadata, plays, transcripts, earlier, progress)


def needs_of(recipe: RecipeConfig, plays: Mapping[str, Play], served: ServedConfig | None) -> list[ServiceNeed]:
    """What its services take. Where a model at an address plays they run in this process, which has every core."""
    at_once = evaluated_at_once(recipe, recipes_played(plays), served=served is not None)
    episodes = max(at_once, *(play.samples * play.seeds for play in plays.values()))
    device = expected_device(recipe.cluster)
    if served is None:
        return service_needs(recipes_of(recipe), device, Load(episodes=episodes))
    return service_needs(recipes_of(recipe), with_every_core(device), Load(episodes=episodes, workers=1))


def first_question(served: ServedConfig, plays: Mapping[str, Play]) -> Address:
    """Sampled as episodes are, with every field that one of them has: tools too, which many servers have to be started
    for. Which ones an agent offers is not known yet."""
    envs = [play.of.recipe.env for play in plays.values()]
    plans = [play.plan() for play in plays.values()]
    plan = next((plan for plan in plans if plan.temperature), plans[0])
    question = Question(
        messages=(),
        max_tokens=plan.max_turn_tokens,
        temperature=plan.temperature,
        top_p=plan.top_p,
        seed=int(plan.temperature > 0),
        stop=("</answer>",),
        tools=PROBE_OFFER.schemas
        if any(getattr(env, "protocol", "") == "native" and getattr(env, "tools", None) for env in envs)
        else (),
    )
    return served_model_address(served, question)


def ask_first(addresses: Sequence[Address], progress: Progress) -> None:
    progress.doing("asking judges and the model a first question")
    check_addresses(addresses, progress.say)


def dry_run(plays: Mapping[str, Play], player: str, progress: Progress) -> int:
    """What would be played, and by whom."""
    progress.say(f"{player} would play {describe_plan(plays)}")
    for name, play in plays.items():
        tasks, per_task = len(play.of.tasks), play.samples * play.seeds
        turns = make_world(play.of.recipe.env).max_turns
        episodes = f"episodes, {name} = {tasks} tasks x {play.samples} x {play.seeds} seeds = {tasks * per_task}"
        progress.say(f"{episodes}, of at most {turns} messages: {tasks * per_task * turns} answers of the model")
    return 0


def play_on_engines(recipe: RecipeConfig, model: str, progress: Progress, work: Work, *, scratch: bool) -> None:
    """scratch: the model was built by this command."""
    from launch.driver.run.engines import on_engines  # Ray behind it

    on_engines(recipe, model, progress, lambda _, pool: work(pool), scratch=scratch, playing=recipes_of(recipe))


def play_on_endpoint(
    served: ServedConfig,
    recipe: RecipeConfig,
    renderer: ChatRenderer,
    plays: Mapping[str, Play],
    folder: Path,
    progress: Progress,
    work: Work,
) -> None:
    """folder: of the transcripts. The model's answers lie there too: no question is asked twice."""
    from launch.driver.run.served import on_endpoint  # Ray behind it

    plans = [play.plan() for play in plays.values()]
    playing = recipes_of(recipe)
    on_endpoint(served, recipe, renderer, folder / ANSWERS, progress, work, plans=plans, playing=playing)


def play(
    recipe: RecipeConfig,
    plays: Mapping[str, Play],
    transcripts: Transcripts,
    progress: Progress,
    on: Callable[[Work], None],
    *,
    served: bool,
) -> None:
    """All that has not been played yet; what has is in `transcripts`.

    on: starts what plays, and ends it. served: by a model at an address, of which more failures than
    `loop.max_failed_share` end it as soon as they say something. Raises RunFailed then.
    """
    total = sum(len(play.of.tasks) for play in plays.values())
    done = sum(len(played) for played in transcripts.played.values())
    if done:
        progress.say(f"{done} of {total} groups have been played already: {transcripts.folder}")
    if done == total:
        return
    episodes, failed = 0, list[Failure]()

    async def work(pool: Plays) -> None:
        waiting = list_pending(plays, transcripts.played)
        progress.say(f"playing {sum(pending.plan.group_size for pending in waiting)} episodes")
        progress.doing("groups played")
        at_once = evaluated_at_once(recipe, recipes_played(plays), served=served)
        await play_each(pool, waiting, at_once, finished)

    def finished(pending: PendingGroup, group: Group) -> None:
        nonlocal done, episodes
        transcripts.add(pending.play, group)
        done += 1
        episodes += pending.plan.group_size
        failed.extend(trajectory.reward for trajectory in group.trajectories if isinstance(trajectory.reward, Failure))
        if served and episodes >= FEW:
            check_failure_share(failed, episodes, recipe.loop.max_failed_share, "episodes so far")
        progress.count(done, total)

    on(work)
    progress.doing("ending every process")


def finish(
    options: argparse.Namespace,
    metadata: dict[str, Any],
    plays: Mapping[str, Play],
    transcripts: Transcripts,
    earlier: Mapping[str, EvalResult] | None,
    progress: Progress,
) -> int:
    """Say and write what was found. Raises RunFailed where too many episodes of a play failed."""
    progress.doing("computing intervals")
    results = {name: result_of(transcripts.records(name), play) for name, play in plays.items()}
    papers = {name: paper_figures_of(play) for name, play in plays.items()}
    ours = {
        name: replace(play_result.played, prompts=plays[name].digest(), way=plays[name].way())
        for name, play_result in results.items()
    }
    together, more = combine_plays(plays, ours, earlier)
    document = evaluation_report(metadata, plays, results) | more
    for line in [*results_table(results), *metric_lines(results, papers), *together, *failure_lines(results)]:
        progress.say(line)
    if earlier is not None:
        differences = compare_with_earlier(ours, earlier, options.test)
        document["against"] = {"file": options.against, "plays": {name: v.json() for name, v in differences.items()}}
        for line in against_lines(differences, options.against):
            progress.say(line)
    if options.output is not None:
        document["transcripts"] = {name: str(transcripts.folder / file_name(name)) for name in plays}
        write(Path(options.output), document)
        progress.say(f"wrote {options.output} and {transcripts.folder}/")
    for name, result in results.items():
        check_failure_share(result.failed, result.episodes, result.limit, f"episodes, {name},")
    return 0


@contextmanager
def open_transcripts(
    options: argparse.Namespace, player: Mapping[str, Any], plays: Mapping[str, Play]
) -> Iterator[Transcripts]:
    """The files that episodes are written to as they end: next to --output, or without it in a temporary folder.

    player: what plays; others do not continue it.
    """
    sizes = {name: play.samples * play.seeds for name, play in plays.items()}
    ways = {f"{name} {key}": value for name, play in plays.items() for key, value in play.identity().items()}
    same = {key: player[key] for key in ("weights", "tokenizer") if key in player}
    identity = same | {"plays": ", ".join(plays)} | ways
    with tempfile.TemporaryDirectory() as nowhere, ExitStack() as closing:
        folder = Path(nowhere) / "transcripts"
        if options.output is not None:
            folder = transcript_folder(Path(options.output), resume=options.resume)
        transcripts = Transcripts(folder, identity, sizes)
        closing.callback(transcripts.close)
        yield transcripts


def about_model(model: str) -> dict[str, Any]:
    return {"checkpoint": model, "step": model_step(Path(model)), "weights": weights_id(model)}


def about_served(served: ServedConfig, renderer: ChatRenderer) -> dict[str, Any]:
    """The tokenizer that counts what it says is not its own, and decides where its answers are cut."""
    metadata = {"checkpoint": served.described, "step": None, "weights": served.identity}
    return metadata | {"tokenizer": tokenizer_id(renderer), "endpoint": served.asked}


def about_plays(config: RunConfig, plays: Mapping[str, Play]) -> dict[str, Any]:
    """What was played, and with what: the part of the result that does not depend on the episodes."""
    return {
        "tasks": max(len(play.of.tasks) for play in plays.values()),
        "seed": config.recipe.seed,
        "versions": versions(),
        "config": yaml.safe_load(to_yaml(config)),
    }


def plays_to_play(recipe: RecipeConfig, trained: str | None) -> dict[str, Play]:
    """Of the recipe's sets; without any, of a data file that the checkpoint has not seen all tasks, else the held-out
    ones."""
    sets = [
        item if item.name else replace(item, split=split_to_evaluate(recipe.env, trained)) for item in sets_of(recipe)
    ]
    return {name: play for task_set in sets for name, play in task_set.plays().items()}


def split_to_evaluate(env: Any, trained: str | None) -> str:
    """`all` for a data file that the checkpoint has not seen; else `held_out`, whatever other keys were changed."""
    data = env.data if isinstance(env, TaskConfig) else None
    if data is None or env.eval_data is not None:
        return "held_out"
    return "held_out" if trained is not None and Path(trained).resolve() == Path(data).resolve() else "all"


def find_training_data(checkpoint: str) -> str | None:
    """`env.data` of the run that a checkpoint lies in: what it was trained on is no evaluation. None if unknown, as
    of a hub name.

    Read, not composed: that would import the modules that a folder of another author names (docs/trust.md).
    """
    model = Path(checkpoint)
    run_dir = next(filter(is_run, model.resolve().parents), None) if model.is_dir() else None
    if run_dir is None:
        return None
    layers, stages = read_config_layers(run_dir / "config.yaml", seen=())
    configs = [layer.values for layer in layers] + [layer for stage in stages[-1:] for layer in stage.layers]
    envs = [values.get("env") for values in configs]
    data_files = [env["data"] for env in envs if isinstance(env, dict) and "data" in env]
    return str(data_files[-1]) if data_files and data_files[-1] is not None else None
