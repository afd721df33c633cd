"""envs.rewards.maths.chinese: numerals, days and hours in Chinese, against a speller of the test's own."""

import pytest

from envs.rewards.maths.chinese import spell_out

DIGITS = "零一二三四五六七八九"
YEAR = "January February March April May June July August September October November December"


def spelled(number: int) -> str:
    """105 is 一百零五, 12 is 十二."""
    numeral, gap = "", False
    for size, place in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, size)
        if digit:
            numeral += "零" * (gap and bool(numeral)) + DIGITS[digit] + place
        gap = not digit
    return numeral.removeprefix("一") if numeral.startswith("一十") else numeral


def test_numerals_before_what_is_counted_are_digits() -> None:
    numbers = [*range(1, 130), *range(130, 10_000, 97)]
    assert [spell_out(f"{spelled(number)}人") for number in numbers if len(spelled(number)) <= 7] == [
        spell_out(f"{number}人") for number in numbers if len(spelled(number)) <= 7
    ]
    assert spell_out("一百零五") == "105" and spell_out("两百") == "200" and spell_out("零") == "0"


@pytest.mark.parametrize("text", ["五五", "一心", "三角形", "二十一世纪"])
def test_what_only_begins_like_a_numeral_stays_as_it_is(text: str) -> None:
    assert spell_out(text) == text


@pytest.mark.parametrize(
    ("size", "power"), [("百", 2), ("千", 3), ("万", 4), ("百万", 6), ("千万", 7), ("亿", 8), ("万亿", 12)]
)
def test_sizes_behind_digits_are_powers_of_ten(size: str, power: int) -> None:
    assert spell_out(f"5{size}") == rf"5\cdot 10^{{{power}}}"


def test_days_and_hours_are_those_of_an_english_text() -> None:
    for number, name in enumerate(YEAR.split(), 1):
        assert spell_out(f"{number}月4日") == f"{name} 4" and spell_out(f"2020年{number}月31号") == f"{name} 31 2020"
    assert [spell_out(f"{number}月4日") for number in (0, 13)] == ["month 4", "month 4"]  # no day at all
    for half, english in (
        ("上午", " AM"),
        ("早上", " AM"),
        ("凌晨", " AM"),
        ("下午", " PM"),
        ("晚上", " PM"),
        ("", ""),
    ):
        assert spell_out(f"{half}3点") == f"3:00{english}" and spell_out(f"{half}11点05分") == f"11:05{english}"


def test_a_text_is_spelled_otherwise_up_to_four_hundred_characters() -> None:
    assert spell_out("三" + " " * 397 + "。") == "3" and spell_out("三" + " " * 399 + "。").startswith("三")
