"""Blocksworld records of task files and of `rlsys score`: what is asked, and whether it can be asked.

Two forms: {"initial", "goal"} in PlanBench's words, with "plan" where a plan is to be verified; and PlanBench's own
{"query", "ground_truth_plan"} of task 1 (plan) and task 3 (verify), where the last [STATEMENT] of the query counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from envs.problems.blocks.execute import Fact, Plan, State, blocks_of, contradiction, solves
from envs.problems.blocks.words import (
    PLAN,
    PLAN_END,
    STATEMENT,
    VERIFICATION,
    fact_words,
    read_facts,
    read_pddl_plan,
    read_plan,
    state_facts,
    statement,
)
from envs.tasks.jsonl import text_field
from rlsys.errors import BadInput
from rlsys.types import Task

VALID, INVALID = "valid", "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a record asks. With a plan it asks for a verdict on it, without one for a plan."""

    initial: tuple[Fact, ...]  # in the order it is said
    goal: tuple[Fact, ...]
    plan: Plan | None = None

    @property
    def state(self) -> State:
        return frozenset(self.initial)

    @property
    def valid(self) -> bool:
        """Whether the plan of the record can be carried out and meets the goal."""
        return solves(self.state, self.goal, self.plan or ())


def problem(task: Task) -> Problem:
    """What the task's record asks. Raises BadInput naming the task."""
    where = f"task {task.task_id}"
    return _problem(**_asked(task.record, where), where=where)


def read_task(fields: Mapping[str, Any], where: str, task_id: str) -> Task:
    """A task of either form, worded by its facts, so that one instance is one question however it was written.

    The record then always has "initial" and "goal", and "plan" where a verdict is asked for. The executor says which
    verdict is right, whatever the file says. Raises BadInput naming `where`.
    """
    words = _asked(fields, where)
    asked = _problem(**words, where=where)
    question = statement(state_facts(asked.state, sorted(blocks_of(asked.initial))), sorted(asked.goal))
    answers = () if asked.plan is None else (VALID if asked.valid else INVALID,)
    return Task(task_id=task_id, question=question, answers=answers, record={**fields, **words})


def stored_plan(record: Mapping[str, Any], where: str) -> Plan | None:
    """PlanBench's own plan for a task-1 record; None where a record has none."""
    stored = record.get("ground_truth_plan")
    return read_pddl_plan(stored, where) if isinstance(stored, str) and stored.strip().startswith("(") else None


def _asked(record: Mapping[str, Any], where: str) -> dict[str, str]:
    """The words of "initial", "goal" and, where a verdict is asked for, "plan"."""
    fields = _from_query(text_field(record, "query", where), where) if "query" in record else record
    keys = ("initial", "goal") if fields.get("plan") is None else ("initial", "goal", "plan")
    return {key: text_field(fields, key, where) for key in keys}


def _from_query(query: str, where: str) -> dict[str, str]:
    """The last statement of a query: a line of conditions, a line with the goal, and (task 3) a plan."""
    _, mark, last = query.rpartition(STATEMENT)
    said, plan_mark, rest = last.partition(PLAN)
    lines = [line for line in said.splitlines() if line.strip()]
    if not mark or not plan_mark or len(lines) < 2:
        raise BadInput(f'{where}: "query" does not end in {STATEMENT}, conditions, a goal and {PLAN}')
    plan = {"plan": rest.partition(PLAN_END)[0]} if VERIFICATION in rest else {}
    return {"initial": lines[0], "goal": lines[1], **plan}


@lru_cache(maxsize=256)  # a group asks for its task's problem once per sibling
def _problem(*, initial: str, goal: str, plan: str | None = None, where: str) -> Problem:
    start, wanted = read_facts(initial, f'{where}: "initial"'), read_facts(goal, f'{where}: "goal"')
    if not start or not wanted:
        raise BadInput(f'{where}: "{"goal" if start else "initial"}" says nothing')
    wrong = contradiction(frozenset(start))
    if wrong:
        raise BadInput(f'{where}: "initial" cannot be: {", ".join(fact_words(fact) for fact in wrong[:3])}')
    if plan is None:
        return Problem(initial=start, goal=wanted)
    written = read_plan(plan)
    if written.problem is not None:
        raise BadInput(f'{where}: "plan": {written.problem}, expected one action per line')
    return Problem(initial=start, goal=wanted, plan=written.actions)
