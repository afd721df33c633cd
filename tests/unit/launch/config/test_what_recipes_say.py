"""What a recipe's file says in its comments; that its models can be planned."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from launch.checks.known_models import KNOWN
from launch.config.layers import CONFIGS
from rlsys.errors import BadInput
from tests.unit.test_pages import compose_command

FILES = sorted(CONFIGS.rglob("*.yaml"))
MODEL = re.compile(r"(?m)^model: \{path: ([^,}\s]+)")


def comments(path: Path) -> str:
    """All of a file, as one line."""
    lines = re.findall(r"(?m)(?:^|\s)# ?(.*)$", path.read_text())
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(CONFIGS)))
def test_a_command_in_a_comment_is_one_that_rlsys_takes(path: Path) -> None:
    for span in re.findall(r"`rlsys ([^`]*)`", comments(path)):
        try:
            compose_command(shlex.split(span))
        except BadInput as error:  # a command may be named without its arguments
            assert re.search("arguments are required|expected one argument", str(error)), f"rlsys {span}: {error}"


def test_memory_of_every_model_of_a_recipe_is_known_without_a_network() -> None:
    named = {model for path in FILES for model in MODEL.findall(path.read_text())} - {"null"}
    assert len(named) > 8 and named <= KNOWN.keys()
