"""envs.papers.long_cot.world: a pair in a box ends an episode, demonstrations try, and only made-up tasks have one."""

import asyncio

import pytest

from envs.papers.long_cot.pairs import tries
from envs.papers.long_cot.world import PairsConfig, PairsWorld
from envs.rewards.answer import same_answer
from envs.text.words import last_boxed
from rlsys.types import EpisodeEnd, Task
from tests.refused import refused

SMALL = PairsConfig(train_tasks=300, held_out_tasks=30, instruction="")


def test_a_message_with_a_box_ends_the_episode() -> None:
    world = PairsWorld(SMALL)
    task = world.tasks("train")[0]
    for text, end in (
        ("56: 14+17=31 no\n\\boxed{14, 17}", EpisodeEnd.ANSWERED),
        ("56: 14+17=31 no", EpisodeEnd.MALFORMED),
    ):
        assert asyncio.run(world.env(task).step(text, turns_left=0)).end == end
    assert world.env(task).first_messages()[0].content == task.question
    asked = PairsWorld(PairsConfig(train_tasks=1, held_out_tasks=1)).env(task).first_messages()[0].content
    assert asked.startswith(f"{task.question}\n") and "\\boxed{}" in asked


@pytest.mark.parametrize(("give_up", "right"), [(0.0, 1.0), (1.0, 1 / 21)])
def test_demonstrations_are_right_as_often_as_they_try(give_up: float, right: float) -> None:
    config = PairsConfig(train_tasks=300, held_out_tasks=30, instruction="", demo_error_rate=give_up)
    world, hits, repeated, count = PairsWorld(config), 0, 0, 0
    for seed, task in enumerate(world.tasks("train")):
        *_, message = world.demonstration(task, seed).messages
        hits += same_answer(last_boxed(message.content) or "", task.answers)
        written = [line.pair for line in tries(message.content)]
        repeated, count = repeated + len(written) - len(set(written)), count + len(written) - 1
        assert all(line.is_true for line in tries(message.content))
    assert hits / len(world.tasks("train")) == pytest.approx(right, abs=0.04)
    assert count == 0 or repeated / count == pytest.approx(config.demo_repeat_rate, abs=0.02)


def test_a_task_of_a_file_is_played_and_not_demonstrated() -> None:
    task = Task(task_id="mine:1", question="Which two of 1 2 4 add up to 5?", answers=("1, 4",), record={"a": 1})
    world = PairsWorld(SMALL)
    assert world.env(task).first_messages()[0].content == task.question
    with refused(where="task mine:1"):
        world.demonstration(task, 0)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"numbers": 2}, "env.numbers"),
        ({"smallest": 0}, "env.smallest"),
        ({"largest": 15}, "env.largest"),
        ({"demo_repeat_rate": 1.0}, "env.demo_repeat_rate"),
    ],
)
def test_a_bad_setting_is_refused(changes: dict[str, float], key: str) -> None:
    with refused(key):
        PairsConfig(**changes)  # type: ignore[arg-type]
