"""A system text for every environment: in what is played, in what is shown, and where a context begins anew."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from envs import WORLDS, new_world
from envs.framed import FramedEnv, prepend_system
from rlsys.choices import choose
from rlsys.types import Message, Step

TEXT = "Answer in JSON."
USER = Message(role="user", content="4 + 4?")


@pytest.mark.parametrize(
    "name", ["calculator", "search_qa", "questions", "graph", "blocksworld", "games", "python_math"]
)
def test_every_prompt_and_demonstration_begins_with_it(name: str) -> None:
    schema: Any = choose("env", WORLDS, name).schema
    few = {"train_tasks": 4, "held_out_tasks": 4}
    plain, world = new_world(schema(**few)), new_world(schema(**few, system=TEXT))
    for task in world.tasks("train")[:2]:
        first = world.env(task).first_messages()
        assert first == prepend_system(TEXT, plain.env(task).first_messages())
        messages, before = world.demonstration(task, 0).messages, plain.demonstration(task, 0).messages
        assert messages == prepend_system(TEXT, before) and messages[: len(first)] == first
    assert TEXT in "".join(world.texts(4)) and world.max_turns == plain.max_turns and world.tags == plain.tags


def test_it_stands_before_a_system_text_and_in_a_prompt_without_a_chat() -> None:
    own = Message(role="system", content="Use tools.")
    assert prepend_system(TEXT, (own, USER)) == (Message(role="system", content=f"{TEXT}\n\nUse tools."), USER)
    inline = Message(role="user", content="4 + 4 =", inline=True)
    assert prepend_system(TEXT, (inline,)) == (Message(role="user", content=f"{TEXT}\n4 + 4 =", inline=True),)


def test_a_context_that_begins_anew_has_it_too() -> None:
    class Asks:
        stop_strings: Sequence[str] = ("x",)

        async def step(self, text: str, *, turns_left: int) -> Step:
            return Step(reply=USER, reset_context=text == "again")

    env = FramedEnv(Asks(), TEXT)
    assert env.stop_strings == ("x",)
    assert asyncio.run(env.step("again", turns_left=1)).replies == prepend_system(TEXT, (USER,))
    assert asyncio.run(env.step("on", turns_left=1)).replies == (USER,)
