"""envs.papers.graph_rl.blocks.generate: different instances, shortest plans, one mistake."""

import random
from collections import deque

from envs.papers.graph_rl.blocks.execute import HAND_EMPTY, Fact, Kind, State, apply, contradiction, solves, unmet_facts
from envs.papers.graph_rl.blocks.generate import (
    Instance,
    arrange,
    draw,
    generate,
    make_flawed,
    possible_actions,
    shortest_plan,
)
from envs.tasks.splits import is_held_out
from tests.refused import refused

LETTERS = ("red", "blue", "orange", "yellow")


def distance(start: State, goal: tuple[Fact, ...]) -> int:
    """By brute force, without an estimate."""
    queue, seen = deque([(start, 0)]), {start}
    while queue:
        state, steps = queue.popleft()
        if not unmet_facts(state, goal):
            return steps
        for action in possible_actions(state):
            if (after := apply(state, action)) not in seen:
                seen.add(after)
                queue.append((after, steps + 1))
    raise AssertionError("not reached")


def test_instances_are_different_and_the_same_every_time() -> None:
    instances = generate(200, 0, min_blocks=3, max_blocks=4, held_out=False)
    assert len({instance.question for instance in instances}) == 200
    assert instances == generate(300, 0, min_blocks=3, max_blocks=4, held_out=False)[:200]
    assert instances != generate(200, 1, min_blocks=3, max_blocks=4, held_out=False)
    assert {len(instance.blocks) for instance in instances} == {3, 4}


def test_the_split_is_by_the_instance() -> None:
    for held_out in (False, True):
        for instance in generate(40, 7, min_blocks=3, max_blocks=3, held_out=held_out):
            assert is_held_out(instance.question) == held_out


def test_an_instance_is_a_state_of_the_world_with_an_open_goal() -> None:
    rng = random.Random(0)
    for _ in range(100):
        instance = draw(rng, rng.randint(2, 6))
        assert contradiction(instance.initial) == ()
        assert instance.goal and unmet_facts(instance.initial, instance.goal)
        assert all(fact.kind is Kind.ON for fact in instance.goal)


def test_three_blocks_stand_in_all_thirteen_ways() -> None:
    rng = random.Random(0)
    assert len({arrange(LETTERS[:3], rng) for _ in range(500)}) == 13


def test_too_many_are_refused() -> None:
    with refused(says="2000 generated Blocksworld"):
        generate(2000, 0, min_blocks=2, max_blocks=2, held_out=False)


def test_plans_are_the_shortest() -> None:
    rng = random.Random(3)
    for number in range(60):
        instance = draw(rng, 3 + number % 2)
        plan = shortest_plan(instance.initial, instance.goal)
        assert plan is not None and solves(instance.initial, instance.goal, plan)
        assert len(plan) == distance(instance.initial, instance.goal)


def test_every_four_block_state_is_reached() -> None:
    seen, queue = {arrange(LETTERS, random.Random(0))}, [arrange(LETTERS, random.Random(0))]
    while queue:
        state = queue.pop()
        for action in possible_actions(state):
            if (after := apply(state, action)) not in seen:
                seen.add(after)
                queue.append(after)
    # 73 arrangements of four blocks, and 13 of the other three for each of the four in the hand.
    assert len(seen) == 73 + 4 * 13
    assert sum(HAND_EMPTY in state for state in seen) == 73


def test_goals_that_no_plan_reaches_and_worlds_that_are_too_large() -> None:
    start = arrange(LETTERS[:2], random.Random(0))
    ring = (Fact(Kind.ON, "red", "blue"), Fact(Kind.ON, "blue", "red"))
    assert shortest_plan(start, ring) is None
    assert shortest_plan(start, [HAND_EMPTY]) == ()
    with refused(says="7 blocks: the shortest plan is"):
        shortest_plan(arrange([f"b{number}" for number in range(7)], random.Random(0)), ring)


def test_a_flawed_plan_fails_in_more_than_one_way() -> None:
    rng = random.Random(5)
    failures = set()
    for _ in range(60):
        instance = draw(rng, 3)
        plan = shortest_plan(instance.initial, instance.goal)
        assert plan
        wrong = make_flawed(instance, plan, rng)
        assert wrong and not solves(instance.initial, instance.goal, wrong)
        failures.add(len(wrong) - len(plan))
    assert {-1, 0, 1} <= failures


def test_even_a_one_step_plan_can_be_flawed() -> None:
    goal = (Fact(Kind.TABLE, "red"),)
    instance = Instance(initial=frozenset({Fact(Kind.HOLDING, "red")}), goal=goal)
    plan = shortest_plan(instance.initial, goal)
    assert plan and len(plan) == 1
    assert not solves(instance.initial, instance.goal, make_flawed(instance, plan, random.Random(0)))
