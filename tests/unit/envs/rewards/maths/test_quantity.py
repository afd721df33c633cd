"""envs.rewards.maths.quantity: what a number is worth, and which numbers stand for each other."""

from fractions import Fraction

import pytest

from envs.rewards.maths.quantity import Quantity, parse_quantity, same_quantity


@pytest.mark.parametrize(
    ("text", "value", "decimals"),
    [
        ("0", Fraction(0), 0),
        ("-17", Fraction(-17), 0),
        ("+3", Fraction(3), 0),
        (".5", Fraction(1, 2), 1),
        ("5.", Fraction(5), 0),
        ("3.140", Fraction(157, 50), 3),
        ("3e5", Fraction(300_000), None),
        ("2.5E-3", Fraction(1, 400), None),
        (r"-3\cdot 10^{2}", Fraction(-300), None),
        ("7/4", Fraction(7, 4), None),
        ("7/-4", Fraction(-7, 4), None),
        (r"-\frac{6}{4}", Fraction(-3, 2), None),
        (r"\frac{1.5}{3}", Fraction(1, 2), None),
        (r"2\frac{1}{3}", Fraction(7, 3), None),
        ("-1 1/4", Fraction(-5, 4), None),
        (r"0.\overline{3}", Fraction(1, 3), None),
        (r"0.\overline{12}", Fraction(4, 33), None),
        (r"1.2\overline{34}", Fraction(611, 495), None),
        (r"-0.1\bar6", Fraction(-1, 6), None),
        ("12,345.5", Fraction(24_691, 2), 1),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction, decimals: int | None) -> None:
    assert parse_quantity(text) == Quantity(value, decimals, "")


def test_a_number_has_two_hundred_characters_at_most() -> None:
    assert (
        parse_quantity("1" * 199 + ".") == Quantity(Fraction("1" * 199), 0, "")
        and parse_quantity("1" * 200 + ".") is None
    )


@pytest.mark.parametrize(
    ("given", "gold", "same"),
    [
        ("50%", "1/2", True),
        ("1/2", "50%", True),
        ("50%", "50", True),
        ("50", "50%", True),
        ("1", "1%", True),
        ("1%", "1", False),  # there the sign is a factor
        ("1.01%", "1.01", True),
        ("0.5", "0.5%", False),
        ("0.5%", "0.5", False),
        ("-1", "-1%", True),
        ("-1%", "-1", False),
        ("50%", "50 cm", False),
        ("50%", "51%", False),
        ("5 km", "5000 m", True),
        ("5 km", "5 m", False),
        ("5 km", "5 kg", False),
        ("5 km", "5", True),
    ],
)
def test_a_percent_sign_and_a_unit(given: str, gold: str, same: bool) -> None:
    def read(text: str) -> Quantity:
        body, _, unit = text.partition(" ")
        number = parse_quantity(body)
        assert number is not None
        return Quantity(number.value, number.decimals, unit or number.unit)

    assert same_quantity(read(given), read(gold)) is same


@pytest.mark.parametrize(
    ("decimal", "exact", "same"),
    [
        ("0.333333", "1/3", True),
        ("0.333334", "1/3", False),
        ("0.33333", "1/3", False),  # too short to tell
        ("0.666667", "2/3", True),
        ("0.666666", "2/3", False),
        ("0.142857", "1/7", True),
        ("0.0833333", "1/12", True),
        ("0.125000", "1/8", True),
        ("0.125001", "1/8", False),
        ("0.3750001", "3/8", False),  # a finite decimal would be exact
        ("0.0312501", "1/32", False),
        ("0.0400001", "1/25", False),
        ("0.333333", "0.3333333", False),
    ],
)
def test_a_decimal_that_ends_nowhere_may_be_rounded(decimal: str, exact: str, same: bool) -> None:
    rounded, precise = parse_quantity(decimal), parse_quantity(exact)
    assert rounded is not None and precise is not None
    assert same_quantity(rounded, precise) is same_quantity(precise, rounded) is same


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2 h 30 min", Quantity(Fraction(150), None, "min")),
        ("1 min 1 s", Quantity(Fraction(61), None, "s")),
        ("5 ft 6 in", Quantity(Fraction(66), None, "in")),
        ("1 h 1.5 min", Quantity(Fraction("61.5"), None, "min")),
        ("6 in 5 ft", None),
        ("2 h 30", None),
        ("2 h 30 kg", None),
        ("2 h 1 h", None),
        ("2 h", Quantity(Fraction(2), 0, "h")),
    ],
)
def test_amounts_in_several_units_are_one_in_the_smallest(text: str, found: Quantity | None) -> None:
    spelled = text if text != "2 h" else r"2 \text{ h}"
    assert parse_quantity(spelled) == found
