"""How an instance is put to the model: in PlanBench's form with the rules, or in a few words."""

from __future__ import annotations

from envs.problems.blocks.execute import Fact, Kind
from envs.problems.blocks.read import Problem
from envs.problems.blocks.words import PLAN, PLAN_END, STATEMENT, VERIFICATION, plan_words, statement

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
    """`red on blue`, `red on table`, `holding red`, `red clear`, `hand empty`."""
    if fact.kind is Kind.ON:
        return f"{fact.block} on {fact.under}"
    if fact.kind is Kind.TABLE:
        return f"{fact.block} on table"
    if fact.kind is Kind.HOLDING:
        return f"holding {fact.block}"
    return f"{fact.block} clear" if fact.kind is Kind.CLEAR else "hand empty"
