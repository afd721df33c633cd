"""What the rows of a file become: the first of them as the policy sees them, their answers, and what is not used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from actors.renderer import ChatRenderer
from envs.base import World
from envs.tasks.files import Located, read_records
from envs.tasks.formats import FORMATS, recognise
from launch.checks import hub
from launch.checks.chat_template import read_template
from launch.config.compose import last_recipe
from launch.tools.score.play import open_world, show, tell
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import BadInput
from rlsys.rollout import template_args_of, tool_offer_of
from rlsys.types import Task
from rlsys.untrusted import visible

BASE = "quickstart"  # a recipe that any environment can take the place in
OF_MESSAGES = {"prompt", "messages"}  # fields of rows that env.name=prompts plays
READ = {"question", "answer", "answers"}  # what a reader makes of fields


def recipe_for(source: str, overrides: Sequence[str]) -> RecipeConfig:
    """The recipe that `overrides` make of a file: `questions`, or `prompts` where its first row has messages. Raises
    BadInput."""
    from omegaconf import OmegaConf  # `rlsys data --help` goes without

    more = [f"env.data={json.dumps(source, ensure_ascii=False)}"]
    given = OmegaConf.to_container(OmegaConf.from_dotlist([text for text in overrides if text.startswith("env.")]))
    env = given.get("env") if isinstance(given, dict) else None
    env = env if isinstance(env, dict) else {}
    if "name" not in env:
        columns = env.get("columns")
        first = _first_of(source, env.get("data_split"), columns if isinstance(columns, dict) else {})
        asks = "question" in first.lower or not OF_MESSAGES & first.lower.keys()
        more.append(f"env.name={'questions' if asks else 'prompts'}")
    return last_recipe(BASE, [*more, *overrides])


def _first_of(source: str, split: str | None, columns: Mapping[str, str]) -> Located:
    return next(iter(read_records(source, split=split, columns=columns)))


async def look(recipe: RecipeConfig, source: str, rows: int, split: str) -> None:
    """Tell of the first rows of a split. Raises BadInput for a row that cannot be used, as a run would."""
    renderer = _renderer_of(recipe)
    async with open_world(recipe) as (world, _):
        tell(f"{visible(source)}: {count_tasks(world)}")
        columns: Mapping[str, str] = recipe.env.columns
        for line in describe_columns(_first_of(source, recipe.env.data_split, columns), columns):
            tell(line)
        tasks = world.tasks(split)[:rows]
        for number, task in enumerate(tasks, start=1):
            tell(f"\n{number} of {len(tasks)} in split {split}: {visible(task.task_id)}")
            await show_task(world, task, renderer)
    if renderer is None:
        tell("\nmodel.path=FOLDER shows them in that model's chat template, with their number of tokens")


def _renderer_of(recipe: RecipeConfig) -> ChatRenderer | None:
    """Of a model that is on this machine: nothing is downloaded for a look. Raises BadInput for one that is not."""
    path = recipe.model.path
    if path is None:
        return None
    folder = path if Path(path).is_dir() else hub.find_cached(path)
    if folder is None:
        raise BadInput(
            hub.explain_missing(path), key="model.path", found=path, expected="a folder, or a model in the cache"
        )
    return ChatRenderer(str(folder), template=read_template(recipe.model))


async def show_task(world: World, task: Task, renderer: ChatRenderer | None) -> None:
    env = await world.open_env(task)
    offer, messages = tool_offer_of(env), env.first_messages()
    if renderer is None:
        for schema in offer.schemas if offer is not None else ():
            show("tools", schema)
        for message in messages:
            show(message.role, message.content)
    else:
        own = renderer.under(template_args_of(env)).usable()
        ids = own.prompt_ids(messages, offer)
        show(f"{len(ids)} tokens", own.decode(ids))
    show("answers", " | ".join(task.answers) or "none: the reward reads the row's fields")


def count_tasks(world: World) -> str:
    train, held_out, every = (len(world.tasks(split)) for split in ("train", "held_out", "all"))
    twins = every - train - held_out
    left_out = f", {twins:,} left out of training: a held-out task is the same" if twins else ""
    return f"{every:,} tasks, {train:,} to train on, {held_out:,} held out{left_out}"


def describe_columns(record: Located, columns: Mapping[str, str]) -> Iterator[str]:
    """What became of each."""
    try:
        form = recognise(record)
    except BadInput:  # of an environment with a form of its own
        yield f"columns: {', '.join(sorted(map(visible, record.fields)))}, read by the environment"
        return
    name = next(name for name, known in FORMATS.items() if known is form)
    read = {*form.fields, *(READ & record.lower.keys())}
    used = (f"{key} (from {columns[key]})" if key in columns else key for key in record.lower if key in read)
    yield f"read, as {name}: {', '.join(map(visible, used))}"
    others = [key for key in record.fields if key.casefold() not in read]
    if others:
        slots = "a prompt of env.prompt shows those that it names, a reward of yours gets all"
        yield f"kept with the task: {', '.join(map(visible, others))} ({slots})"
