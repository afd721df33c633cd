"""envs.papers.graph_rl.blocks.execute: the four actions, and the states of the world."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.papers.graph_rl.blocks.execute import (
    HAND_EMPTY,
    Action,
    Fact,
    Kind,
    State,
    Verb,
    apply,
    contradiction,
    execute,
    rule,
)
from envs.papers.graph_rl.blocks.generate import possible_actions
from envs.papers.graph_rl.blocks.words import read_facts

# Green on red; white alone.
TOWER = frozenset(
    read_facts(
        "the green block is clear, the white block is clear, the hand is empty, the green block is on top of the red "
        "block, the red block is on the table and the white block is on the table",
        "here",
    )
)
LIFT = Action(Verb.UNSTACK, "green", "red")


def state(words: str) -> State:
    return frozenset(read_facts(words, "here"))


def test_each_action_changes_what_it_must() -> None:
    world = apply(TOWER, LIFT)
    assert world == state(
        "the red block is clear, the white block is clear, the hand is currently holding green block, "
        "the red block is on the table and the white block is on the table"
    )
    assert apply(world, Action(Verb.PUT_DOWN, "green")) == state(
        "the red block is clear, the white block is clear, the green block is clear, the hand is empty, "
        "the red block is on the table, the white block is on the table and the green block is on the table"
    )
    assert apply(world, Action(Verb.STACK, "green", "red")) == TOWER
    assert apply(TOWER, Action(Verb.PICK_UP, "white")) == state(
        "the green block is clear, the hand is currently holding white block, the green block is on top of the red "
        "block and the red block is on the table"
    )


def test_a_step_that_cannot_be_done_ends_the_plan_with_its_index_and_needs() -> None:
    done = execute(TOWER, [LIFT, Action(Verb.PICK_UP, "white"), Action(Verb.PUT_DOWN, "green")])
    assert (done.failed, done.unmet) == (1, (HAND_EMPTY,))
    assert done.final == apply(TOWER, LIFT)
    assert execute(TOWER, [LIFT]).failed is None
    assert execute(TOWER, []).final == TOWER


@pytest.mark.parametrize(
    ("action", "unmet"),
    [
        (Action(Verb.PICK_UP, "red"), (Fact(Kind.CLEAR, "red"),)),
        (Action(Verb.PICK_UP, "green"), (Fact(Kind.TABLE, "green"),)),
        (Action(Verb.PUT_DOWN, "white"), (Fact(Kind.HOLDING, "white"),)),
        (Action(Verb.STACK, "green", "red"), (Fact(Kind.CLEAR, "red"), Fact(Kind.HOLDING, "green"))),
        (Action(Verb.UNSTACK, "white", "red"), (Fact(Kind.ON, "white", "red"),)),
        (Action(Verb.PICK_UP, "unheard-of"), (Fact(Kind.CLEAR, "unheard-of"), Fact(Kind.TABLE, "unheard-of"))),
        (Action(Verb.STACK, "green", "green"), (Fact(Kind.HOLDING, "green"),)),
    ],
)
def test_unmet_needs_are_named_in_planbench_order(action: Action, unmet: tuple[Fact, ...]) -> None:
    done = execute(TOWER, [action])
    assert (done.failed, done.unmet, done.final) == (0, unmet, TOWER)


def test_a_held_block_cannot_be_stacked_on_itself() -> None:
    world = apply(TOWER, LIFT)
    assert execute(world, [Action(Verb.STACK, "green", "green")]).unmet == (Fact(Kind.CLEAR, "green"),)


def test_no_action_can_be_done_twice_in_a_row() -> None:
    for action in possible_actions(TOWER):
        assert execute(TOWER, [action, action]).failed == 1
        assert set(rule(action).needs).isdisjoint(rule(action).begins)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_whatever_is_done_the_state_stays_one_of_the_world(choices: list[int]) -> None:
    now = TOWER
    for choice in choices:
        actions = list(possible_actions(now))
        now = apply(now, actions[choice % len(actions)])
        assert contradiction(now) == ()


@pytest.mark.parametrize(
    "words",
    [
        "the red block is clear, the red block is on the table",  # no hand
        "the hand is empty, the hand is currently holding red block",
        "the hand is currently holding red block, the hand is currently holding blue block",
        "the hand is empty, the red block is clear",  # nowhere
        "the hand is empty, the red block is on the table",  # nothing on it, yet not clear
        "the hand is empty, the red block is on the table, the red block is clear, the blue block is clear, "
        "the blue block is on top of the red block",
        "the hand is empty, the red block is on top of the blue block, the blue block is on top of the red block",
        "the hand is empty, the red block is on top of the red block",
        "the hand is empty, the red block is clear, the red block is on the table, the red block is on top of the "
        "blue block, the blue block is on the table",
        "the hand is empty, the red block is clear, the green block is clear, the red block is on top of the blue "
        "block, the green block is on top of the blue block, the blue block is on the table",
        "the hand is currently holding blue block, the red block is clear, the red block is on top of the blue block",
        "the hand is currently holding red block, the red block is clear",
    ],
)
def test_a_state_that_cannot_be_is_found_out(words: str) -> None:
    assert contradiction(state(words))


def test_a_block_that_is_held_and_clear_is_named_with_both() -> None:
    world = state("the hand is currently holding red block, the red block is clear")
    assert contradiction(world) == (Fact(Kind.HOLDING, "red"), Fact(Kind.CLEAR, "red"))


def test_real_states_have_no_contradiction() -> None:
    assert contradiction(TOWER) == contradiction(apply(TOWER, LIFT)) == contradiction(frozenset({HAND_EMPTY})) == ()
