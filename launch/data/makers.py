"""Which command makes a file that a recipe reads: what is said wherever that file is missing."""

from __future__ import annotations

import os
import re
from pathlib import PurePath

from launch.data.recipes import RECIPES, recipe_of
from launch.data.sets import SETS

ROOT = "data"  # where recipes look for their files
PREPARED = re.compile(rf"(?<![\w./-]){ROOT}/[\w.-]+/[\w./-]*\w")
MISSING = "o such file"


def maker_of(path: str) -> str | None:
    """`rlsys data prepare icrl` for data/icrl/train.jsonl; None for a file that no recipe names."""
    top, name, *inside = (*PurePath(path).parts, "", "")
    if top != ROOT or name not in (*RECIPES, *SETS):
        return None
    recipe, file = recipe_of(name), "/".join(filter(None, inside))
    if any(part.file == file for part in recipe.parts):
        return f"rlsys data prepare {name}"
    return recipe.own.get(file)


def with_maker(line: str) -> str:
    """The line of an error; where a file is missing that a recipe names, with the command that makes it."""
    match = PREPARED.search(line) if MISSING in line else None
    command = maker_of(match[0]) if match is not None and not os.path.exists(match[0]) else None
    if match is None or command is None:
        return line
    return f"{line[: match.end()]}: no such file: `{command}` makes it"
