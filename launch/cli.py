"""The `rlsys` command.

Exit codes: 0 done, 1 the run failed (the reason is the last line), 2 bad input, 130 or 143 stopped.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from typing import Any, NoReturn

from launch.commands import index, judge_errors, serve
from rlsys.errors import BadInput, RunFailed

EXAMPLES = """examples:
  rlsys train quickstart                                  the main job, on this machine
  rlsys train quickstart --dry-run                        the resolved config and the arithmetic behind it
  rlsys train quickstart stages.rl.steps=10 seed=1        overrides: key=value, stages.NAME.key=value for one stage
  rlsys train quickstart --run-dir runs/mine --resume     continue a stopped run
  rlsys train quickstart model.path=./my-model            any Hugging Face causal LM, by folder or hub name
  rlsys eval quickstart                                   the last run's checkpoint on held-out tasks
  rlsys eval quickstart env.data=gsm8k.jsonl --output result.json
  rlsys eval quickstart --checkpoint runs/mine            any run, checkpoint, model folder or hub name
  rlsys generate quickstart --output tries.jsonl          the last run's answers to the training tasks
  rlsys generate quickstart --output best.jsonl --samples 8 --keep correct
  rlsys score research --input answers.jsonl              rewards of given transcripts, as JSON lines
  rlsys score icrl --input answers.jsonl --explain 7      line 7: each rule that fired, and on which text
  rlsys serve retriever --corpus wiki.jsonl --port 8000   the retrieval service alone
  rlsys index --corpus wiki.jsonl --index indexes/wiki    its index on disk
  rlsys serve judge --model ./my-judge                    the judge alone, or --endpoint URL --model NAME
  rlsys judge-errors --input labelled.jsonl --kind process --endpoint URL --model NAME
  ray job submit --working-dir . -- python -m launch train quickstart --run-dir /shared/runs/q1
"""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} (see `{self.prog} --help`)")


def parser() -> Parser:
    top = Parser(
        prog="rlsys",
        description="Train language models by reinforcement learning to reason in steps and use tools.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    config = "a name under configs/ (quickstart) or a path to a YAML file"
    for name, text in (("train", "all stages of a recipe"), ("eval", "the recipe's evaluation of a checkpoint")):
        command = commands.add_parser(
            name, help=text, description=text, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        command.add_argument("config", metavar="CONFIG", help=config)
        command.add_argument("overrides", metavar="key=value", nargs="*", help="override a key of the config")
        if name == "train":
            command.add_argument(
                "--run-dir",
                metavar="D",
                help="where the run writes; an unfinished one is continued (default: runs/NAME)",
            )
            command.add_argument(
                "--resume", action="store_true", help="insist that there is a checkpoint to continue from"
            )
            command.add_argument(
                "--dry-run", action="store_true", help="print the resolved config and its arithmetic, start nothing"
            )
        else:
            command.add_argument(
                "--checkpoint",
                metavar="D|HF_ID",
                help="run directory, checkpoint, model folder or hub name (default: the last run's)",
            )
            command.add_argument("--output", metavar="F", help="write accuracy and trajectories as JSON")
    add_generate(commands, config)
    add_score(commands, config)
    for name, module in (("serve", serve), ("index", index), ("judge-errors", judge_errors)):
        command = commands.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=module.EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add(command)
        command.set_defaults(handler=module.run)
    return top


# Flags of `rlsys generate`, each a key of `generate` in the config.
GENERATE_FLAGS = {
    "samples": ("N", "trajectories per task"),
    "temperature": ("T", "of the samples"),
    "tasks": ("N", "at most this many training tasks"),
    "keep": ("all|best|correct", "which of a task's trajectories are written"),
    "min_reward": ("R", "write those with at least this reward"),
    "per_task": ("K", "write at most this many of a task"),
}


def add_generate(commands: argparse._SubParsersAction[Any], config: str) -> None:
    text = "trajectories to train on; the same command again goes on where it was stopped"
    command = commands.add_parser(
        "generate", help=text, description=text, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("config", metavar="CONFIG", help=config)
    command.add_argument(
        "overrides", metavar="key=value", nargs="*", help="override a key, such as generate.top_p=0.95"
    )
    command.add_argument(
        "--output",
        metavar="F.jsonl",
        required=True,
        help="what is kept; F.pairs.jsonl gets preference pairs, F.played.jsonl all that was played",
    )
    command.add_argument(
        "--checkpoint",
        metavar="D|HF_ID",
        help="run directory, checkpoint, model folder or hub name (default: the last run's)",
    )
    for key, (shown, meaning) in GENERATE_FLAGS.items():
        command.add_argument(f"--{key.replace('_', '-')}", metavar=shown, help=f"{meaning} (generate.{key})")


def add_score(commands: argparse._SubParsersAction[Any], config: str) -> None:
    text = "rewards of given transcripts, offline"
    command = commands.add_parser(
        "score", help=text, description=text, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.add_argument("config", metavar="CONFIG", help=config)
    command.add_argument("overrides", metavar="key=value", nargs="*", help="override a key, such as reward.clamp=false")
    command.add_argument(
        "--input",
        metavar="F.jsonl",
        required=True,
        help='one {"task": {...}, "response": "..."} per line; - is stdin',
    )
    command.add_argument("--output", metavar="G.jsonl", help="one result per line, in order (default: stdout)")
    command.add_argument("--strict", action="store_true", help="stop with exit code 2 at the first line that fails")
    command.add_argument(
        "--explain", metavar="N", nargs="?", const="", help="print why line N (default: the first) got its reward"
    )


def run(argv: list[str]) -> int:
    """Parse, dispatch, and turn every ending into an exit code and a last line."""
    logging.basicConfig(format="rlsys: %(message)s", level=logging.WARNING, stream=sys.stderr)
    try:
        # Intermixed, so that key=value may stand before and after the flags.
        options, rest = parser().parse_known_args(argv)
        takes_overrides = "overrides" in options
        unknown = [word for word in rest if word.startswith("-") or "=" not in word or not takes_overrides]
        if unknown:
            raise BadInput(f"unrecognized argument {unknown[0]!r} (see `rlsys {options.command} --help`)")
        return dispatch(options, [*options.overrides, *rest] if takes_overrides else [])
    except BadInput as error:
        print(f"rlsys: error: {error}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"rlsys: failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        traceback.print_exc()
        print(f"rlsys: failed: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def dispatch(options: argparse.Namespace, overrides: list[str]) -> int:
    # Imports wait until here: --help and a typo answer at once.
    if "handler" in options:
        options.overrides = overrides
        return int(options.handler(options))
    if options.command == "score":
        from launch.commands.score import score_command

        explain = options.explain
        if explain is not None and "=" in explain:  # `--explain reward.clamp=false`: no line number
            explain, overrides = "", [*overrides, explain]
        return score_command(
            options.config, overrides, options.input, options.output, strict=options.strict, explain=explain
        )
    if options.command == "generate":
        from launch.commands.generate import generate_command

        flags = {key: getattr(options, key) for key in GENERATE_FLAGS}
        given = [f"generate.{key}={value}" for key, value in flags.items() if value is not None]
        return generate_command(options.config, [*overrides, *given], options.checkpoint, options.output)
    if options.command == "eval":
        from launch.commands.eval import eval_command

        return eval_command(options.config, overrides, options.checkpoint, options.output)
    if options.dry_run:
        from launch.config.compose import compose, to_yaml
        from launch.run import preflight
        from launch.stages.arithmetic import arithmetic

        config = compose(options.config, overrides)
        preflight.check_model_folder(config.recipe.model.path)
        follows = arithmetic(config)  # first: it is where a task file that cannot be read is said
        print(to_yaml(config))
        print("# what follows from it")
        for line in follows:
            print(f"#   {line}")
        return 0
    from launch.commands.train import train_command

    return train_command(options.config, overrides, options.run_dir, options.resume)


def main() -> NoReturn:
    sys.exit(run(sys.argv[1:]))
