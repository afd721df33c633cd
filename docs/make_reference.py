"""Writes the pages of docs/reference that code already says: `python docs/make_reference.py`.

cli.md is the `--help` of every command. records.md and python.md are the classes that other people's code meets, as
their source has them: docstrings as text, fields and signatures as code. A test compares the pages with their source.
"""

import argparse
import ast
import importlib
import inspect
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from launch.cli import COMMANDS, Parser

PAGES = Path(__file__).parent / "reference"
SHARED = ("a name under configs/ (quickstart) or a path to a YAML file", "override a key of the config")  # said once
SAME = 5  # so many options that an earlier command has too, word for word, are one line that names it
MADE = "<!-- python docs/make_reference.py -->"

RECORDS = {
    "What is asked and said": ("rlsys.types", ("Task", "Message", "Step", "Transcript", "EpisodeEnd")),
    "What it was worth": ("rlsys.types", ("Reward", "TokenStream", "Failure", "FailureKind")),
    "What was sampled": (
        "rlsys.types",
        ("Completion", "VersionSpan", "TurnStop", "SampleBegin", "Turn", "Trajectory", "Timings", "Ticket", "Group"),
    ),
    "What is trained": ("rlsys.types", ("Sample",)),
}
CONTRACTS = {
    "An environment": ("envs.base", ("World", "Demonstration", "Tool", "Service")),
    "One episode of it": ("rlsys.rollout", ("Env",)),
    "By configuration": ("envs", ("make_world", "new_world", "make_reward")),
    "An algorithm": ("learners.algorithms.base", ("Algorithm",)),
    "Errors": ("rlsys.errors", ("BadInput", "RunFailed")),
}


def cli_page() -> str:
    """All commands. argparse wraps usages at the width that COLUMNS names."""
    with patch.dict(os.environ, COLUMNS="127"):
        return "\n".join(commands())


def commands() -> Iterator[str]:
    yield head("Commands", CLI)
    shown_by: dict[str, str] = {}
    for name, (module, _) in COMMANDS.items():
        command = importlib.import_module(module)
        parser = Parser(prog=f"rlsys {name}")
        parser.description, parser.epilog = command.HELP, command.EXAMPLES
        command.add(parser)
        yield from explain(parser, "##", parser.epilog, shown_by)
        for below in inner(parser):
            yield from explain(below, "###", "" if below.epilog == parser.epilog else below.epilog, shown_by)


def explain(parser: argparse.ArgumentParser, level: str, epilog: str | None, shown_by: dict[str, str]) -> Iterator[str]:
    """What `--help` prints, but for what the page says once: usage and examples as code, a line for each option.

    shown_by: by the line of an option, the command under which the page has it first.
    """
    parser._optionals._remove_action(parser._option_string_actions["-h"])
    yield f"{level} {parser.prog}\n\n{parser.description}.\n"
    yield code(f"{parser.format_usage()}\n{epilog or ''}")
    form, lists, flags = parser._get_formatter(), dict[str, list[str]](), dict[str, str]()
    for group in parser._action_groups:
        own = [action for action in group._group_actions if action.help and action.help not in SHARED]
        lines = [f"* `{form._format_action_invocation(action)}`: {form._expand_help(action)}" for action in own]
        flags |= {
            line: f"`{(*action.option_strings, action.dest)[0]}`" for line, action in zip(lines, own, strict=True)
        }
        untitled = group in (parser._positionals, parser._optionals)
        lists.setdefault("" if untitled else f"{group.title}: {group.description or ''}".rstrip(), []).extend(lines)
    times = Counter(shown_by[line] for line in flags if line in shown_by)
    again = {line: shown_by[line] for line in flags if line in shown_by and times[shown_by[line]] >= SAME}
    for earlier in dict.fromkeys(again.values()):
        same = ", ".join(flags[line] for line in again if again[line] == earlier)
        lists.setdefault("", []).append(f"* as of [`{earlier}`](#{earlier.replace(' ', '-')}): {same}")
    for title, lines in lists.items():
        if shown := "\n".join(line for line in lines if line not in again):
            yield (f"{title}\n\n{shown}" if title else shown).replace("<", "\\<") + "\n"
    shown_by |= {line: parser.prog for line in flags if line not in shown_by}


def inner(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.values()


def code(text: str, language: str = "") -> str:
    return f"```{language}\n{text.strip()}\n```\n"


def head(title: str, text: str) -> str:
    return f"# {title}\n\n{MADE}\n\n{text.strip()}\n"


def api_page(title: str, text: str, contents: dict[str, tuple[str, tuple[str, ...]]]) -> str:
    parts = [head(title, text)]
    for section, (module, names) in contents.items():
        parts.append(f"## {section}\n\n`from {module} import {', '.join(names)}`\n")
        parts += [describe(getattr(importlib.import_module(module), name)) for name in names]
    return "\n".join(parts)


def describe(symbol: Any) -> str:
    """A heading, the docstring, and the source without docstrings and bodies."""
    source = inspect.getsource(symbol)
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.ClassDef | ast.FunctionDef)
    lines = source.splitlines()
    signature = [*definition(node, lines)] if isinstance(node, ast.FunctionDef) else [*members(node, lines)]
    text = prose(inspect.getdoc(symbol) or "")
    return f"### {symbol.__name__}\n\n{text}\n" + code("\n".join(signature), "python")


def prose(doc: str) -> str:
    """A docstring as Markdown: paragraphs as they are, what is indented or an example of a call as code."""
    parts = []
    for part in re.split(r"\n\s*\n", doc):
        is_code = re.match(r"\s{4}|[A-Za-z_]+\(.*[,)]$|\w+ += ", part.partition("\n")[0])
        parts.append(code(inspect.cleandoc(part), "python") if is_code else f"{part}\n")
    return "\n".join(parts)


def members(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """The class line, its fields with their comments, and its methods without their bodies."""
    yield from lines[node.lineno - 1 : node.body[0].lineno - 1] or [lines[node.lineno - 1]]
    for member in node.body:
        if isinstance(member, ast.AnnAssign | ast.Assign):
            yield from lines[member.lineno - 1 : member.end_lineno]
        elif isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and not member.name.startswith("_"):
            yield from (*definition(member, lines), *comment(ast.get_docstring(member), " " * 8))
        elif isinstance(member, ast.Expr) and isinstance(member.value, ast.Constant) and member != node.body[0]:
            yield from comment(inspect.cleandoc(str(member.value.value)), " " * 4)  # of the field above it


def definition(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> Iterator[str]:
    """Decorators and the lines of the definition, without the body."""
    yield from (lines[decorator.lineno - 1] for decorator in node.decorator_list)
    yield from lines[node.lineno - 1 : max(node.lineno, node.body[0].lineno - 1)]


def comment(text: str | None, indent: str) -> Iterator[str]:
    yield from (f"{indent}# {line}".rstrip() for line in (text or "").splitlines())


CLI = """
What each command takes, as `rlsys COMMAND --help` prints it. `CONFIG` is a name under configs/ (`quickstart`) or a path
to a YAML file; `key=value` words override [its keys](../configuration.md), before and after the options.
`rlsys --version` prints the version. What a command returns: [exit codes](exit-codes.md).
"""

RECORD = """
For authors of rewards and environments, which read and return them: the frozen records of `rlsys/types.py`, in the
order in which a task becomes a training sample; files of a run hold them as JSON: [its files](../run-directory.md),
[scored lines](../scoring.md).
"""

CONTRACT = """
What code of your own meets: the contracts of environments and algorithms, and the functions that build them from a
configuration. A reward is any class that is built with its config and called with a `Transcript`
([a reward of your own](../rewards/README.md)). The records are on [their own page](records.md). rlsys 0.1 promises no
stability of other modules. There is no Python function that trains: a run is started by `rlsys train`.
"""

MAKERS: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "records.md": lambda: api_page("Records", RECORD, RECORDS),
    "python.md": lambda: api_page("Python interfaces", CONTRACT, CONTRACTS),
}


if __name__ == "__main__":
    for name, make in MAKERS.items():
        (PAGES / name).write_text(make())
