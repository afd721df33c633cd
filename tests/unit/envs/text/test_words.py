"""envs.text.words: the last box, braces matched, nothing guessed."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.text.words import last_boxed, last_boxed_span
from tests.work import lines_run


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{5}", "5"),
        (r"\boxed{5}, no: \boxed{6}.", "6"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{a \fbox{b} c}", r"a \fbox{b} c"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{}", ""),
        (r"\boxed{ 5 }", "5"),
        (r"$\boxed New York$ it is", "New York"),
        (r"\boxed 5 and more", "5"),
        (r"\boxed{5} then \boxed{6", None),
        (r"\boxed{ \boxed{5}", "5"),
        (r"\boxed{5", None),
        (r"\boxed", None),
        (r"\boxedfoo{5}", None),
        (r"\\boxed", None),
        ("no box", None),
        ("", None),
        (r"} \boxed{5} }", "5"),
    ],
)
def test_the_last_box(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@given(st.lists(st.sampled_from([r"\boxed", r"\fbox", "{", "}", "\\", " ", "$", "\n", "5", "\ud800"])).map("".join))
def test_a_span_is_inside_of_the_text(text: str) -> None:
    span = last_boxed_span(text)
    assert span is None or 0 <= span[0] <= span[1] <= len(text)
    last_boxed(text)


@pytest.mark.cpu_seconds(2)
def test_megabytes_of_braces_take_one_pass() -> None:
    for text in (r"\boxed{" * 75_000, r"\boxed" + "{" * 500_000, r"\boxed{5}" * 50_000):
        last_boxed(text)


@pytest.mark.parametrize("flood", [r"\boxed", r"\boxed ", r"\boxed{", "{", "}", r"\boxed{}", "$", r"\boxed x "])
def test_twice_the_text_is_twice_the_work(flood: str) -> None:
    once, twice = (lines_run(lambda n=n: last_boxed_span(flood * n)) for n in (500, 1000))
    assert twice < 2.1 * once + 20


def test_joined_boxes_are_one_list_and_a_thought_has_no_box() -> None:
    assert last_boxed(r"The roots are $\boxed{2}$ and $\boxed{3}$.") == "2, 3"
    assert last_boxed(r"First \boxed{2}, then at last we have \boxed{3}.") == "3"
    assert last_boxed(r"\boxed{7 \boxed{2}, \boxed{3}}") == r"7 \boxed{2}, \boxed{3}"
    assert last_boxed(r"<think>Maybe \boxed{7}?</think> I do not know.") is None
    assert last_boxed(r"<think>Maybe \boxed{7}?") is None
    assert last_boxed(r"<think>\boxed{7}</think> \boxed{8}") == "8"
    few, many = (lines_run(partial(last_boxed, r"\boxed{2}, " * times)) for times in (400, 4000))
    assert many < 20 * few
