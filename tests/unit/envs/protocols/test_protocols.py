"""envs.protocols: what counts as a call and as an answer, and how every kind of message ends."""

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from envs.base import Step
from envs.episode import UNLIMITED, max_turns, read_turn
from envs.papers.graph_rl.protocol import is_well_formed, write_parts
from envs.papers.icrl.protocol import INVALID_ACTION
from envs.papers.research.protocol import RESEARCH
from envs.papers.swirl.protocol import MATH_CLOSE, MATH_OPEN, OVER_LIMIT, SWIRL_MATH, tool_reply
from envs.protocols import PROTOCOLS, Answer, Call, Malformed, Parsed, Protocol, o2_searcher
from envs.protocols.record import Asked, first_between, has_one_answer, last_answer, write_answer
from rlsys.types import EpisodeEnd, Message


def math_call(text: str) -> str | None:
    return first_between(text, MATH_OPEN, MATH_CLOSE)


SILENT = ("graph_rl", "direct", "cot", "rag", "iter_retgen")  # the policy calls nothing
CALLING = [protocol for protocol in PROTOCOLS.values() if protocol.name not in SILENT]


def test_first_call_is_taken_and_stripped() -> None:
    assert math_call("a <math_exp> 48 / 2 </math_exp> <math_exp>1</math_exp>") == "48 / 2"
    assert math_call("<math_exp></math_exp>") == ""
    assert math_call("<math_exp>1") is None
    assert math_call("</math_exp>1<math_exp>") is None


@pytest.mark.parametrize(
    ("text", "given", "exactly_one"),
    [
        ("so <answer> 24 </answer>", "24", True),
        ("<answer></answer>", "", True),
        ("<answer>1</answer><answer>2</answer>", "2", False),
        ("<answer>1<answer>2</answer>", "2", False),
        ("<answer>1</answer> <answer>", "1", False),
        ("</answer><answer>1", None, False),
        ("</answer><answer>1</answer>", "1", False),
        ("<answer</answer>", None, False),
        ("24", None, False),
    ],
)
def test_last_complete_answer_is_taken(text: str, given: str | None, exactly_one: bool) -> None:
    assert last_answer(text) == given
    assert has_one_answer(text) is exactly_one


def test_reply_repeats_the_query_within_bounds() -> None:
    assert tool_reply("48 / 2", "24.0") == "48 / 2 -> 24.0"
    assert tool_reply("9" * 600, "error: x") == "9" * 512 + "... -> error: x"


# What each protocol makes of a message: the tables in their files.

SWIRL_TABLE: list[tuple[str, Parsed]] = [
    ("I look. <search_query> the scorch trials publisher </search_query>", Call("the scorch trials publisher")),
    ("<search_query>a</search_query> <search_query>b</search_query>", Call("a")),
    ("<search_query></search_query>", Call("")),
    ("<search_query>a</search_query><answer>b</answer>", Answer("b", with_call=True)),
    ("<answer>b</answer><search_query>a</search_query>", Answer("b", with_call=True)),
    ("<answer>b</answer> <search_query>a", Answer("b")),
    ("<answer></answer>", Answer("")),
    ("<answer>b <search_query>a</search_query>", Call("a")),
    ("<search_query>a", Malformed()),
    ("<math_exp>1</math_exp>", Malformed()),
    ("", Malformed()),
]
RESEARCH_TABLE: list[tuple[str, Parsed]] = [
    ("<think> x </think> <search> capital of France </search>", Call("capital of France")),
    ("<search> a <search> b </search>", Call("b")),
    ("<search> a </search> <search> b </search>", Call("b")),
    ("<answer> \\boxed{x} </answer> <search> a </search>", Call("a")),
    ("no query </search>", Call("")),
    ("<search>  </search>", Call("")),
    (
        "<think> x </think> <answer> The final answer is \\[ \\boxed{x} \\] </answer>",
        Answer("The final answer is \\[ \\boxed{x} \\]"),
    ),
    ("<answer> x </answer> <search> a", Answer("x")),
    ("<think> and so on", Malformed()),
    ("<search> a", Malformed()),
]
ICRL_TABLE: list[tuple[str, Parsed]] = [
    ("<think> x </think> <search> a </search>", Call("a")),
    ("<search> a </search> <answer> b </answer>", Call("a")),
    ("<answer> b </answer> <search> a </search>", Answer("b", with_call=True)),
    ("<search> a </search> <search> b </search>", Call("a")),
    ("<answer> a </answer> <answer> b </answer>", Answer("a")),
    ("<answer> b <search> a </search>", Call("a")),  # cut after </search>: no complete answer
    ("<answer> b <search> a </search> </answer>", Call("a")),
    ("<search> a <answer> b </answer>", Answer("b")),
    ("</search> <search> a </search>", Malformed()),  # cut after the first </search>
    ("</answer> <answer> b </answer>", Malformed()),
    ("<search></search>", Call("")),
    ("<search> a", Malformed()),
    ("Beijing", Malformed()),
]
RETOOL_TABLE: list[tuple[str, Parsed]] = [
    ("Let us see.\n<code>\n```python\nprint(1)\n```\n</code>", Call("print(1)")),
    ("<code>\n```python\nif 1:\n    print(1)\n```\n</code>", Call("if 1:\n    print(1)")),
    ("```python\nx = 1\n```\n<code>\n```python\nprint(2)\n```\n</code>", Call("print(2)")),
    ("<code>\nprint(3)\n</code>", Call("print(3)")),
    ("<code>\n```python\nprint(4)\n</code>", Call("print(4)")),
    ("<code></code>", Call("")),
    ("</code>", Call("")),
    ("<answer>\\boxed{5}</answer><code>\n```python\nprint(5)\n```\n</code>", Call("print(5)")),
    ("so <answer>\\boxed{5}</answer>", Answer("\\boxed{5}")),
    ("<code>\n```python\nprint(1)\n```\n", Malformed()),
]
GRAPH_TABLE: list[tuple[str, Parsed]] = [
    ("<think>a</think><response>b</response><answer>yes</answer>", Answer("yes")),
    ("<answer>yes</answer>", Answer("yes")),
    ("<think>a</think>", Malformed()),
]
O2_TABLE: list[tuple[str, Parsed]] = [
    ("<think>x</think><search>\n<query>a</query>\n</search>", Call("<query>a</query>")),
    ("<search><query>a</query> <query>b</query></search>", Call("<query>a</query> <query>b</query>")),
    ("<search>a</search>", Call("")),  # no query in it: nothing is searched
    ("<search><query> </query></search>", Call("")),
    ("<search><query>a</search>", Call("")),
    ("<search><query>a</query></search><answer>b</answer>", Call("<query>a</query>")),
    ("<answer>b</answer><search><query>a</query></search>", Answer("b", with_call=True)),
    ("<answer>b</answer>", Answer("b")),
    ("<query>a</query>", Malformed()),
]
BOXED = "<answer> The final answer is \\[ \\boxed{x} \\] </answer>"
DIRECT_TABLE: list[tuple[str, Parsed]] = [
    (BOXED, Answer("The final answer is \\[ \\boxed{x} \\]")),
    ("<think>a</think> <search>b</search>", Malformed()),
    ("x", Malformed()),
]
IRCOT_TABLE: list[tuple[str, Parsed]] = [
    ("<think> The Pell is a river. </think>", Call("The Pell is a river.")),
    ("The Pell. <think> a </think>", Call("a")),
    (BOXED, Answer("The final answer is \\[ \\boxed{x} \\]")),
    ("<think> </think>", Call("")),
    ("The Pell is a river.", Malformed()),
]
TABLES = {
    "o2_searcher": O2_TABLE,
    "ircot": IRCOT_TABLE,
    **dict.fromkeys(("direct", "cot", "rag", "iter_retgen"), DIRECT_TABLE),
    "swirl": SWIRL_TABLE,
    "research": RESEARCH_TABLE,
    "icrl": ICRL_TABLE,
    "retool": RETOOL_TABLE,
    "graph_rl": GRAPH_TABLE,
}


@pytest.mark.parametrize(("name", "text", "parsed"), [(name, *row) for name, rows in TABLES.items() for row in rows])
def test_a_message_is_read_as_its_table_says(name: str, text: str, parsed: Parsed) -> None:
    assert PROTOCOLS[name].parse(text) == parsed


@pytest.mark.parametrize(
    ("text", "is_formatted"),
    [
        (write_parts("a", "b", "yes"), True),
        ("<think>a</think> <response>b</response>\n<answer>yes</answer>", True),
        ("<think>a</think><answer>yes</answer><response>b</response>", False),
        ("<think>a<think></think><response>b</response><answer>yes</answer>", False),
        ("<response>b</response><answer>yes</answer>", False),
    ],
)
def test_graph_format_is_each_tag_once_in_order(text: str, is_formatted: bool) -> None:
    assert is_well_formed(text) is is_formatted


# Limits

ANSWERED, MALFORMED = Step(end=EpisodeEnd.ANSWERED), Step(end=EpisodeEnd.MALFORMED)
TURN_LIMIT = Step(end=EpisodeEnd.TURN_LIMIT)


@pytest.mark.parametrize(
    ("name", "calls", "turns"),
    [
        ("swirl", 5, 7),
        ("swirl_math", 10, 12),
        ("icrl", 6, 7),
        ("o2_searcher", 4, 5),
        ("direct", 0, 1),
        ("rag", 0, 1),
        ("iter_retgen", 2, 3),
        ("ircot", 8, 10),
        ("research", None, UNLIMITED),
        ("retool", None, UNLIMITED),
    ],
)
def test_turns_are_the_calls_the_answer_and_a_warning_where_one_is_given(
    name: str, calls: int | None, turns: int
) -> None:
    protocol = PROTOCOLS[name]
    assert (protocol.calls, max_turns(protocol, None)) == (calls, turns)
    assert max_turns(protocol, 3) == 3 + (protocol.over_limit is not None)


def test_a_search_shows_as_many_passages_as_the_papers_say() -> None:
    """A recipe states its own; the baselines rely on these."""
    passages = {"research": 5, "icrl": 3, "swirl": 1, "o2_searcher": 3, "rag": 5, "iter_retgen": 5, "ircot": 5}
    without = {"direct": 0, "cot": 0, "swirl_math": None, "retool": None, "graph_rl": None}
    assert {name: protocol.topk for name, protocol in PROTOCOLS.items()} == passages | without


@pytest.mark.parametrize("protocol", CALLING, ids=lambda protocol: protocol.name)
def test_exactly_the_calls_of_the_protocol_are_executed(protocol: Protocol) -> None:
    allowed = protocol.calls if protocol.calls is not None else 50
    turns = max_turns(protocol, None if protocol.calls is not None else allowed + 1)
    steps = [read_turn(protocol, protocol.write_call("q"), turns_left=turns - turn - 1) for turn in range(turns)]
    assert steps[:allowed] == [protocol.parse(protocol.write_call("q"))] * allowed
    assert isinstance(steps[0], Call)
    warning = [Step(reply=protocol.over_limit)] if protocol.over_limit else []
    assert steps[allowed:] == [*warning, TURN_LIMIT]
    assert read_turn(protocol, protocol.write_answer("a"), turns_left=0) == ANSWERED


def test_swirl_is_told_to_answer_once() -> None:
    assert PROTOCOLS["swirl"].over_limit == Message(role="user", content=OVER_LIMIT)


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=lambda protocol: protocol.name)
def test_a_malformed_message_ends_the_episode_or_costs_a_turn(protocol: Protocol) -> None:
    expected = MALFORMED
    if protocol.name == "icrl":
        expected = Step(reply=Message(role="tool", content=INVALID_ACTION, inline=True), max_tokens=500)
    if protocol.name == "o2_searcher":
        expected = Step(reply=Message(role="user", content=o2_searcher.INVALID_ACTION))
    assert read_turn(protocol, "nothing of use", turns_left=1) == expected
    assert read_turn(protocol, "nothing of use", turns_left=0) == MALFORMED


# Any text

TAGS = sorted(
    {tag for protocol in PROTOCOLS.values() for tag in protocol.tags} | {"```python", "```", "<", ">", "/", "1", " "}
)
WHOLE = sorted({protocol.write_answer("5") for protocol in PROTOCOLS.values()})
NOISE = st.lists(st.sampled_from(TAGS) | st.sampled_from(WHOLE) | st.text(max_size=3), max_size=25).map("".join)


@settings(max_examples=150)
@given(NOISE)
@example("so <answer>5</answer>")
def test_parsers_never_raise_and_find_only_what_is_there(text: str) -> None:
    for protocol in PROTOCOLS.values():
        parsed = protocol.parse(text)
        assert isinstance(parsed, Malformed) or parsed.text in text
        step = read_turn(protocol, text, turns_left=3)
        assert isinstance(step, Call) or (step.reply is None) != (step.end is None)
    for part in (last_answer(text), math_call(text)):
        assert part is None or part in text
    if has_one_answer(text):
        assert last_answer(text) is not None


@settings(max_examples=150)
@given(st.text().filter(lambda text: "<" not in text and "`" not in text))
def test_what_is_written_is_read_back(text: str) -> None:
    assert last_answer(write_answer(text)) == text.strip()
    assert math_call(SWIRL_MATH.write_call(text)) == text.strip()
    for protocol in CALLING:
        written = text.strip("\n").rstrip() if protocol.name == "retool" else text.strip()  # code keeps its indentation
        if protocol.name == "o2_searcher" and written:
            assert o2_searcher.queries(protocol.write_call(text)) == [written]
            written = f"<query>{text}</query>"
        assert protocol.parse(protocol.write_call(text)) == Call(written)
        assert protocol.parse("so " + protocol.write_call(text)) == Call(written)
    for protocol in PROTOCOLS.values():
        given_answer = protocol.parse(protocol.write_answer(text))
        assert isinstance(given_answer, Answer) and text.strip() in given_answer.text
        if protocol.name in ("swirl", "swirl_math", "icrl", "o2_searcher", "graph_rl"):  # the others' is boxed
            assert given_answer == Answer(text.strip())


@pytest.mark.parametrize("protocol", CALLING, ids=lambda protocol: protocol.name)
def test_generation_stops_right_after_a_call_and_in_some_protocols_after_an_answer(protocol: Protocol) -> None:
    stops_at_answers = protocol.name not in ("research", "retool")  # there the model ends its turn itself
    for written, stops in ((protocol.write_call("q"), True), (protocol.write_answer("a"), stops_at_answers)):
        assert written.endswith(protocol.stop) is stops
        assert sum(written.count(stop) for stop in protocol.stop) == stops


@pytest.mark.cpu_seconds(5)
def test_a_megabyte_of_tags_is_read_in_one_pass() -> None:
    text = "<answer>" * 125_000
    assert last_answer(text) is None
    assert last_answer(text + "</answer>" * 10) is not None
    assert math_call("<math_exp>" * 100_000) is None
    for protocol in PROTOCOLS.values():
        for tag in protocol.tags:
            protocol.parse(tag * (1_000_000 // len(tag)))


def test_a_base_model_reads_one_text_and_a_chat_an_instruction_of_its_own() -> None:
    task = Asked(question="Who?", instruction="Think.")
    assert RESEARCH.prompt(replace(task, raw=True)) == (
        Message(role="user", content="Think. User: Who?. Assistant:", inline=True),
    )
    question = Message(role="user", content="Who?")
    assert RESEARCH.prompt(task) == (Message(role="system", content="Think."), question)
    assert RESEARCH.prompt(replace(task, instruction="")) == (question,)
