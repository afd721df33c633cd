"""Blocksworld tasks: of records or made up, how one is put to the model, and what is answered.

Two forms: {"initial", "goal"} in PlanBench's words, with "plan" where a plan is to be verified; and PlanBench's own
{"query", "ground_truth_plan"} of task 1 (plan) and task 3 (verify), where the last [STATEMENT] of the query counts.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from envs.papers.graph_rl.blocks.execute import Fact, Kind, Plan, State, blocks_of, contradiction, solves
from envs.papers.graph_rl.blocks.generate import Instance, make_flawed, shortest_plan
from envs.papers.graph_rl.blocks.words import (
    NO_ACTION,
    PLAN,
    PLAN_END,
    STATEMENT,
    VERIFICATION,
    fact_words,
    facts_words,
    plan_words,
    read_facts,
    read_pddl_plan,
    read_plan,
    sort_facts,
    statement,
    verdict_words,
)
from envs.tasks.files import read_records, text_field
from envs.tasks.prompts import Prompt
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed
from rlsys.types import Task

VALID, INVALID = "valid", "invalid"
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
printed = cache(Prompt)
NO_TASK = Task(task_id="", question="")
DOMAINS = ("blocksworld", "blocksworld_3")  # of PlanBench; other ones rename the actions, or are another world


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What a record asks. With a plan, be it of no step, it asks for a verdict on it, without one for a plan."""

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


def problem_of(task: Task) -> Problem:
    """What the task's record asks. Raises BadInput naming the task."""
    where = f"task {task.task_id}"
    return _make_problem(**_question_parts(task.record, where), where=where)


def read_task(fields: Mapping[str, Any], where: str, task_id: str) -> Task:
    """A task of either form, worded by its facts, so that one instance is one question however it was written.

    The record then always has "initial" and "goal", and where a verdict is asked for "plan" and its "plan_length" in
    actions. The executor says which verdict is right, whatever the file says. Raises BadInput naming `where`.
    """
    words = _question_parts(fields, where)
    problem = _make_problem(**words, where=where)
    question = statement(sort_facts(problem.state, sorted(blocks_of(problem.initial))), sorted(problem.goal))
    if problem.plan is None:
        return Task(task_id=task_id, question=question, record={**fields, **words})
    record, verdict = {**fields, **words, "plan_length": len(problem.plan)}, VALID if problem.valid else INVALID
    return Task(task_id=task_id, question=question, answers=(verdict,), record=record)


def stored_plan(record: Mapping[str, Any], where: str) -> Plan | None:
    """PlanBench's own plan for a task-1 record; None where a record has none."""
    stored = record.get("ground_truth_plan")
    return read_pddl_plan(stored, where) if isinstance(stored, str) and stored.strip().startswith("(") else None


def _question_parts(record: Mapping[str, Any], where: str) -> dict[str, str]:
    """The words of "initial", "goal" and, where a verdict is asked for, "plan"."""
    fields = _from_query(text_field(record, "query", where), where) if "query" in record else record
    words = {key: text_field(fields, key, where) for key in ("initial", "goal")}
    if fields.get("plan") is not None:  # to do nothing is a plan too
        words["plan"] = text_field(fields, "plan", where, blank=True)
    return words


def _from_query(query: str, where: str) -> dict[str, str]:
    """The last statement of a query: a line of conditions, a line with the goal, and (task 3) a plan."""
    _, mark, last = query.rpartition(STATEMENT)
    head, plan_mark, rest = last.partition(PLAN)
    lines = [line for line in head.splitlines() if line.strip()]
    if not mark or not plan_mark or len(lines) < 2:
        raise BadInput(f"does not end in {STATEMENT}, conditions, a goal and {PLAN}", where=where, key='"query"')
    plan = {"plan": rest.partition(PLAN_END)[0]} if VERIFICATION in rest else {}
    return {"initial": lines[0], "goal": lines[1], **plan}


@lru_cache(maxsize=256)  # a group asks for its task's problem once per sibling
def _make_problem(*, initial: str, goal: str, plan: str | None = None, where: str) -> Problem:
    start, goal_facts = read_facts(initial, f'{where}: "initial"'), read_facts(goal, f'{where}: "goal"')
    if not start or not goal_facts:
        raise BadInput("says nothing", where=where, key=f'''"{("goal" if start else "initial")}"''')
    wrong = contradiction(frozenset(start))
    if wrong:
        raise BadInput(f"cannot be: {', '.join(fact_words(fact) for fact in wrong[:3])}", where=where, key='"initial"')
    if plan is None:
        return Problem(initial=start, goal=goal_facts)
    written = read_plan(plan)
    if written.problem not in (None, NO_ACTION):
        raise BadInput(f'"plan": {written.problem}', where=where, expected="one action per line")
    return Problem(initial=start, goal=goal_facts, plan=written.actions)


def read_tasks(source: str, **how: Any) -> list[Task]:
    """The Blocksworld tasks of a source; PlanBench records of other domains are left out.

    how: as of `read_records`. Raises BadInput: `plans.jsonl line 7: "goal": 'the red block flies' is no fact, ...`.
    """
    tasks = [
        read_task(record.fields, record.where, record.task_id)
        for record in read_records(source, **how)
        if record.fields.get("domain", DOMAINS[0]) in DOMAINS
    ]
    if not tasks:
        raise BadInput(f"no record with a domain among {', '.join(DOMAINS)}", where=source)
    return tasks


def generate_tasks(instances: list[Instance], seed: int, *, verify_share: float) -> Iterator[Task]:
    """What is drawn for a task depends on its instance alone: the same tasks whatever their number."""
    for instance in instances:
        rng = random.Random(derive_seed("blocksworld task", seed, instance.question))
        verify = rng.random() < verify_share
        initial = facts_words(sort_facts(instance.initial, instance.blocks))
        words = {"initial": initial, "goal": facts_words(instance.goal)}
        if verify:
            words["plan"] = plan_words(_draw_plan_to_verify(instance, rng))
        name = f"blocks-{derive_seed(instance.question):08x}-{'verify' if verify else 'plan'}"
        yield read_task(words, name, name)


def rules_of(query: str | None) -> str:
    return query.partition(STATEMENT)[0].rstrip() if query else RULES


def planbench_prompt(problem: Problem, query: str | None) -> str:
    """Zero-shot, as Graph-RL asks it (appendix D). A PlanBench query keeps its own wording of the rules."""
    ask = ASK_PLAN if problem.plan is None else ASK_VERDICT
    lines = [
        rules_of(query),
        "",
        ask,
        "",
        STATEMENT,
        statement(problem.initial, problem.goal),
        "",
        "My plan is as follows:",
        "",
    ]
    return "\n".join(lines + _plan_lines(problem))


def graph_rl_prompt(problem: Problem, query: str | None) -> str:
    """As Graph-RL prints it (table 4); the rules, which it leaves out, are those of the query."""
    slots = {"rules": rules_of(query), "stated": statement(problem.initial, problem.goal)}
    if problem.plan is None:
        return printed("graph_rl/blocks_plan").fill(NO_TASK, **slots)
    return printed("graph_rl/blocks_verify").fill(NO_TASK, **slots, judged_plan=plan_words(problem.plan))


def short_prompt(problem: Problem, query: str | None) -> str:
    """What stands on what; everything else follows from it."""
    start = [_short_fact(fact) for fact in problem.initial if fact.kind not in (Kind.CLEAR, Kind.HAND_EMPTY)]
    lines = [", ".join(start), "goal: " + ", ".join(_short_fact(fact) for fact in problem.goal)]
    return "\n".join(lines + _plan_lines(problem))


def _plan_lines(problem: Problem) -> list[str]:
    if problem.plan is None:
        return [PLAN]
    return [PLAN, plan_words(problem.plan), PLAN_END, VERIFICATION]


def _short_fact(fact: Fact) -> str:
    return _SHORT[fact.kind].format(fact.block, fact.under)


def demonstrated_plan(task: Task, problem: Problem, rng: random.Random, *, mistaken: bool) -> str:
    """The stored plan or a shortest one. Raises BadInput for a task that is too large, or that no plan solves."""
    plan = stored_plan(task.record, f"task {task.task_id}") or shortest_plan(problem.state, problem.goal)
    if not plan:
        raise BadInput(
            "the goal holds already" if plan == () else "no plan reaches the goal", where=f"task {task.task_id}"
        )
    plan = make_flawed(Instance(initial=problem.state, goal=problem.goal), plan, rng) if mistaken else plan
    return f"{plan_words(plan)}\n{PLAN_END}"


def verdict_on(problem: Problem, *, mistaken: bool, reason: bool) -> str:
    valid = problem.valid != mistaken
    if mistaken or not reason:  # a wrong verdict has no reason to give
        return f"The above plan is {VALID if valid else INVALID}."
    return verdict_words(problem.state, problem.goal, problem.plan or ())


def _draw_plan_to_verify(instance: Instance, rng: random.Random) -> Plan:
    plan = shortest_plan(instance.initial, instance.goal)
    assert plan  # every arrangement can be reached, and the goal does not hold at the start
    return plan if rng.random() < 0.5 else make_flawed(instance, plan, rng)
