"""The `rlsys` command.

Exit codes: 0 done, 1 the run failed (the reason is the last line), 2 bad input, 130 or 143 stopped.

A command is a module of `launch.commands` with HELP, EXAMPLES, `add(parser)` and `run(options)`, and one line of
COMMANDS. Only the module of the command that was asked for is imported.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import logging
import os
import select
import sys
import traceback
from functools import partial
from typing import Any, NoReturn

from launch.driver.run.parent import with_parent
from rlsys import VERSION
from rlsys.errors import BadInput, RunFailed, last_line, nearest
from rlsys.system.cards import hide_cards
from rlsys.untrusted import visible_lines

COMMANDS: dict[str, tuple[str, str]] = {  # name: (module, what `rlsys --help` says of it)
    "train": ("launch.commands.train", "train a model: all stages of a recipe"),
    "plan": (
        "launch.commands.plan",
        "plan a run: memory, disk, the time of a step and the best split of given machines",
    ),
    "eval": ("launch.commands.eval", "evaluate a checkpoint as the recipe says"),
    "runs": ("launch.commands.runs", "list runs: state, step, result, age and size of each"),
    "audit": ("launch.commands.audit", "prove that nothing of a run was lost, trained twice or changed"),
    "incidents": (
        "launch.commands.incidents",
        "list what was collected when something of a run broke, or collect it now",
    ),
    "chaos": ("launch.commands.chaos", "train with faults injected, and say what each of them cost"),
    "compare": ("launch.commands.compare", "compare the results of several evaluations"),
    "generate": ("launch.commands.generate", "generate trajectories to train on"),
    "judge": ("launch.commands.judge", "judge generated trajectories, without engines"),
    "merge": ("launch.commands.merge", "merge the adapter of a checkpoint into its model"),
    "submit": ("launch.commands.submit", "submit a run to a Ray cluster as a job"),
    "doctor": (
        "launch.commands.doctor",
        "look at this machine, or at every node of a cluster, for what would stop a run",
    ),
    "check": ("launch.commands.check", "say in a screen whether a model can be trained here"),
    "play": ("launch.commands.play", "play an episode: you write the model's messages"),
    "new": ("launch.commands.new", "create a folder of your own to start from"),
    "view": ("launch.commands.view", "show the report of runs in a browser, also while they are in progress"),
    "show": ("launch.commands.show", "show trajectories of a run in the terminal"),
    "report": ("launch.commands.report", "make one page of a run or several"),
    "analyse": ("launch.commands.analyse", "draw curves and tables of runs"),
    "score": ("launch.commands.score", "compute the rewards of given transcripts, offline"),
    "recipes": ("launch.commands.recipes", "list the included recipes"),
    "config": ("launch.commands.config", "explain the keys of a configuration"),
    "serve": ("launch.commands.serve", "serve a trained model, the retriever or the judge"),
    "data": ("launch.commands.data", "prepare public data sets as task files and corpora"),
    "index": ("launch.commands.index", "build a retrieval index"),
    "judge-errors": ("launch.commands.judge_errors", "measure a judge's errors on labelled answers"),
}
STARTING_RAY = ("train", "eval", "generate")
ALIASES = {"analyze": "analyse"}
EXAMPLES = """examples:
  rlsys train quickstart                                  trains on this machine
  rlsys eval quickstart                                   the last run's checkpoint on held-out tasks
  rlsys COMMAND --help                                    more examples
"""


class Parser(argparse.ArgumentParser):
    """Of a command and of those below it: examples keep their lines, and an error is bad input."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message} (see `{self.prog} --help`)")


def parse(argv: list[str]) -> argparse.Namespace:
    """The options of a command, with the `run` of its module. key=value words may stand before and after the flags."""
    argv = [ALIASES.get(word, word) for word in argv[:1]] + argv[1:]
    if argv and not argv[0].startswith("-") and argv[0] not in COMMANDS:
        raise BadInput(f"no command {argv[0]!r}{nearest(argv[0], COMMANDS)}")
    top = Parser(
        prog="rlsys",
        description="Train language models by reinforcement learning to reason in steps and use tools.",
        epilog=EXAMPLES,
    )
    top.add_argument("--version", action="version", version=f"rlsys {VERSION}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        parser = commands.add_parser(name, help=text)
        if name in argv[:1]:
            command = importlib.import_module(module)
            parser.description, parser.epilog = command.HELP, command.EXAMPLES
            command.add(parser)
            parser.set_defaults(run=command.run)
    options, rest = top.parse_known_args(argv)
    unknown = [word for word in rest if word.startswith("-") or "=" not in word or "overrides" not in options]
    if unknown:
        from launch.commands.shared import as_key  # every key of a configuration behind it

        hint = as_key(unknown[0]) if "overrides" in options else ""
        raise BadInput(f"unrecognized argument {unknown[0]!r}{hint} (see `rlsys {options.command} --help`)")
    if rest:
        options.overrides = [*options.overrides, *rest]
    return options


def run(argv: list[str]) -> int:
    """Parse, dispatch, and turn every ending into an exit code and a last line."""
    logging.basicConfig(format="rlsys: %(message)s", level=logging.WARNING, stream=sys.stderr)
    try:
        refuse_lost_folder()
        options = parse(argv)
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError as error:
        return end_unread_stdout(error)
    except BadInput as error:
        print(f"rlsys: error: {visible_lines(explain(error))}", file=sys.stderr)
        return 2
    except RunFailed as error:
        print(f"rlsys: failed: {visible_lines(last_line(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return report_failure(error)
        print(f"rlsys: error: {visible_lines(str(error.filename))[:60]}...: {error.strerror}", file=sys.stderr)
        return 2
    except Exception as error:
        return report_failure(error)


def explain(error: BadInput) -> str:
    """Its line, with the command that makes a file of a recipe where that is missing."""
    if "o such file" not in str(error) or error.key.startswith("--"):  # a file to write has no maker
        return str(error)
    from launch.data.makers import with_maker  # every public set behind it

    return with_maker(str(error))


def refuse_lost_folder() -> None:
    """Raises BadInput where the working folder was removed, or made again, since this process entered it."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        way = "enter it again"
        if "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ:  # two nodes on one machine share the folder that Ray unpacks
            way = "submit the job without --working-dir, as bash -c 'cd CHECKOUT && python -m launch ...'"
        raise BadInput(f"the working folder ({os.environ.get('PWD', 'unknown')}) is there no more: {way}") from error


def report_failure(error: Exception) -> int:
    if not (isinstance(error, OSError) and error.filename is not None):  # a full disk is no defect of ours
        sys.stderr.write(visible_lines("".join(traceback.format_exception(error))))
    print(f"rlsys: failed: {visible_lines(last_line(error))}", file=sys.stderr)
    return 1


def end_unread_stdout(error: BrokenPipeError) -> int:
    """The reader of stdout, such as `head`, has closed it: a quiet end. Another broken pipe is a failure."""
    out = select.poll()
    out.register(1, 0)  # the system reports POLLERR for a pipe without a reader, asked for or not
    if not any(event & select.POLLERR for _, event in out.poll(0)):
        return report_failure(error)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing is left to fail when Python ends
    return 0


def end_run(owner: str) -> str:
    from launch.driver.run.cleanup import end_run  # psutil behind it: the parent waits without

    return end_run(owner)


def main() -> NoReturn:
    """The same as a command: one that starts Ray runs under a parent, which outlives what Ray does to it."""
    argv = sys.argv[1:]
    work = partial(run, argv)
    if not (argv[:1] and argv[0] in STARTING_RAY):
        sys.exit(work())
    hide_cards()  # before anything is imported that could take one
    sys.exit(with_parent(work, end_run))
