"""envs.rewards.transcript: who wrote what in one string, for balanced, nested, broken and hostile tags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs import REWARDS, make_reward
from envs.papers.icrl.protocol import INFORMATION, INVALID_ACTION
from envs.papers.research.protocol import RESULT
from envs.protocols.retool import INTERPRETER
from envs.rewards.transcript import (
    Piece,
    count_tag,
    first_span,
    inline_format_of,
    last_span_between,
    lower_ascii,
    split_inline,
    split_response,
)
from envs.worlds.calculator import CalculatorConfig
from envs.worlds.python import PythonMathConfig
from envs.worlds.search_config import SearchQAConfig
from rlsys.choices import choose


def parts(response: str, **kwargs: object) -> list[str]:
    """The model's stretches as they are, the environment's in brackets."""
    messages = split_response(response, opening="<i>", closing="</i>", **kwargs)
    return [message.content if message.role == "assistant" else f"[{message.content}]" for message in messages]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("", []),
        ("abc", ["abc"]),
        ("a<i>x</i>b", ["a", "[<i>x</i>]", "b"]),
        ("<i>x</i>", ["[<i>x</i>]"]),
        ("a<i>x</i><i>y</i>b", ["a", "[<i>x</i>]", "[<i>y</i>]", "b"]),
        # a quoted pair inside a document belongs to the document
        ("a<i>x<i>y</i>z</i>b", ["a", "[<i>x<i>y</i>z</i>]", "b"]),
        # an opening inside a document has taken the closing: the next closing ends the document
        ("a<i>x<i>y</i>b<i>z</i>c", ["a", "[<i>x<i>y</i>]", "b", "[<i>z</i>]", "c"]),
        # cut off: nothing after the opening is the model's for sure
        ("a<i>x", ["a", "[<i>x]"]),
        ("a<i>x</i>b<i>y", ["a", "[<i>x</i>]", "b", "[<i>y]"]),
        # a closing alone is the model's text
        ("a</i>b", ["a</i>b"]),
        ("a</i><i>x</i></i>b", ["a</i>", "[<i>x</i>]", "</i>b"]),
        ("<I>x</I>", ["<I>x</I>"]),
    ],
)
def test_stretches_of_one_string(response: str, expected: list[str]) -> None:
    assert parts(response) == expected


def test_notices_are_the_environments_outside_of_its_tags() -> None:
    assert parts("a!b<i>!</i>!", notices=("!",)) == ["a", "[!]", "b", "[<i>!</i>]", "[!]"]
    assert parts("a?!b!", notices=("!", "?!")) == ["a", "[?!]", "b", "[!]"]
    roles = [message.role for message in split_inline(f"hm{INVALID_ACTION}<think>", INFORMATION)]
    assert roles == ["assistant", "tool", "assistant"]


def test_without_a_protocol_all_of_it_is_the_models() -> None:
    assert [message.role for message in split_inline("a<information>b</information>", None)] == ["assistant"]


pieces_of_tags = st.lists(st.sampled_from(["<i>", "</i>", "a", "!", "\ud800", "\x00", "<", "i>"])).map("".join)


@given(pieces_of_tags)
def test_nothing_is_lost_and_no_tag_of_the_environment_reaches_the_model(response: str) -> None:
    messages = split_response(response, opening="<i>", closing="</i>", notices=("!",))
    assert "".join(piece.content for piece in messages) == response
    assert all(piece.content for piece in messages)
    for message in messages:
        if message.role == "assistant":
            assert "<i>" not in message.content and "!" not in message.content


@pytest.mark.cpu_seconds(5)
def test_a_megabyte_of_tags_is_cut_in_one_pass() -> None:
    for response in ("<i>" * 200_000, "<i>!</i>" * 50_000 + "!" * 50_000, "<i>" * 9 + "!" * 10**6):
        assert "".join(
            message.content for message in split_response(response, opening="<i>", closing="</i>", notices=("!",))
        )


def test_a_pair_is_found_within_one_message_only() -> None:
    pieces = [Piece(0, "<a>one</a>"), Piece(2, "<a>two"), Piece(4, "</a>")]
    span = last_span_between(pieces, "<a>", "</a>")
    assert span is not None and (span.message, span.start, span.end) == (0, 3, 6)
    assert count_tag(pieces, "</a>") == 2
    assert first_span(pieces, "two") is not None and first_span(pieces, "three") is None


def test_lower_case_keeps_every_place() -> None:
    assert lower_ascii([Piece(0, "\u0130<ANSWER>\u212a")])[0].text == "\u0130<answer>\u212a"


def test_the_tags_are_the_environments_else_the_rewards() -> None:
    rewards = (choose("reward", REWARDS, name).schema() for name in ("research", "icrl", "answer"))
    research, icrl, answer = map(make_reward, rewards)
    assert inline_format_of(SearchQAConfig(protocol="research"), answer) is RESULT
    assert inline_format_of(SearchQAConfig(protocol="icrl"), research) is INFORMATION
    assert inline_format_of(PythonMathConfig(), answer) is INTERPRETER
    assert inline_format_of(CalculatorConfig(), icrl) is INFORMATION
    assert inline_format_of(SearchQAConfig(protocol="swirl"), answer) is None
