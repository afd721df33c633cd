"""`rlsys recipes`: the recipes that come along, with their papers, stages and data."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path

from launch.config.compose import compose
from launch.config.layers import CONFIGS
from launch.data.makers import maker_of

HELP = "list the included recipes: paper, stages, whether their data is prepared"
WIDE = 120
WHOLE = "\N{NO-BREAK SPACE}"  # in the place of a command's spaces, until lines are wrapped
EXAMPLES = """examples:
  rlsys recipes                              all of them; `rlsys train NAME --dry-run` says what follows from one
"""


def add(parser: argparse.ArgumentParser) -> None:
    """It takes no options."""


def run(options: argparse.Namespace) -> int:
    files = [path for path in CONFIGS.rglob("*.yaml") if path.parent.name != "ablations"]
    by_name = {str(path.relative_to(CONFIGS).with_suffix("")).removesuffix("/paper"): path for path in files}
    for name, path in sorted(by_name.items()):
        config = compose(str(path), [])
        about = config.recipe.about
        stages = ", ".join(
            f"{stage.name} ({stage.kind}{f' {stage.steps}' if stage.steps else ''})" for stage in config.stages
        )
        print(indent(f"{name:<25} {stages}"))
        if about.title:
            print(indent(f"{'':<26}{about.title}{f', arXiv {about.arxiv}' if about.arxiv else ''}"))
        if about.data:
            print(indent(f"{'':<26}data: {', '.join(about.data)}; {describe_data(config.recipe.env)}"))
        names = [file.stem for file in sorted((path.parent / "ablations").glob("*.yaml"))]
        if names and path.name == "paper.yaml":
            print(indent(f"{'':<26}{name}/ablations/NAME: {', '.join(names)}"))
    return 0


def indent(line: str) -> str:
    """Wrapped between words alone: a name or a command that is broken cannot be copied."""
    text = textwrap.fill(line, WIDE, subsequent_indent=" " * 28, break_on_hyphens=False, break_long_words=False)
    return text.replace(WHOLE, " ")


def describe_data(env: object) -> str:
    data = getattr(env, "data", None)
    if data is None:
        return "made up"
    if Path(data).exists():
        return f"prepared in {Path(data).parent}"
    command = maker_of(data)
    return f"not prepared: `{command.replace(' ', WHOLE)}`" if command else f"not prepared: {data} is missing"
