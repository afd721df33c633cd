"""What a name in a configuration picks: `env.name`, `reward.name`, `algorithm.name`.

A table maps names to dotted paths, so that a process loads what its configuration names and nothing else. The class at
that path takes one argument, annotated with its config dataclass: the dataclass's fields are the keys of the YAML. A
name may itself be a dotted path, `my_rewards.Brief`: then the class is yours.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlsys import OURS
from rlsys.errors import BadInput, nearest

Table = Mapping[str, str]  # {"grpo": "learners.algorithms.grpo.GRPO"}

# Modules that a configuration may still name by the places where they were; for one version.
MOVED = {
    "envs.worlds.graph": "envs.papers.graph_rl.world",
    "envs.worlds.blocksworld": "envs.papers.graph_rl.blocks.world",
    "envs.worlds.pairs": "envs.papers.long_cot.world",
    "envs.rewards.swirl": "envs.papers.swirl.reward",
    "envs.rewards.graph_rl": "envs.papers.graph_rl.reward",
    "envs.rewards.summary": "envs.papers.graph_rl.summary",
    "envs.rewards.proscript": "envs.papers.graph_rl.proscript",
    "envs.rewards.blocksworld": "envs.papers.graph_rl.blocks.reward",
    "envs.rewards.research": "envs.papers.research.reward",
    "envs.rewards.icrl": "envs.papers.icrl.reward",
    "envs.rewards.long_cot": "envs.papers.long_cot.reward",
}


@dataclass(frozen=True, slots=True)
class Choice:
    schema: type  # the config dataclass
    build: Callable[[Any], Any]


def choose(key: str, table: Table, name: str) -> Choice:
    """What `name` picks: an entry of the table, or by dotted path (`my_package.my_module.MyWorld`) a class elsewhere.

    Raises BadInput with the nearest name.
    """
    if name in table:
        built = load(table[name])
        (schema,) = _annotations(built)
        return Choice(schema, built)
    if "." in name:
        return _import_choice(key, name)
    hint = nearest(name, table, otherwise="")
    raise BadInput(key=f"{key}.name", found=name, expected=f"one of {', '.join(table)}, or module.Class{hint}")


def construct(key: str, table: Table, config: Any) -> Any:
    """Build what `config.name` picks. Raises BadInput with the nearest name."""
    return choose(key, table, config.name).build(config)


def load(path: str) -> Any:
    """The object at a dotted path: `load("math.sqrt")`."""
    module, _, attribute = path.rpartition(".")
    return getattr(importlib.import_module(MOVED.get(module, module)), attribute)


@cache
def _annotations(built: Any) -> list[Any]:
    return [parameter.annotation for parameter in inspect.signature(built, eval_str=True).parameters.values()]


search_paths: dict[str, None] = {}  # folders of recipes, in the order in which they were read


def add_search_paths(recipe: Path) -> None:
    """A user's class may lie next to the recipe that names it, or in the package that the recipe lies in."""
    folder = recipe.resolve().parent
    while (folder / "__init__.py").is_file():  # `maze.world.MazeWorld`, named in maze/maze.yaml
        folder = folder.parent
    search_paths[str(folder)] = None


def extend_path() -> list[str]:
    """Have imports look, behind ours, where a user's modules may lie: the folders that it returns."""
    places = _search_folders()
    sys.path.extend(folder for folder in places if folder not in sys.path)
    return places


def custom_folders() -> list[str]:
    """Where classes that are not ours were looked for: other processes have to look there too."""
    return [folder for folder in _search_folders() if folder in sys.path]


def _search_folders() -> list[str]:
    """Folders of recipes, and the working one, which may have been removed while the run continues."""
    with contextlib.suppress(FileNotFoundError):
        return list(dict.fromkeys((*search_paths, os.getcwd())))
    return list(search_paths)


def load_custom(
    key: str, path: str, read: Callable[[Any], Any] = lambda built: built, *, kind: str = "module.Class"
) -> Any:
    """What `read` says of the user's own object at a dotted path, looked for next to the recipe too.

    key: names the path in the configuration. kind: how such a path looks. Raises BadInput for whatever the import or
    `read` raises.
    """
    places = extend_path()
    try:
        return read(load(path))
    except Exception as error:  # fault boundary: a module of the user's own may raise anything
        reason = f"{type(error).__name__}: {error}"
        expected = f"{kind}, importable from {' or '.join(places)}"
        first = path.partition(".")[0]
        if first in (*OURS, "tests"):  # `envs.maze.Maze`, in a user's folder
            expected = f"{first} to be the package of rlsys: give a folder of your own another name"
        raise BadInput(reason, key=key, found=path, expected=expected) from error


def _import_choice(key: str, name: str) -> Choice:
    built, schemas = load_custom(f"{key}.name", name, lambda built: (built, _annotations(built)))
    if len(schemas) != 1 or not is_dataclass(schemas[0]) or "name" not in {field.name for field in fields(schemas[0])}:
        expected = "a class that takes one argument, annotated with a config dataclass that has a field `name`"
        raise BadInput(key=f"{key}.name", found=name, expected=expected)
    return Choice(schemas[0], built)  # type: ignore[arg-type]
