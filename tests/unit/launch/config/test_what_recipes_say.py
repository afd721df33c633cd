"""What a recipe's file says in its comments, and what pages say of its settings; that its models can be planned."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml

from launch.checks.known_models import KNOWN
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from learners.algorithms import ALGORITHMS
from rlsys.choices import choose
from rlsys.errors import BadInput
from tests.paths import ROOT
from tests.unit.test_pages import compose_command

FILES = sorted(CONFIGS.rglob("*.yaml"))
MODEL = re.compile(r"(?m)^model: \{path: ([^,}\s]+)")
PAGE = ROOT / "docs" / "algorithms.md"
SETTINGS = (  # of the page's blocks, in order: recipe and stage
    ("research", "rl"),
    ("icrl", "shots_3"),
    ("graph_rl", "rl"),
    ("graph_rl/ablations/dpo-process", "dpo"),
    ("long_cot/ablations/cosine", "rl"),
    ("long_cot/ablations/reinforce", "rl"),
    ("swirl", "swirl"),
)


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


def test_the_settings_of_the_papers_on_the_page_are_those_of_the_recipes() -> None:
    text = PAGE.read_text()
    section = text[text.index("## The papers' settings") : text.index("Dr. GRPO (arXiv")]
    blocks = [yaml.safe_load(block)["algorithm"] for block in re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)]
    for block, (name, stage) in zip(blocks, SETTINGS, strict=True):
        (algorithm,) = [entry.config.algorithm for entry in compose(name, []).stages if entry.name == stage]
        schema = choose("algorithm", ALGORITHMS, block["name"]).schema
        assert asdict(schema(**block)) == asdict(algorithm), name
