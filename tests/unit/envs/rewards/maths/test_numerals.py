"""envs.rewards.maths.numerals: numbers in words and in other bases, against a speller of the test's own."""

import pytest

from envs.rewards.maths.compare import decide
from envs.rewards.maths.numerals import parse_based, parse_ordinal, same_based, write_in_digits

WORDS = """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen
    twenty thirty forty fifty sixty seventy eighty ninety
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
    sixteenth seventeenth eighteenth nineteenth twentieth
"""
ONES, TENS, ORDINALS = WORDS.split()[:19], WORDS.split()[19:27], WORDS.split()[27:]
SIZES = {10**12: "trillion", 10**9: "billion", 10**6: "million", 1000: "thousand", 100: "hundred"}


def spelled(number: int, link: str = " ") -> str:
    """As it is spoken: `two hundred and five` where the link is " and "."""
    for size, name in SIZES.items():
        if number >= size:
            above, rest = divmod(number, size)
            return f"{spelled(above, link)} {name}" + (link + spelled(rest, link) if rest else "")
    if number >= 20:
        tens, ones = divmod(number, 10)
        return TENS[tens - 2] + (f"-{ONES[ones - 1]}" if ones else "")
    return ONES[number - 1] if number else "zero"


def test_numbers_in_words_are_those_in_digits() -> None:
    numbers = [*range(120), *range(120, 1100, 7), *(size + more for size in SIZES for more in (-1, 0, 1))]
    numbers += [12_345, 900_019, 5_000_000, 7_000_000_012, 20_000_000_000_000]
    short = [number for number in numbers if len(spelled(number).replace("-", " ").split()) <= 12]
    assert len(short) > 250
    assert [write_in_digits(spelled(number)) for number in short] == [str(number) for number in short]
    assert write_in_digits(spelled(305, " and ")) == "305" and write_in_digits(spelled(2_000_017, " and ")) == "2000017"
    assert write_in_digits(f"minus {spelled(42)}") == "-42" and write_in_digits("Negative Seven.") == "-7"
    assert write_in_digits("a hundred and five apples") == "105 apples" and write_in_digits("a million") == "1000000"


@pytest.mark.parametrize(
    "text",
    [
        "twenty twelve",
        "twenty ten",
        "five five",
        "ninety-nine one",
        "ten five",
        "one hundred two hundred",
        "two thousand three million",
        "two thousand three thousand",
        "five and six",
        "seven or eight",
        "two less than ten",
        "an apple",
        "and five",
        "minus",
        "two thirds of the red apples there",
        "two large red old apples",
        "five % of it",
        "ten" + " " * 98,
        "5 seventh",
        "2 half",
    ],
)
def test_what_is_no_number_in_words_stays_as_it_is(text: str) -> None:
    assert write_in_digits(text) == text


def test_parts_are_fractions() -> None:
    for value, word in enumerate(ORDINALS[2:], 3):
        assert (
            write_in_digits(f"5 {word}s") == rf"\frac{{5}}{{{value}}}"
            and write_in_digits(f"1 {word}") == rf"\frac{{1}}{{{value}}}"
        )
        assert write_in_digits(f"two {word}s") == rf"\frac{{2}}{{{value}}}"
    assert write_in_digits("two halves") == r"\frac{2}{2}" and write_in_digits("three quarters") == r"\frac{3}{4}"
    assert write_in_digits("a quarter") == r"\frac{1}{4}" and write_in_digits("-3 hundredths") == r"\frac{-3}{100}"
    assert (
        write_in_digits("minus two thirds") == r"-\frac{2}{3}"
        and write_in_digits("one half cups") == r"\frac{1}{2} cups"
    )


def test_places_are_counted() -> None:
    for value, word in enumerate(ORDINALS, 1):
        assert parse_ordinal(word) == value
        if value < 10:
            assert [parse_ordinal(f"{ten}-{word}") for ten in TENS] == [10 * at + value for at in range(2, 10)]
    assert [parse_ordinal(f"{ten[:-1]}ieth") for ten in TENS] == list(range(20, 100, 10))
    assert [parse_ordinal(text) for text in ("1st", "2nd", "3^{rd}", "14 th", "123456th")] == [1, 2, 3, 14, 123456]
    assert [parse_ordinal(text) for text in ("twenty tenth", "ten first", "twenty", "twenty-one first", "", "th")] == [
        None
    ] * 6


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1101_2", ("1101", 2)),
        (r"(1101)_{two}", ("1101", 2)),
        (r"1101_{\text{two}}", ("1101", 2)),
        ("1101 (base 2)", ("1101", 2)),
        ("0b1101", ("1101", 2)),
        ("0o17", ("17", 8)),
        ("0x1f", ("1F", 16)),
        ("0011_2", ("11", 2)),
        ("000_2", ("0", 2)),
        ("Z9_{36}", ("Z9", 36)),
        ("2a_{16}", ("2A", 16)),
        ("FF_{16}", ("FF", 16)),
        ("F_{16}", None),
        ("a_{12}", None),
        ("12_2", None),
        ("19_9", None),
        ("18_9", ("18", 9)),
        ("1_1", None),
        ("10_{37}", None),
        ("0b12", None),
        ("12", None),
        ("12_{some}", None),
    ],
)
def test_digits_and_their_base(text: str, found: tuple[str, int] | None) -> None:
    assert parse_based(text) == found


def test_a_base_may_be_left_out_where_the_key_names_it() -> None:
    assert same_based("11_2", "11") is same_based("2024_5", "2024") is False
    assert same_based("11_{10}", "11") is same_based("01101", "1101_2") is same_based(r"\text{ff}", "FF_{16}") is True
    assert same_based("1101_2", "1101_3") is same_based("1101_2", "1100") is same_based("11_2", "3") is False
    assert same_based("11", "11") is None


def test_numbers_with_a_part() -> None:
    assert [
        write_in_digits(text) for text in ("five and a half", "5 and a half", "two and three-quarters", "half")
    ] == [
        r"\frac{11}{2}",
        r"5\frac{1}{2}",
        r"\frac{11}{4}",
        r"\frac{1}{2}",
    ]
    assert write_in_digits("half of the cake") == r"\frac{1}{2} of the cake"
    assert write_in_digits("one and five halves") == "one and five halves"


def test_a_base_that_the_question_names_may_stand_behind_the_answer() -> None:
    for question in ("What is 1358 in base $8$?", "Write 1358 in base eight.", "the base-8 number", "1358 in octal"):
        assert decide("2516_8", ["2516"], question) is True
        assert decide("2516_9", ["2516"], question) is False
        assert decide("2561_8", ["2516"], question) is False
    assert decide("2516_8", ["2516"], "What is it?") is False
