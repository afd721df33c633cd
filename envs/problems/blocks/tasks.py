"""Blocksworld tasks: of files, here or on the hub, or made up; how one is put to the model, and what is answered."""

from __future__ import annotations

import random
from collections.abc import Iterator

from envs.problems.blocks.execute import Fact, Kind, Plan
from envs.problems.blocks.generate import Instance, flawed, shortest_plan
from envs.problems.blocks.read import INVALID, VALID, Problem, read_task, stored_plan
from envs.problems.blocks.words import (
    PLAN,
    PLAN_END,
    STATEMENT,
    VERIFICATION,
    facts_words,
    plan_words,
    state_facts,
    statement,
    verdict_words,
)
from envs.tasks.files import read_records
from rlsys.errors import BadInput
from rlsys.seeds import derive
from rlsys.types import Task

RULES = """\
Blocks stand on a table, alone or in towers, and a hand moves them one at a time. There are four actions:

pick up the X block
put down the X block
stack the X block on top of the Y block
unstack the X block from on top of the Y block

A block is clear when no block stands on it and the hand does not hold it.
To pick up a block, it must be clear and on the table, and the hand must be empty.
To unstack a block from on top of another, it must be clear and on that other block, and the hand must be empty.
To put down a block, the hand must hold it. It is then on the table, and the hand is empty.
To stack a block on top of another, the hand must hold it and the other block must be clear. The hand is then empty."""
ASK_PLAN = f"Write a plan that reaches the goal: one action per line, then {PLAN_END}."
ASK_VERDICT = (
    'Say whether the plan can be carried out and reaches the goal: "The above plan is valid." or '
    '"The above plan is invalid." with the reason.'
)
_SHORT = {
    Kind.ON: "{} on {}",
    Kind.TABLE: "{} on table",
    Kind.HOLDING: "holding {}",
    Kind.CLEAR: "{} clear",
    Kind.HAND_EMPTY: "hand empty",
}
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
        initial = facts_words(state_facts(instance.initial, instance.blocks))
        words = {"initial": initial, "goal": facts_words(instance.goal)}
        if verify:
            words["plan"] = plan_words(_to_verify(instance, rng))
        name = f"blocks-{derive(instance.question):08x}-{'verify' if verify else 'plan'}"
        yield read_task(words, name, name)


def planbench_prompt(asked: Problem, query: str | None) -> str:
    """Zero-shot, as Graph-RL asks it (appendix D). A PlanBench query keeps its own wording of the rules."""
    rules = query.partition(STATEMENT)[0].rstrip() if query else RULES
    ask = ASK_PLAN if asked.plan is None else ASK_VERDICT
    lines = [rules, "", ask, "", STATEMENT, statement(asked.initial, asked.goal), "", "My plan is as follows:", ""]
    return "\n".join(lines + _plan_lines(asked))


def short_prompt(asked: Problem, query: str | None) -> str:
    """What stands on what; everything else follows from it."""
    start = [_short(fact) for fact in asked.initial if fact.kind not in (Kind.CLEAR, Kind.HAND_EMPTY)]
    lines = [", ".join(start), "goal: " + ", ".join(_short(fact) for fact in asked.goal)]
    return "\n".join(lines + _plan_lines(asked))


def _plan_lines(asked: Problem) -> list[str]:
    if asked.plan is None:
        return [PLAN]
    return [PLAN, plan_words(asked.plan), PLAN_END, VERIFICATION]


def _short(fact: Fact) -> str:
    return _SHORT[fact.kind].format(fact.block, fact.under)


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
