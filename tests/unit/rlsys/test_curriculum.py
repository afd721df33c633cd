"""Every task comes once per epoch, in an order that only the seed decides."""

import pytest

from rlsys.curriculum import Curriculum
from rlsys.errors import BadInput
from rlsys.types import Task

TASKS = [Task(task_id=str(index), question="?") for index in range(10)]


def draw(count: int, seed: int = 0) -> list[tuple[int, str]]:
    curriculum = Curriculum(TASKS, seed=seed)
    return [(epoch, task.task_id) for epoch, task in map(curriculum.draw, range(count))]


def test_each_epoch_is_a_permutation_and_epochs_differ() -> None:
    drawn = draw(20)
    assert sorted(drawn[:10]) == [(0, str(index)) for index in range(10)]
    assert sorted(drawn[10:]) == [(1, str(index)) for index in range(10)]
    assert [task for _, task in drawn[:10]] != [task for _, task in drawn[10:]]


def test_the_order_is_a_function_of_seed_and_sequence_alone() -> None:
    resumed = Curriculum(TASKS, seed=0)
    assert resumed.draw(13)[1].task_id == draw(14)[13][1]
    assert draw(10) == draw(10)
    assert draw(10) != draw(10, seed=1)


def test_no_tasks_is_bad_input() -> None:
    with pytest.raises(BadInput, match="no training tasks"):
        Curriculum([], seed=0)
