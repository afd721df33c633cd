"""The world of several environments: each task says whose it is, and is played as in a world of its own."""

import asyncio
from dataclasses import replace

from envs import make_world, new_world
from envs.mixture import MixtureConfig, MixtureWorld, config_of
from envs.worlds.calculator import CalculatorConfig
from envs.worlds.questions import QuestionsConfig
from rlsys.config.envs import env_in, env_of

SUMS = QuestionsConfig(train_tasks=5, held_out_tasks=2)
WORDS = CalculatorConfig(name="calculator", train_tasks=8, held_out_tasks=3, max_turns=7, last_chance=False)
CONFIG = MixtureConfig(parts={"sums": SUMS, "words": WORDS})


def world() -> MixtureWorld:
    mixture = make_world(CONFIG)
    assert isinstance(mixture, MixtureWorld)
    return mixture


def test_every_task_carries_the_name_of_its_environment() -> None:
    tasks = world().tasks("train")
    assert [env_of(task.task_id) for task in tasks[:10]] == ["sums", "words"] * 5
    for name, config in CONFIG.parts.items():
        own = make_world(config).tasks("train")
        assert [task.task_id for task in world().tasks_of(name, "train")] == [f"{name}/{task.task_id}" for task in own]
    assert len({task.task_id for task in tasks}) == len(tasks)
    assert {task.question for task in tasks}.isdisjoint(task.question for task in world().tasks("held_out"))
    assert (env_in(CONFIG.parts, "sums/a/b"), env_in((), "a/b")) == ("sums", "")


def test_it_shows_and_plays_what_each_world_alone_does() -> None:
    for name, config in CONFIG.parts.items():
        own = make_world(config)
        for mine, theirs in zip(world().tasks_of(name, "train"), own.tasks("train"), strict=True):
            assert world().env(mine).first_messages() == own.env(theirs).first_messages()
            assert asyncio.run(world().open_env(mine)).stop_strings == own.env(theirs).stop_strings
            assert world().level(mine) == own.level(theirs)
            assert world().demonstration(mine, 3).messages == own.demonstration(theirs, 3).messages
            assert world().demonstration(mine, 3).task == mine
            assert world().texts_of(mine) == own.texts_of(theirs)


def test_each_environment_has_its_own_system_text_and_template_arguments() -> None:
    options = dict(system="Be brief.", template_args={"enable_thinking": False})
    config = MixtureConfig(
        parts={name: replace(part, **options) if name == "sums" else part for name, part in CONFIG.parts.items()}
    )
    mixed = new_world(config)
    for task in mixed.tasks("train")[:4]:
        of_sums = env_of(task.task_id) == "sums"
        assert config_of(config, task).template_args == (options["template_args"] if of_sums else {})
        for first in (mixed.env(task).first_messages()[0], mixed.demonstration(task, 0).messages[0]):
            assert (first.content == "Be brief.") == of_sums


def test_it_has_the_tags_texts_and_turns_of_all() -> None:
    parts = [make_world(config) for config in CONFIG.parts.values()]
    assert world().max_turns == CONFIG.max_turns == 7
    assert set(world().tags) == {tag for part in parts for tag in part.tags}
    texts = list(world().texts(6))
    assert texts == [text for pair in zip(*(list(part.texts(3)) for part in parts), strict=True) for text in pair]


def test_it_closes_the_worlds_that_it_made() -> None:
    asyncio.run(new_world(CONFIG).close())
