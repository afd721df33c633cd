"""envs.rewards.maths.structure: what an answer is made of."""

import pytest

from envs.rewards.maths.chinese import spell_out
from envs.rewards.maths.dates import parse_date
from envs.rewards.maths.measure import conversion_factor
from envs.rewards.maths.numerals import write_in_digits
from envs.rewards.maths.structure import (
    Collection,
    parse_collection,
    parse_labelled,
    parse_named_interval,
    parse_relation,
    parse_spans,
)
from envs.rewards.maths.units import split_unit

INFINITE = float("inf")


@pytest.mark.parametrize(
    ("text", "kind", "low", "high"),
    [
        (r"3 > x \ge 1", "[)", "1", "3"),
        (r"1 < x \le 2", "(]", "1", "2"),
        (r"1 \le x < 2", "[)", "1", "2"),
        (r"1 \le x \le 2", "[]", "1", "2"),
        ("2 > x > 1", "()", "1", "2"),
        ("x > 3", "()", "3", r"\infty"),
        (r"3 \ge x", "(]", r"-\infty", "3"),
        (r"x \ge 3", "[)", "3", r"\infty"),
    ],
)
def test_an_inequality_is_an_interval(text: str, kind: str, low: str, high: str) -> None:
    assert parse_named_interval(text) == ("x", Collection(kind, (low, high)))


@pytest.mark.parametrize(
    "text", ["1 < x > 2", r"1 > x < 2", "x < x + 1", "1 < 2", "1 < x + 1 < x", "x = 3", "a < b < c < d"]
)
def test_what_is_no_interval_of_one_variable(text: str) -> None:
    assert parse_named_interval(text) is None


def test_spans_are_merged_where_they_touch() -> None:
    assert parse_spans(r"[0,1] \cup (1,2)") == ((0, True, 2, False),)
    assert parse_spans(r"[0,1) \cup (1,2)") == ((0, True, 1, False), (1, False, 2, False))
    assert parse_spans(r"[0,3] \cup [1,2)") == ((0, True, 3, True),)
    assert parse_spans(r"(0,2) \cup [1,2]") == ((0, False, 2, True),)
    assert parse_spans(r"x \ne 3") == ((-INFINITE, False, 3, False), (3, False, INFINITE, False))
    assert parse_spans("(2, 1)") is None and parse_spans("(1, 1)") is None and parse_spans("(1, 2, 3)") is None


def test_a_relation_says_what_it_takes_to_compare_it() -> None:
    kinds = {r"a \approx b": r"\approx", r"a = b \approx c": r"\approx", "a = b": "=", "a < b": "<", "a = b < c": "<"}
    relations = {text: parse_relation(text) for text in kinds}
    assert {text: value.kind for text, value in relations.items() if value is not None} == kinds
    assert parse_relation("= 3") is None and parse_relation("3 =") is None and parse_relation("f(x = 1)") is None
    assert parse_relation(r"\approx 3") is not None
    assert parse_relation(r"x < 1 \cup x > 3") is parse_relation(r"x > 1 \cap x < 3") is None  # two of them


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (r"\{\}", Collection("set", ())),
        (r"\{1, 2\}", Collection("set", ("1", "2"))),
        ("1:2", Collection("ratio", ("1", "2"))),
        ("P(1,2)", Collection("()", ("1", "2"))),
        (r"(1,2] \cup \{3\}", Collection("union", ("(1,2]", r"\{3\}"))),
        (r"\pm 2", Collection("list", ("+ 2", "- 2"))),
        ("[[1,2],[3,4]]", Collection("matrix 2x2", ("1", "2", "3", "4"))),
        ("((1,2))", Collection("()", ("(1,2)",))),
        ("(1)(2)", None),
        ("1:", None),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", None),
        (r"\begin{pmatrix}1&2\\3\end{pmatrix}", None),
    ],
)
def test_what_a_text_holds(text: str, found: Collection | None) -> None:
    assert parse_collection(text) == found


def test_parts_are_labelled_in_order() -> None:
    assert parse_labelled("(a) 1, (b) 2") == ("1", "2") == parse_labelled("(i) 1 (ii) 2")
    assert (
        parse_labelled("(b) 1 (a) 2") is None
        and parse_labelled("(a) 1") is None
        and parse_labelled("(a) 1 (b)") is None
    )


def test_degrees_of_a_function_are_no_unit() -> None:
    assert split_unit(r"30^\circ") == ("30", "deg")
    assert split_unit(r"\sin 30^\circ") == (r"\sin 30^\circ", "")


def test_the_month_of_a_date_is_one_of_twelve() -> None:
    assert parse_date("12/05/2020") == (12, 5, "2020") and parse_date("13/05/2020") == (5, 13, "2020")
    assert parse_date("13/13/2020") is None and parse_date("00/05/2020") is None and parse_date("05/32/2020") is None
    assert parse_date("13/12/2020") == (12, 13, "2020")


def test_a_prefix_in_letters_belongs_to_a_name_in_letters() -> None:
    assert conversion_factor("kilometers", "m") == 1000 and conversion_factor("microfarad", "F") == conversion_factor(
        "uF", "F"
    )
    assert conversion_factor("gigaOhm", "ohm") is None and conversion_factor("megahertz", "Hz") == 10**6


def test_a_chinese_fraction_of_no_number_stays_as_it_is() -> None:
    assert spell_out("一二分之三") == "一二分之三" and spell_out("三分之二") == r"\frac{2}{3}"
    assert spell_out("百分之二十") == "20%" and spell_out("5克拉") == r"5 \text{ 克拉}"


def test_a_span_has_two_numbers_and_what_is_turned_is_a_row_or_a_matrix() -> None:
    assert parse_spans("(1,3)") is not None and parse_spans("(x,3)") is parse_spans(r"\{x,3\}") is None
    assert [parse_collection(text) for text in ("5^T", "(5)^T", "(x+y)^T")] == [None] * 3
    turned = parse_collection("(1,2,3)^T")
    assert turned is not None and (turned.kind, turned.elements) == ("matrix 3x1", ("1", "2", "3"))


def test_a_number_has_at_most_twelve_words() -> None:
    longest = "one hundred twenty three million four hundred fifty six thousand seven hundred"
    assert write_in_digits(longest) == "123456700" and write_in_digits(f"{longest} eight") == f"{longest} eight"
