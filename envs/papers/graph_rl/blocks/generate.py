"""Blocksworld instances of a few blocks, the shortest plans for them, and plans with a mistake."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

from envs.papers.graph_rl.blocks.execute import (
    HAND_EMPTY,
    Action,
    Fact,
    Kind,
    Plan,
    State,
    Verb,
    apply,
    blocks_of,
    solves,
    unmet_facts,
)
from envs.papers.graph_rl.blocks.words import sort_facts, statement
from envs.tasks.splits import is_held_out
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed

COLOURS = ("red", "blue", "orange", "yellow", "white", "green", "black", "purple")
MAX_IN_VAIN = 5000  # draws that find nothing new, before the instances count as used up
MAX_SEARCHED = 6  # blocks: 7057 states; a seventh would make it 65,000


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """Where the blocks stand, and where they should."""

    initial: State
    goal: tuple[Fact, ...]  # what must hold at the end, in the order it is said

    @property
    def blocks(self) -> tuple[str, ...]:
        """In the order of COLOURS: an instance is worded in one way only, so that no rewording crosses the split."""
        return tuple(colour for colour in COLOURS if colour in blocks_of(self.initial))

    @property
    def question(self) -> str:
        return statement(sort_facts(self.initial, self.blocks), self.goal)


def generate(count: int, seed: int, *, min_blocks: int, max_blocks: int, held_out: bool) -> list[Instance]:
    """`count` different instances of one side of the split, the same for the same arguments.

    A larger count extends a smaller one. Raises BadInput when there are not that many.
    """
    rng = random.Random(derive_seed("blocksworld", seed, min_blocks, max_blocks, held_out))
    instances: dict[Instance, None] = {}
    in_vain = 0  # draws since the last new one
    while len(instances) < count:
        instance = draw(rng, rng.randint(min_blocks, max_blocks))
        in_vain += 1
        if instance not in instances and is_held_out(instance.question) == held_out:
            instances[instance] = None
            in_vain = 0
        if in_vain > MAX_IN_VAIN:
            raise BadInput(
                f"{count} generated Blocksworld instances of {min_blocks} to {max_blocks} blocks asked for: "
                f"there are about {len(instances)} different ones on that side of the split"
            )
    return list(instances)


def draw(rng: random.Random, num_blocks: int) -> Instance:
    """An instance whose goal does not hold at the start. The goal says what stands on what, as PlanBench's do."""
    colours = set(rng.sample(COLOURS, num_blocks))
    blocks = [colour for colour in COLOURS if colour in colours]
    initial = arrange(blocks, rng)
    while True:
        goal = [fact for fact in sort_facts(arrange(blocks, rng), blocks) if fact.kind is Kind.ON]
        if unmet_facts(initial, goal):
            return Instance(initial=initial, goal=tuple(goal))


def arrange(blocks: Sequence[str], rng: random.Random) -> State:
    """Towers: in random order, every block is put on the table or on a tower that stands already."""
    order = list(blocks)
    rng.shuffle(order)
    towers: list[list[str]] = []
    for block in order:
        place = rng.randrange(len(towers) + 1)
        if place == len(towers):
            towers.append([])
        towers[place].append(block)
    facts = {HAND_EMPTY}
    for tower in towers:
        facts |= {Fact(Kind.TABLE, tower[0]), Fact(Kind.CLEAR, tower[-1])}
        facts |= {Fact(Kind.ON, upper, lower) for lower, upper in pairwise(tower)}
    return frozenset(facts)


def shortest_plan(initial: State, goal: Sequence[Fact]) -> Plan | None:
    """A plan with the fewest steps, always the same one; None where there is none. A* search.

    Raises BadInput past MAX_SEARCHED blocks, where the states become too many.
    """
    count = len(blocks_of(initial))
    if count > MAX_SEARCHED:
        raise BadInput(f"{count} blocks: the shortest plan is searched for at most {MAX_SEARCHED}")
    plans: dict[State, Plan] = {initial: ()}  # the shortest so far
    frontier = [(_min_steps_left(initial, goal), 0, initial)]
    entered = 0  # decides between equal estimates, so that states are never compared
    while frontier:
        _, _, state = heappop(frontier)
        if not unmet_facts(state, goal):
            return plans[state]
        for action in possible_actions(state):
            after, plan = apply(state, action), (*plans[state], action)
            if after not in plans or len(plan) < len(plans[after]):
                plans[after] = plan
                entered -= 1  # the newest first: a plan that is nearly done is finished before others are tried
                heappush(frontier, (len(plan) + _min_steps_left(after, goal), entered, after))
    return None


def _min_steps_left(state: State, goal: Sequence[Fact]) -> int:
    """Steps that are surely missing: every block that must come to stand on another is taken up and stacked."""
    missing = sum(fact.kind is Kind.ON for fact in goal if fact not in state)
    return max(0, 2 * missing - (HAND_EMPTY not in state))


def possible_actions(state: State) -> Iterator[Action]:
    """Every action that can be done now, in a fixed order."""
    clear = sorted(fact.block for fact in state if fact.kind is Kind.CLEAR)
    for fact in sorted(state):
        if fact.kind is Kind.HOLDING:
            yield Action(Verb.PUT_DOWN, fact.block)
            yield from (Action(Verb.STACK, fact.block, under) for under in clear)
        elif HAND_EMPTY in state and fact.block in clear:
            if fact.kind is Kind.TABLE:
                yield Action(Verb.PICK_UP, fact.block)
            elif fact.kind is Kind.ON:
                yield Action(Verb.UNSTACK, fact.block, fact.under)


def make_flawed(instance: Instance, plan: Plan, rng: random.Random) -> Plan:
    """The plan with one mistake, so that a step cannot be done or the goal is missed.

    Of the kinds that this plan allows, one is drawn: stopping early, leaving a step out, doing a step twice, doing two
    steps in the wrong order, or taking another block.
    """
    every, start, goal = _mistakes(plan, instance.blocks), instance.initial, instance.goal
    mistakes = [(kind, changed) for kind, changed in every if not solves(start, goal, changed)]
    drawn_kind = rng.choice(sorted({kind for kind, _ in mistakes}))
    return rng.choice([changed for kind, changed in mistakes if kind == drawn_kind])


def _mistakes(plan: Plan, blocks: Sequence[str]) -> Iterator[tuple[str, Plan]]:
    for at, action in enumerate(plan):
        yield "twice", (*plan[: at + 1], *plan[at:])
        if at > 0:
            yield "early", plan[:at]
            yield "order", (*plan[: at - 1], action, plan[at - 1], *plan[at + 1 :])
        if len(plan) > 1:
            yield "left out", (*plan[:at], *plan[at + 1 :])
        for block in blocks:
            if block not in (action.block, action.under):
                yield "block", (*plan[:at], action._replace(block=block), *plan[at + 1 :])
                if action.under:
                    yield "block", (*plan[:at], action._replace(under=block), *plan[at + 1 :])
