"""The rules of Blocksworld: what an action needs and what it changes.

A state is the set of facts that hold; whatever is not in it is false. The four actions and their preconditions are
those of PlanBench's domain, in its order, because that is the order in which unmet ones are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias


class Kind(StrEnum):
    """In the order in which PlanBench tells a state."""

    CLEAR = "clear"
    HAND_EMPTY = "hand-empty"
    HOLDING = "holding"
    ON = "on"
    TABLE = "table"


class Fact(NamedTuple):
    """Fact(Kind.ON, "red", "blue"): the red block stands on the blue one."""

    kind: Kind
    block: str = ""  # none for HAND_EMPTY
    under: str = ""  # for ON only


class Verb(StrEnum):
    PICK_UP = "pick-up"
    PUT_DOWN = "put-down"
    STACK = "stack"
    UNSTACK = "unstack"


class Action(NamedTuple):
    """Action(Verb.STACK, "red", "blue"): put the red block, which is in the hand, on the blue one."""

    verb: Verb
    block: str
    under: str = ""  # for STACK and UNSTACK


State: TypeAlias = frozenset[Fact]
Plan: TypeAlias = tuple[Action, ...]
HAND_EMPTY = Fact(Kind.HAND_EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of a plan. A step that cannot be done ends it, and nothing of that step is done."""

    final: State
    failed: int | None = None  # index of the step that could not be done
    unmet: tuple[Fact, ...] = ()  # the preconditions that it lacked


class Rule(NamedTuple):
    """What an action needs, all of which ends, and what begins."""

    needs: tuple[Fact, ...]
    begins: frozenset[Fact]


@lru_cache(maxsize=8192)  # a search applies few actions very often
def rule(action: Action) -> Rule:
    verb, block, under = action
    holding, clear = Fact(Kind.HOLDING, block), Fact(Kind.CLEAR, block)
    if verb is Verb.PICK_UP:
        return Rule((clear, Fact(Kind.TABLE, block), HAND_EMPTY), frozenset({holding}))
    if verb is Verb.PUT_DOWN:
        return Rule((holding,), frozenset({clear, Fact(Kind.TABLE, block), HAND_EMPTY}))
    on, clear_under = Fact(Kind.ON, block, under), Fact(Kind.CLEAR, under)
    if verb is Verb.STACK:
        return Rule((clear_under, holding), frozenset({on, clear, HAND_EMPTY}))
    return Rule((on, clear, HAND_EMPTY), frozenset({holding, clear_under}))


def apply(state: State, action: Action) -> State:
    """The state after an action whose needs are met."""
    needs, begins = rule(action)
    return state.difference(needs) | begins


def execute(state: State, plan: Sequence[Action]) -> Execution:
    """Do one step after the other, up to the end or to the first that cannot be done."""
    for index, action in enumerate(plan):
        unmet = unmet_facts(state, rule(action).needs)
        if unmet:
            return Execution(final=state, failed=index, unmet=unmet)
        state = apply(state, action)
    return Execution(final=state)


def unmet_facts(state: State, facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """Those of `facts` that do not hold, in their order."""
    return tuple(fact for fact in facts if fact not in state)


def solves(state: State, goal: Sequence[Fact], plan: Sequence[Action]) -> bool:
    """Whether the plan can be carried out and meets the goal."""
    execution = execute(state, plan)
    return execution.failed is None and not unmet_facts(execution.final, goal)


def contradiction(state: State) -> tuple[Fact, ...]:
    """Facts of a state that cannot all hold, or that lack another one; () for a state of the world.

    Every block is in one place: on the table, on one block, or in the hand. It is clear if and only if it is not held
    and nothing stands on it. The hand is empty or holds one block. Nothing stands on itself, however indirectly.
    """
    holding = sorted(fact for fact in state if fact.kind is Kind.HOLDING)
    if len(holding) > 1 or bool(holding) == (HAND_EMPTY in state):
        return (*holding, HAND_EMPTY)
    places: dict[str, Fact] = {}
    carried: dict[str, Fact] = {}  # what stands on a block
    for fact in sorted(state):
        if fact.kind in (Kind.CLEAR, Kind.HAND_EMPTY):
            continue
        if fact.block in places:
            return (places[fact.block], fact)
        places[fact.block] = fact
        if fact.kind is Kind.ON:
            if fact.under in carried:
                return (carried[fact.under], fact)
            carried[fact.under] = fact
    for block in sorted(blocks_of(state)):
        if block not in places:
            return tuple(sorted(fact for fact in state if block in fact[1:]))
        covered = block in carried or places[block].kind is Kind.HOLDING
        if covered == (Fact(Kind.CLEAR, block) in state):
            return (carried.get(block, places[block]), Fact(Kind.CLEAR, block))
    return _floating(places)


def blocks_of(facts: State | Sequence[Fact]) -> set[str]:
    return {name for fact in facts for name in fact[1:] if name}


def _floating(places: dict[str, Fact]) -> tuple[Fact, ...]:
    """Blocks that do not stand on the table through others: a ring, or a tower on the block in the hand."""
    standing = {block for block, place in places.items() if place.kind is not Kind.ON}
    above: dict[str, str] = {place.under: block for block, place in places.items() if place.kind is Kind.ON}
    for block in list(standing):
        if places[block].kind is Kind.HOLDING:
            continue  # a block in the hand carries nothing
        while block in above:
            block = above[block]
            standing.add(block)
    return tuple(place for block, place in sorted(places.items()) if block not in standing)
