"""envs.papers.graph_rl.blocks.words: PlanBench's sentences, and whatever else a model may write."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.papers.graph_rl.blocks.execute import HAND_EMPTY, Action, Fact, Kind, Verb
from envs.papers.graph_rl.blocks.words import (
    facts_words,
    plan_words,
    read_action,
    read_facts,
    read_pddl_plan,
    read_plan,
    read_verdict,
    sort_facts,
    statement,
    verdict_words,
)
from tests.refused import refused

ON = Fact(Kind.ON, "green", "white")
FACTS = (
    Fact(Kind.CLEAR, "green"),
    HAND_EMPTY,
    ON,
    Fact(Kind.TABLE, "white"),
)
WORDS = (
    "the green block is clear, the hand is empty, the green block is on top of the white block and "
    "the white block is on the table"
)
PLAN = (Action(Verb.UNSTACK, "green", "white"), Action(Verb.PUT_DOWN, "green"), Action(Verb.PICK_UP, "white"))
PLAN_WORDS = "unstack the green block from on top of the white block\nput down the green block\npick up the white block"

names = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
facts = st.one_of(
    st.tuples(st.sampled_from([Kind.CLEAR, Kind.TABLE, Kind.HOLDING]), names).map(lambda parts: Fact(*parts)),
    st.tuples(st.just(Kind.ON), names, names).map(lambda parts: Fact(*parts)),
    st.just(HAND_EMPTY),
)
actions = st.one_of(
    st.tuples(st.sampled_from([Verb.PICK_UP, Verb.PUT_DOWN]), names).map(lambda parts: Action(*parts)),
    st.tuples(st.sampled_from([Verb.STACK, Verb.UNSTACK]), names, names).map(lambda parts: Action(*parts)),
)


def test_facts_read_and_written() -> None:
    assert facts_words(FACTS) == WORDS
    assert read_facts(WORDS, "here") == FACTS
    assert read_facts(f"  As initial conditions I have that, {WORDS}.\n", "here") == FACTS
    assert read_facts("My goal is to have that the Green block is on top of the WHITE block. ", "here") == (ON,)
    assert read_facts("the hand is empty, and the hand is currently holding the red block", "here")[1].block == "red"
    assert sort_facts(frozenset(FACTS), ["green", "white"]) == list(FACTS)
    assert statement(FACTS, [ON]).splitlines() == [
        f"As initial conditions I have that, {WORDS}.",
        "My goal is to have that the green block is on top of the white block.",
    ]


@settings(max_examples=40)
@given(st.lists(facts, min_size=1, max_size=8))
def test_what_is_written_is_read_back(written: list[Fact]) -> None:
    assert list(read_facts(facts_words(written), "here")) == written


def test_a_sentence_that_is_no_fact_is_named() -> None:
    with refused(where="line 7", says="'the red block flies' is no fact"):
        read_facts("the hand is empty and the red block flies.", "line 7")
    with refused(says="1000001 characters, expected at"):
        read_facts("x" * 1_000_001, "line 7")


@pytest.mark.parametrize(
    "line",
    [
        "stack the red block on top of the blue block",
        "  Stack the Red block   on top of the blue block. ",
        "3. stack the red block on top of the blue block",
        "12) stack the red block on top of the blue block",
        "Step 3: stack the red block on top of the blue block;",
        "- stack the red block on top of the blue block",
        "* stack the red block on top of the blue block,",
    ],
)
def test_actions_in_any_case_numbered_or_listed(line: str) -> None:
    assert read_action(line) == Action(Verb.STACK, "red", "blue")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "stack red on blue",
        "(stack red blue)",
        "stack the red block on the blue block",
        "stack the red block on top of the blue block twice",
        "first stack the red block on top of the blue block",
        "unstack the red block on top of the blue block",
        "pick up the red block and put down the red block",
        "pick up the dark red block",
        "pick up the \u0433\u0440een block",
        "-- pick up the red block",
        "pick up the red block" + " " * 300 + "!",
        "pick up the " + "r" * 40 + " block",
    ],
)
def test_nothing_else_is_an_action(line: str) -> None:
    assert read_action(line) is None


@settings(max_examples=40)
@given(st.lists(actions, min_size=1, max_size=10), st.booleans())
def test_plans_are_read_back_with_their_places(plan: list[Action], marked: bool) -> None:
    text = f"Let me see.\n[PLAN]\n\n{plan_words(plan)}\n[PLAN END] and on" if marked else plan_words(plan)
    read = read_plan(text)
    assert (read.actions, read.problem) == (tuple(plan), None)
    assert [read_action(text[start:end]) for start, end in read.spans] == plan


def test_the_first_end_mark_ends_the_plan_and_the_last_beginning_before_it_begins_it() -> None:
    text = "[PLAN]\nhm\n[PLAN]\npick up the red block\n[PLAN END]\n[PLAN]\npick up the blue block\n[PLAN END]"
    assert read_plan(text).actions == (Action(Verb.PICK_UP, "red"),)


@pytest.mark.parametrize(
    ("text", "problem", "at"),
    [
        ("", "no action", ""),
        ("[PLAN END]", "no action", ""),
        ("[PLAN]\n \n[PLAN END]", "no action", "\n \n"),
        ("pick up the red block\n then rest \n", "'then rest' is no action", "then rest"),
        ("Sure!\npick up the red block\n[PLAN END]", "'Sure!' is no action", "Sure!"),
    ],
)
def test_why_a_plan_cannot_be_read_and_where(text: str, problem: str, at: str) -> None:
    read = read_plan(text)
    assert read.actions == () and read.problem == problem and read.problem_span is not None
    assert text[slice(*read.problem_span)] == at


@given(st.text())
def test_any_text_is_a_plan_or_has_a_problem(text: str) -> None:
    for wrapped in (text, f"[PLAN]{text}[PLAN END]", f"pick up the red block\n{text}", text * 50):
        read = read_plan(wrapped)
        assert (read.problem is None) == bool(read.actions) and len(read.spans) == len(read.actions)
        read_verdict(wrapped)


@pytest.mark.parametrize("piece", ["\n", " ", "[PLAN]", "pick up the ", "not ", "valid", "1. ", "- ", "step 1: "])
def test_a_megabyte_of_anything_is_read(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    assert read_plan(text).problem is not None
    read_verdict(text)


def test_stored_plans() -> None:
    stored = "(unstack green white)\n(put-down green)\n\n(PICK-UP white)\n"
    assert read_pddl_plan(stored, "here") == PLAN
    for broken in ("(fly green)", "(stack green)", "(pick-up green white)", "pick-up green"):
        with refused(where="line 2", says="is no action, expected one like"):
            read_pddl_plan(broken, "line 2")


def test_verdicts_name_the_step_and_what_it_lacks_or_what_the_goal_lacks() -> None:
    start = frozenset(FACTS)
    goal = [Fact(Kind.ON, "white", "green"), Fact(Kind.CLEAR, "white")]
    stack = Action(Verb.STACK, "white", "green")
    assert verdict_words(start, goal, [*PLAN, stack]) == "The above plan is valid."
    assert verdict_words(start, goal, PLAN) == (
        "The above plan is invalid. These are the unmet goal conditions:\n"
        "the white block is on top of the green block and the white block is clear"
    )
    assert verdict_words(start, goal[:1], PLAN[:2]) == (
        "The above plan is invalid. This is the unmet goal condition:\nthe white block is on top of the green block"
    )
    assert verdict_words(start, goal, [PLAN[0], PLAN[2]]) == (
        "The above plan is invalid. The following action at step 2 has an unmet precondition:\n"
        "pick up the white block\n"
        "The unmet precondition is:\nthe hand is empty"
    )
    assert verdict_words(start, goal, [stack]) == (
        "The above plan is invalid. The following action at step 1 has an unmet precondition:\n"
        "stack the white block on top of the green block\n"
        "The unmet precondition is:\nthe hand is currently holding white block"
    )
    assert verdict_words(start, goal, [Action(Verb.STACK, "green", "white")]) == (
        "The above plan is invalid. The following action at step 1 has unmet preconditions:\n"
        "stack the green block on top of the white block\n"
        "The unmet preconditions are:\nthe white block is clear and the hand is currently holding green block"
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("The above plan is valid.\n", True),
        ("The above plan is invalid.The following action at step 2 has an unmet precondition:", False),
        ("VALID", True),
        ("**Invalid**", False),
        ("Is it valid or invalid? Step 2 fails, so it is not valid.", False),
        ("The above plan is not a valid plan.", False),
        ("The plan isn't valid.", False),
        ("So it is not invalid.", True),
        ("It looks invalid, but it is valid", True),
        ("The plan is valid.\n[STATEMENT]\n... is invalid", True),
        ("The plan cannot be valid.", False),
        ("It can't be considered a valid plan", False),
        ("This is no **valid** plan.", False),
        ("The plan is never actually valid", False),
        ("neither valid nor executable", False),
        ("I don't think the plan is valid.", False),
        ("I believe that the plan is valid.", True),
        ("The plan is no longer valid", False),
        ("It fails to be valid", False),
        ("It is far from valid", False),
        ("hardly valid", False),
        ("Nothing about it is valid", False),
        ("It may not be valid", None),
        ("Valid: no", False),
        ("Is the plan valid? **No**", False),
        ("Valid? Yes.", True),
        ("Is the plan valid? No step fails.", True),
        ("I found no error, so the plan is valid", True),
        ("No step fails: valid", True),
        ("The above plan is invalid. It would be valid if the hand were empty.", False),
        ("It might be valid", None),
        ("I check whether the plan is valid", None),
        ("The plan is valid or invalid", None),
        ("VALID/INVALID", None),
        ("valid or not", None),
        ("The plan works", None),  # a verdict is one of the two words
        ("validity is invalidated", None),
        ("", None),
    ],
)
def test_the_last_verdict_counts(text: str, said: bool | None) -> None:
    read = read_verdict(text)
    assert (None if read is None else read[0]) == said
    assert read is None or "valid" in text[slice(*read[1])].lower()
