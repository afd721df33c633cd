"""envs.dialects: what counts as a call and as an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.dialects import answer, math_call, one_answer, tool_reply, write_answer, write_math_call


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
    assert answer(text) == given
    assert one_answer(text) is exactly_one


def test_reply_repeats_the_query_within_bounds() -> None:
    assert tool_reply("48 / 2", "24.0") == "48 / 2 -> 24.0"
    assert tool_reply("9" * 600, "error: x") == "9" * 512 + "... -> error: x"


TAGS = ["<answer>", "</answer>", "<math_exp>", "</math_exp>", "<", ">", "/", "1", " "]


@given(st.lists(st.sampled_from(TAGS), max_size=30).map("".join))
def test_parsers_never_raise_and_find_only_what_is_there(text: str) -> None:
    for found in (answer(text), math_call(text)):
        assert found is None or found in text
    if one_answer(text):
        assert answer(text) is not None


@given(st.text().filter(lambda text: "<" not in text))
def test_what_is_written_is_read_back(text: str) -> None:
    assert answer(write_answer(text)) == text.strip()
    assert math_call(write_math_call(text)) == text.strip()


def test_a_megabyte_of_openings_is_read_in_one_pass() -> None:
    text = "<answer>" * 125_000
    assert answer(text) is None
    assert answer(text + "</answer>" * 10) is not None
    assert math_call("<math_exp>" * 100_000) is None
