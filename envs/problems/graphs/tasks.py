"""Graph problems as tasks."""

from __future__ import annotations

import hashlib

from envs.problems.graphs.encodings import Encoding, wording
from envs.problems.graphs.oracle import truth
from envs.problems.graphs.problem import Problem, from_record, to_record
from rlsys.types import Task


def to_task(problem: Problem, encoding: Encoding, task_id: str | None = None) -> Task:
    """Its question is the wording without an instruction, its answer the oracle's."""
    question = wording(problem, encoding)
    digest = hashlib.blake2b(question.encode(), digest_size=6).hexdigest()
    return Task(
        task_id=task_id or f"graph-{digest}",
        question=question,
        answers=(truth(problem),),
        record=to_record(problem) | {"encoding": encoding},
    )


def of_task(task: Task) -> Problem:
    return from_record(task.record, f"task {task.task_id}")
