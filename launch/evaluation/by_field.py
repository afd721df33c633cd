"""`eval.by`: an evaluation's number for each value of a field of its tasks, such as the length of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlsys.errors import BadInput, nearest
from rlsys.types import Task
from rlsys.visible import visible

if TYPE_CHECKING:
    from envs.base import World

LEVEL = "level"  # of a task without such a field: what its environment says of it
MOST = 40  # values; a number for each would say nothing
WITHOUT = "none"  # of a task that lacks the field


def values(tasks: Sequence[Task], field: str, world: World) -> dict[str, str]:
    """By task_id the value of `field`, in words. Of a list or an object it is how many it has.

    Raises BadInput for a field that no task has, and for one with more than `MOST` values.
    """
    found = {task.task_id: _value(task, field, world) for task in tasks}
    if tasks and all(value == WITHOUT for value in found.values()):
        known = [LEVEL, *tasks[0].record]
        raise BadInput(f"eval.by={field!r}: no task has this field{nearest(field, known)}")
    different = set(found.values())
    if len(different) > MOST:
        raise BadInput(f"eval.by={field!r}: {len(different)} values, expected a field with at most {MOST}")
    return found


def _value(task: Task, field: str, world: World) -> str:
    value = task.record.get(field)
    if value is None:
        return world.level(task) if field == LEVEL else WITHOUT
    many = isinstance(value, Sequence | Mapping) and not isinstance(value, str)
    return str(len(value)) if many else visible(str(value))
