"""envs.rewards.length: Long CoT's cosine reward and its Algorithm 1 (arXiv 2502.03373) by hand."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.rewards.length import cosine_reward, ngram_penalty

DEFAULT = dict(max_length=14336, r0_correct=2, rL_correct=1, r0_wrong=-10, rL_wrong=0, exceed=-10, margin=16)


@pytest.mark.parametrize(
    ("length", "correct", "wrong"),
    [
        (0, 2.0, -10.0),
        (3584, 1.853553, -8.535534),
        (7168, 1.5, -5.0),
        (10752, 1.146447, -1.464466),
        (14320, -10.0, -10.0),
        (14336, -10.0, -10.0),
        (20000, -10.0, -10.0),
    ],
)
def test_the_authors_values(length: int, correct: float, wrong: float) -> None:
    assert cosine_reward(True, length, **DEFAULT) == pytest.approx(correct, abs=1e-6)
    assert cosine_reward(False, length, **DEFAULT) == pytest.approx(wrong, abs=1e-6)


def test_the_margin_is_where_the_limit_is_seen() -> None:
    assert cosine_reward(True, 14319, **DEFAULT) == pytest.approx(1.0, abs=1e-4)
    literal = DEFAULT | {"margin": 0}
    assert cosine_reward(True, 14335, **literal) == pytest.approx(1.0, abs=1e-6)
    assert cosine_reward(True, 14336, **literal) == -10


@given(st.integers(0, 14319), st.integers(0, 14319), st.booleans())
def test_shorter_is_better_when_right_and_worse_when_wrong(a: int, b: int, correct: bool) -> None:
    short, long = sorted((a, b))
    first, second = cosine_reward(correct, short, **DEFAULT), cosine_reward(correct, long, **DEFAULT)
    assert first >= second if correct else first <= second


def algorithm_1(tokens: Sequence[int], n: int, penalty: float) -> list[float]:
    rewards, seen = [0.0] * len(tokens), set()
    for j in range(len(tokens) - n + 1):
        gram = tuple(tokens[j : j + n])
        if gram in seen:
            rewards[j : j + n] = [penalty] * n
        seen.add(gram)
    return rewards


def test_worked_sequences() -> None:
    p = -0.05
    assert ngram_penalty([1, 2, 3, 1, 2, 3, 4], n=2, penalty=p) == [0, 0, 0, p, p, p, 0]
    twice = ngram_penalty([*range(40), *range(40)], n=40, penalty=p)
    assert twice == [0.0] * 40 + [p] * 40 and sum(twice) == pytest.approx(-2.0)
    assert ngram_penalty([1, 2, 3], n=40, penalty=p) == [0, 0, 0]
    assert ngram_penalty([], n=40, penalty=p) == []
    assert ngram_penalty([7] * 5, n=2, penalty=p) == [0, p, p, p, p]
    assert ngram_penalty([7, 8, 7], n=1, penalty=p) == [0, 0, p]


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 12))
def test_it_is_algorithm_1(tokens: list[int], n: int) -> None:
    assert ngram_penalty(tokens, n=n, penalty=-1.0) == algorithm_1(tokens, n, -1.0)


def test_a_gram_has_a_length() -> None:
    with pytest.raises(ValueError, match="n=0"):
        ngram_penalty([1], n=0, penalty=-1)
