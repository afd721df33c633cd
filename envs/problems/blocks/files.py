"""Blocksworld task files, here or on the hub."""

from __future__ import annotations

from envs.problems.blocks.read import read_task
from envs.tasks.files import read_records
from rlsys.errors import BadInput
from rlsys.types import Task

DOMAINS = ("blocksworld", "blocksworld_3")  # of PlanBench; other ones rename the actions, or are another world


def tasks(source: str) -> list[Task]:
    """The Blocksworld tasks of a file or of the hub; PlanBench records of other domains are left out.

    Raises BadInput: `plans.jsonl line 7: "goal": 'the red block flies' is no fact, ...`.
    """
    found = [
        read_task(record.fields, record.where, record.task_id)
        for record in read_records(source)
        if record.fields.get("domain", DOMAINS[0]) in DOMAINS
    ]
    if not found:
        raise BadInput(f"{source}: no record with a domain among {', '.join(DOMAINS)}")
    return found
