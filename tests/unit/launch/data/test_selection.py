"""launch.data.selection: by hand."""

from __future__ import annotations

import random

import pytest

from launch.data.records import by_question
from launch.data.selection import apportion, draw_rows, drop_duplicates, drop_near_duplicates, shingles
from launch.driver.observe.progress import Bar
from rlsys.errors import BadInput

ROWS = [{"question": f"q{number}", "level": "easy" if number % 4 else "hard"} for number in range(400)]


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["question"] for row in rows]


def test_smaller_draws_lie_in_larger_ones_and_the_order_of_the_source_does_not_matter() -> None:
    small, large = (names(draw_rows(ROWS, take, seed=1, same=by_question)) for take in (10, 100))
    assert len(small) == 10 and set(small) < set(large) and large == sorted(large, key=names(ROWS).index)
    shuffled = random.Random(0).sample(ROWS, len(ROWS))
    assert set(names(draw_rows(shuffled, 10, seed=1, same=by_question))) == set(small)
    assert set(names(draw_rows(ROWS, 10, seed=2, same=by_question))) != set(small)
    assert draw_rows(ROWS, 1_000, seed=1, same=by_question) == ROWS


def test_rows_that_are_the_same_are_drawn_together() -> None:
    twice = [{"question": f"q{number // 2}"} for number in range(40)]
    some = names(draw_rows(twice, 10, seed=3, same=by_question))
    assert len(set(some)) == 5


def test_shares_by_the_largest_remainders() -> None:
    assert apportion({"a": 5, "b": 3, "c": 2}, 4) == {"a": 2, "b": 1, "c": 1}  # 2.0, 1.2, 0.8
    assert apportion({"a": 1, "b": 1, "c": 1}, 2) == {"a": 1, "b": 1, "c": 0}
    assert apportion({"x": 12_000, "y": 32}, 1_000) == {"x": 997, "y": 3}  # 997.3, 2.7


def test_a_stratified_draw_keeps_the_shares() -> None:
    some = draw_rows(ROWS, 40, seed=1, same=by_question, stratify="level")
    assert [row["level"] for row in some].count("hard") == 10
    with pytest.raises(BadInput, match="--stratify type: a row without it, which has level"):
        draw_rows(ROWS, 40, seed=1, same=by_question, stratify="type")


def test_what_is_held_out_and_what_comes_twice_is_left_out_with_its_reason() -> None:
    rows = [{"question": text} for text in ("Who was it?", "who was IT", "When?", "Where?")]
    kept, left = drop_duplicates(rows, same=by_question, twin=by_question, held={"where": "eval/x.jsonl"})
    assert names(kept) == ["Who was it?", "When?"]
    assert [(rejection.row["question"], rejection.why, rejection.of) for rejection in left] == [
        ("who was IT", "repeated", "this file"),
        ("Where?", "in_evaluation", "eval/x.jsonl"),
    ]


def test_word_triples() -> None:
    assert shingles("Who, was THE first?") == [b"who was the", b"was the first"]
    assert shingles("Who was") == [b"who", b"was"] and shingles("?!") == []


def test_nearly_the_same_words_are_found_by_minhash() -> None:
    words = "in which year did the first lighthouse keeper of the northern island leave his post for good and why"
    near = words.replace("for good and why", "for good and where")  # 16 of 18 triples are shared: Jaccard 0.89
    other = "what is the highest mountain that nobody has climbed from its southern side in winter so far"
    rows = [{"question": text} for text in (near, other, other + " alone", "who", "who")]
    with Bar() as show:
        kept, left = drop_near_duplicates(
            rows, text=by_question, held=[(words, "eval/x.jsonl")], threshold=0.7, show=show
        )
    assert [(rejection.why, rejection.of) for rejection in left] == [
        ("near", "eval/x.jsonl"),
        ("near", "this file"),
        ("near", "this file"),
    ]
    assert names(kept) == [other, "who"]
