"""Blocksworld tasks: of files, here or on the hub, or made up; and what somebody answers to one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from envs.problems.blocks.execute import Plan
from envs.problems.blocks.generate import Instance, flawed, shortest_plan
from envs.problems.blocks.read import INVALID, VALID, Problem, read_task, stored_plan
from envs.problems.blocks.words import PLAN_END, facts_words, plan_words, state_facts, verdict_words
from envs.tasks.files import read_records
from rlsys.errors import BadInput
from rlsys.seeds import derive
from rlsys.types import Task

DOMAINS = ("blocksworld", "blocksworld_3")  # of PlanBench; other ones rename the actions, or are another world


def read_tasks(source: str, *, split: str | None = None) -> list[Task]:
    """The Blocksworld tasks of a source; PlanBench records of other domains are left out.

    Raises BadInput: `plans.jsonl line 7: "goal": 'the red block flies' is no fact, ...`.
    """
    found = [
        read_task(record.fields, record.where, record.task_id)
        for record in read_records(source, split=split)
        if record.fields.get("domain", DOMAINS[0]) in DOMAINS
    ]
    if not found:
        raise BadInput(f"{source}: no record with a domain among {', '.join(DOMAINS)}")
    return found


def made_up(instances: list[Instance], seed: int, *, verify_share: float) -> Iterator[Task]:
    """What is drawn for a task depends on its instance alone: the same tasks whatever their number."""
    for instance in instances:
        rng = random.Random(derive("blocksworld task", seed, instance.question))
        verify = rng.random() < verify_share
        words = {
            "initial": facts_words(state_facts(instance.initial, instance.blocks)),
            "goal": facts_words(instance.goal),
        }
        if verify:
            words["plan"] = plan_words(_to_verify(instance, rng))
        name = f"blocks-{derive(instance.question):08x}-{'verify' if verify else 'plan'}"
        yield read_task(words, name, name)


def plan_of(task: Task, asked: Problem, rng: random.Random, *, mistaken: bool) -> str:
    """The stored plan or a shortest one. Raises BadInput for a task that is too large, or that no plan solves."""
    plan = stored_plan(task.record, f"task {task.task_id}") or shortest_plan(asked.state, asked.goal)
    if not plan:
        raise BadInput(f"task {task.task_id}: {'the goal holds already' if plan == () else 'no plan reaches the goal'}")
    plan = flawed(Instance(initial=asked.state, goal=asked.goal), plan, rng) if mistaken else plan
    return f"{plan_words(plan)}\n{PLAN_END}"


def verdict_on(asked: Problem, *, mistaken: bool, reason: bool) -> str:
    valid = asked.valid != mistaken
    if mistaken or not reason:  # a wrong verdict has no reason to give
        return f"The above plan is {VALID if valid else INVALID}."
    return verdict_words(asked.state, asked.goal, asked.plan or ())


def _to_verify(instance: Instance, rng: random.Random) -> Plan:
    plan = shortest_plan(instance.initial, instance.goal)
    assert plan  # every arrangement can be reached, and the goal does not hold at the start
    return plan if rng.random() < 0.5 else flawed(instance, plan, rng)
