"""envs.rewards.maths.text: what stands for a number or a sign, in the words of the two sides."""

import pytest

from envs.rewards.maths.compare import equivalent
from envs.rewards.maths.text import clean, flatten, is_prose, split_name


@pytest.mark.parametrize(
    ("word", "worth"),
    [
        *(("hundred", 10**2), ("thousand", 10**3), ("million", 10**6), ("billion", 10**9), ("trillion", 10**12)),
        *(("lakh", 10**5), ("crore", 10**7), ("mn", 10**6), ("bn", 10**9)),
        *(("dozen", 12), ("gross", 144), ("score", 20)),
    ],
)
def test_a_word_of_size_multiplies_the_number_before_it(word: str, worth: int) -> None:
    assert equivalent(f"3 {word}", str(3 * worth)) and not equivalent(f"3 {word}", str(3 * worth + 1))


@pytest.mark.parametrize(
    ("letters", "worth"), [("k", 10**3), ("K", 10**3), ("m", 10**6), ("M", 10**6), ("b", 10**9), ("B", 10**9)]
)
def test_a_letter_of_size_is_for_money_alone(letters: str, worth: int) -> None:
    assert equivalent(rf"\$5{letters}", rf"\${5 * worth}") and not equivalent(f"5{letters}", str(5 * worth))


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("x = 5", "x", "5"),
        (r"x \in [1,2]", "x", "[1,2]"),
        ("x = y = 5", "", "x = y = 5"),
        ("x =", "", "x ="),
        ("5", "", "5"),
    ],
)
def test_a_name_and_its_value(text: str, name: str, value: str) -> None:
    assert split_name(text) == (name, value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no", True),
        ("No", True),
        ("Monday", True),
        ("x + y", False),
        (r"\sin x", False),
        ("sin(x)", False),
        ("", False),
    ],
)
def test_words_that_no_mathematics_is_made_of(text: str, expected: bool) -> None:
    assert is_prose(clean(text)) is expected


def test_what_separates_nothing_does_not_tell_texts_apart() -> None:
    assert flatten(r"5 \text{ cm}") == flatten("5  cm") and flatten("a b") != flatten("ac b")
