"""`rlsys judge`: the judge stage of a recipe by itself, asked of an address: no engine, no learner, no GPU waits."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from pathlib import Path

from envs.rewards import judge_config_of
from envs.services.first_question import check_addresses
from launch.checks import preflight
from launch.commands.shared import add_config
from launch.config.compose import compose
from launch.driver.observe.progress import Progress, process_start
from launch.driver.run.cleanup import orderly_exit
from launch.driver.stages.addresses import judge_endpoints_of_reward
from launch.driver.stages.judge import (
    judge_missing,
    open_verdicts,
    service_of,
    trajectories,
    unread_line,
    verdicts_path,
    write_out,
)
from rlsys.config.recipe import RunConfig, StageConfig
from rlsys.errors import BadInput

HELP = "judge generated trajectories, without engines; the same command continues where it was stopped"
EXAMPLES = """examples:
  rlsys generate swirl --output tries.jsonl
  rlsys judge swirl --input tries.jsonl --output judged.jsonl
  rlsys train swirl stages.tries=null stages.judged=null stages.swirl.data=judged.jsonl
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_config(parser, "override a key, such as stages.judged.reward.judge.max_concurrent=64")
    parser.add_argument(
        "--input", metavar="F.jsonl", required=True, help="trajectories, as `rlsys generate` writes them"
    )
    output = "file for them with their verdicts; F.verdicts.jsonl gets each verdict as it comes"
    parser.add_argument("--output", metavar="F.jsonl", required=True, help=output)


def run(options: argparse.Namespace) -> int:
    with Progress(since=process_start()) as progress:
        progress.doing("reading the configuration")
        stage = judge_stage(compose(options.config, options.overrides), options.input)
        return judge(stage, Path(options.input), output_file(options.output), progress)


def output_file(output: str) -> Path:
    """Raises BadInput for a place that cannot be written, or a file that is not this command's: the input is none."""
    path = preflight.check_output(output)
    if path.exists() and not (verdicts := verdicts_path(path)).exists():
        raise BadInput(f"it is there, and no {verdicts.name} to continue from", key="--output", found=output)
    return path


def judge_stage(config: RunConfig, source: str) -> StageConfig:
    """The recipe's last stage that judges, of the trajectories in `source`. Raises BadInput."""
    judging = [stage for stage in config.stages if stage.kind == "judge"]
    if not judging:
        kinds = ", ".join(dict.fromkeys(stage.kind for stage in config.stages))
        raise BadInput(where=config.recipe.name, key="stages", found=kinds, expected="a stage of kind judge among them")
    stage = replace(judging[-1], data=source)
    asked = judge_config_of(stage.config.reward)
    if asked is not None and asked.server:
        key = f"stages.{stage.name}.reward.judge.model"
        expected = "reward.judge.endpoint with it, or reward.judge.service of a running `rlsys serve judge`"
        raise BadInput("a run would serve this judge, on its GPUs", key=key, found=asked.model, expected=expected)
    return stage


def judge(stage: StageConfig, source: Path, output: Path, progress: Progress) -> int:
    progress.doing("reading the trajectories")
    total = sum(1 for _ in trajectories(source))  # raises BadInput for what is none
    store, verdicts = open_verdicts(output, stage, source)

    async def work() -> None:
        service = service_of(stage)
        try:
            await judge_missing(stage, source, service, store, verdicts, progress, begin=progress.begin)
            if line := unread_line(service):
                progress.say(f"health: {line}")
        finally:
            await service.close()

    try:
        with orderly_exit():
            if len(verdicts) < total:
                check_addresses(list(judge_endpoints_of_reward("reward.judge", stage.config)), progress.say)
                asyncio.run(work())
            counts = write_out(source, output, verdicts)
    finally:
        store.close()
    progress.say(counts.describe())
    progress.say(f"wrote {output}")
    return 0
