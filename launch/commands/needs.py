"""What a recipe reads that is not there yet, with the commands that make it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from envs.tasks.config import TaskConfig
from envs.tools.search import SearchConfig, index_command
from launch.config.compose import compose
from launch.config.layers import CONFIGS
from launch.data.makers import ROOT, maker_of
from launch.driver.evaluation.sets import recipes_of
from rlsys.config.recipe import RunConfig, StageConfig


def list_commands(config: RunConfig) -> list[tuple[str, str]]:
    """(what is missing, the command that makes it), in the order in which they are to be run."""
    files: dict[str, list[str]] = {}
    for path in dict.fromkeys(_files(config.stages)):
        command = maker_of(path) if not os.path.exists(path) else None
        if command is not None:
            files.setdefault(command, []).append(path)
    rows = [(_shorten(paths), command) for command, paths in files.items()]
    rows.sort(key=lambda pair: not pair[1].startswith("rlsys data prepare"))
    indexes = (search for search in list_indexes(config) if not os.path.isdir(str(search.index)))
    return rows + [(str(search.index), command) for search in indexes if (command := index_command(search)) is not None]


def next_commands(name: str, output: Path) -> list[str]:
    """After `rlsys data prepare NAME` into `output`: of a recipe all that it lacks yet, then itself; of a corpus that
    recipes search, the indexes that they read."""
    folder, home = CONFIGS / name, f"{ROOT}/{name}/"
    if folder.is_dir():
        lacking = [command for path in _shipped(folder) for _, command in list_commands(compose(path, []))]
        last = [f"rlsys train {name} --dry-run"] * (output == Path(home))  # where the recipe looks
    else:
        searched = [path for path in _shipped(CONFIGS) if home in Path(path).read_text()]
        lacking = [command for path in searched for _, command in list_commands(compose(path, [])) if home in command]
        last = []
    prepared = f"rlsys data prepare {name}"
    commands = [command.replace(home, f"{output}/") for command in dict.fromkeys(lacking) if command != prepared]
    return commands + last


def _shipped(folder: Path) -> list[str]:
    """Those of papers, without their ablations and miniatures."""
    paths = (path for path in folder.rglob("*.yaml") if path.parent.name != "ablations" and path.stem != "tiny")
    return sorted(map(str, paths))


def list_indexes(config: RunConfig) -> list[SearchConfig]:
    """Of the retrievers that a run starts and that read an index, each once."""
    by_index = {search.index: search for search in _retrievers(config.stages) if index_command(search) is not None}
    return list(by_index.values())


def _files(stages: Sequence[StageConfig]) -> Iterator[str]:
    names = {stage.name for stage in stages}
    for stage in stages:
        data = stage.data if isinstance(stage.data, Mapping) else [stage.data]
        yield from (path for path in data if path is not None and path not in names)
    for env in _envs(stages):
        yield from (path for path in (env.data, env.eval_data) if path is not None)
    for search in _retrievers(stages):
        yield from [search.corpus] if search.corpus is not None and search.url is None else []


def _envs(stages: Iterable[StageConfig]) -> Iterator[TaskConfig]:
    for stage in stages:
        yield from (recipe.env for recipe in recipes_of(stage.config) if isinstance(recipe.env, TaskConfig))


def _retrievers(stages: Iterable[StageConfig]) -> Iterator[SearchConfig]:
    configs = (getattr(env, "retriever", None) for env in _envs(stages))
    return (search for search in configs if isinstance(search, SearchConfig))


def _shorten(paths: Sequence[str]) -> str:
    return paths[0] + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
