"""Every command that a page prints is one that rlsys takes, with overrides that its recipe takes.

What the machine of the tests lacks, data and models, is no fault of a page.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from launch.cli import COMMANDS, parse
from launch.config.compose import compose, last_recipe
from launch.config.layers import find_config
from rlsys.errors import BadInput
from tests.paths import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "configs").rglob("*.md"))]
FENCED = re.compile(r"(?ms)^ *```\w*\n(.*?)^ *```")
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
COMMAND = re.compile(rf"(?:\$ |\w+=\S+ )*rlsys ({'|'.join(COMMANDS)})\b")
WORD = r"""(?:'[^']*'|"[^"]*"|\{(?:[^{}]|\{[^{}]*\})*\}|[^\s'"{])+"""
ONE = re.compile(rf"[a-z_]+(?:\.\w+)+={WORD}")
OVERRIDES = re.compile(rf"{ONE.pattern}( {ONE.pattern})*")
# Of pages under docs/ one of these takes an override; of a paper's page its recipe or the miniature.
ANY = ["quickstart", *(f"worlds/{world}" for world in ("search", "python", "sums", "graph", "blocksworld")),
       "research", "icrl", "swirl", "graph_rl", "long_cot"]  # fmt: skip
# Names that stand for a reader's own, and a setting of the system.
NO_KEYS = {
    "env.name=MODULE.CLASS", "env.name=my_module.MyWorld", "env.protocol=NAME", "env.width=31",
    "kernel.apparmor_restrict_unprivileged_userns=0", "reward.name=my_package.MyReward",
    "stages.NAME.key=value", "stages.NAME=null",
}  # fmt: skip
# Files that a page has one write, a recipe that is the reader's choice, and what a command looks like.
A_READERS = ("maze/maze.yaml", "example.yaml", "my_rewards.Brief", "raft.Raft", "RECIPE", "[key=value ...]")


def spans(text: str) -> list[str]:
    """Code within lines, a line's end in it being a space."""
    return [" ".join(span.split()) for span in INLINE.findall(FENCED.sub("", text))]


def lines(text: str) -> Iterator[str]:
    """Lines of code blocks: continued ones whole, without what a column or a comment beside them says."""
    for block in FENCED.findall(text):
        for line in re.sub(r"\\\n *", " ", block).splitlines():
            yield re.split(r" {3,}|\s#", line.strip())[0]


@cache
def refusal(paper: str | None, what: str) -> str | None:
    """Why rlsys does not take a command, or overrides, where it is not for data that are not here.

    paper: whose page it is.
    """
    try:
        if COMMAND.match(what):
            compose_command(shlex.split(re.split(r" [<>|] ", COMMAND.sub(r"\1", what, count=1))[0]))
        else:
            compose_anywhere([paper, f"{paper}/tiny"] if paper else ANY, [each[0] for each in ONE.finditer(what)])
    except BadInput as error:
        return None if "No such file or directory" in str(error) else str(error)
    except SystemExit:  # --help
        pass
    return None


def compose_command(words: Sequence[str]) -> None:
    options = parse(list(words))
    config, overrides = getattr(options, "config", None), getattr(options, "overrides", [])
    if config is not None and overrides:
        (last_recipe if options.command in ("score", "play") else compose)(config, overrides)
    elif options.command in ("train", "eval", "generate", "score", "play") and config != "CONFIG":
        find_config(config)


def compose_anywhere(configs: Sequence[str], overrides: Sequence[str]) -> None:
    """Raises what the first of the recipes says, where none takes them."""
    refused = []
    for config in configs:
        try:
            compose(config, overrides)
            return
        except BadInput as error:
            refused.append(error)
    raise refused[0]


def printed(text: str) -> Iterator[tuple[str, bool]]:
    """Commands and overrides, and whether they stand in a line, where a command may be named without its arguments."""
    for line in lines(text):
        yield from ((part, False) for part in line.split(" && ") if COMMAND.match(part))
    for span in spans(text):
        if COMMAND.match(span) or (OVERRIDES.fullmatch(span) and span not in NO_KEYS):
            yield span, True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_overrides_of_a_page_are_taken(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paper = page.parent.name if "configs" in page.parts else None
    for what, in_a_line in printed(page.read_text()):
        if not any(name in what for name in A_READERS):
            why = refusal(paper, what)
            named = in_a_line and why and re.search("arguments are required|expected one argument", why)
            assert why is None or named, f"{what}: {why}"
