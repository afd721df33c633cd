"""envs.rewards.maths.units, .measure and .quantity: numbers with what stands behind them."""

from fractions import Fraction

import pytest

from envs.rewards.maths.measure import conversion_factor, parse_measure
from envs.rewards.maths.quantity import parse_quantity
from envs.rewards.maths.units import same_unit, split_unit


@pytest.mark.parametrize(
    ("unit", "to", "factor"),
    [
        ("km", "m", Fraction(1000)),
        ("km/h", "m s^-1", Fraction(5, 18)),
        ("N", "kg m/s2", Fraction(1)),
        ("J", "N m", Fraction(1)),
        ("ohm", "V/A", Fraction(1)),
        ("F", "C/V", Fraction(1)),
        ("W", "J/s", Fraction(1)),
        ("T", "Wb/m2", Fraction(1)),
        ("H", "V s/A", Fraction(1)),
        ("kWh", "MJ", Fraction(18, 5)),
        ("L", "cm3", Fraction(1000)),
        ("kilometers", "m", Fraction(1000)),
        ("ft", "in", Fraction(12)),
        ("mi", "yd", Fraction(1760)),
        ("day", "h", Fraction(24)),
        ("year", "month", Fraction(12)),
        ("J/(mol K)", "J mol^-1 K^-1", Fraction(1)),
        ("m", "s", None),
        ("J/mol K", "J/(mol K)", None),
        ("egg", "egg", None),
    ],
)
def test_units_are_converted_exactly(unit: str, to: str, factor: Fraction | None) -> None:
    assert conversion_factor(unit, to) == factor


def test_a_prefix_is_a_power_of_ten() -> None:
    powers = {"P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "d": -1, "c": -2, "m": -3, "u": -6, "n": -9, "p": -12, "f": -15}
    assert {prefix: conversion_factor(f"{prefix}V", "V") for prefix in powers} == {
        prefix: Fraction(10) ** power for prefix, power in powers.items()
    }
    names = {
        "peta": 15,
        "tera": 12,
        "giga": 9,
        "mega": 6,
        "kilo": 3,
        "micro": -6,
        "nano": -9,
        "pico": -12,
        "femto": -15,
    }
    assert all(conversion_factor(f"{name}volts", "V") == Fraction(10) ** power for name, power in names.items())


@pytest.mark.parametrize("unit", ["", "/", "m/", "m//s", "(m)", "m/((s))", "m)", "m eggs", "m m m m m m m m m", "9"])
def test_what_is_no_product_of_units(unit: str) -> None:
    assert parse_measure(unit) is None


@pytest.mark.parametrize(
    ("text", "body", "unit"),
    [
        (r"6\pi \text{ cm}^2", r"6\pi", "cm2"),
        (r"6\text{ m}\cdot\text{s}^{-1}", "6", "m s^-1"),
        ("-\u00a45", "-5", "$"),
        ("18 red eggs", "18", "red egg"),
        ("\u00a45 dollars", "5", "$"),
        ("-\u00a45 dollars per hour", "-5", "$/h"),
        ("\u00a45 per hour", "5", "$/h"),
        ("\u00a45 cm", "\u00a45 cm", ""),
        ("\u00a35 euros", "\u00a35 euros", ""),
        ("12\u20ac", "12", "euro"),
        ("7 boxes", "7", "box"),
        ("7 berries", "7", "berry"),
        ("5 ties", "5", "tie"),
        ("5 glasses", "5", "glass"),
        ("5 gas", "5", "gas"),
        ("5 miles per hour", "5", "mi/h"),
        ("12 square feet", "12", "ft2"),
        ("7 double", "7 double", ""),
        ("1 egg", "1", "egg"),
        ("5 m", "5 m", ""),
        ("3abc", "3abc", ""),
        ("5cm", "5", "cm"),
        ("5 the eggs", "5 the eggs", ""),
        ("5 eggs or", "5 eggs or", ""),
    ],
)
def test_a_number_and_its_unit(text: str, body: str, unit: str) -> None:
    assert split_unit(text) == (body, unit)


def test_one_unit_may_say_more_than_the_other() -> None:
    for more, less in (("cup of flour", "cup"), ("red ball", "ball"), ("$/h", "$"), ("cm", "")):
        assert same_unit(more, less) and same_unit(less, more)
    for unit, other in (("cup of flour", "cup of milk"), ("red ball", "blue ball"), ("cm", "cm2"), ("$", "euro")):
        assert not same_unit(unit, other) and not same_unit(other, unit)


@pytest.mark.parametrize(
    ("text", "value", "decimals", "unit"),
    [
        ("1,234.50", Fraction("1234.5"), 2, ""),
        ("-2 1/3", Fraction(-7, 3), None, ""),
        (r"0.1\overline{6}", Fraction(1, 6), None, ""),
        (r"3\times 10^{-2}", Fraction(3, 100), None, ""),
        ("12%", Fraction(12), 0, "%"),
        ("2 h 30 min", Fraction(150), None, "min"),
        ("1 day 2 h 3 min", Fraction(1563), None, "min"),
    ],
)
def test_numbers_are_read_exactly(text: str, value: Fraction, decimals: int | None, unit: str) -> None:
    number = parse_quantity(text)
    assert number is not None and (number.value, number.decimals, number.unit) == (value, decimals, unit)


@pytest.mark.parametrize("text", ["", "1/0", "x", "2 h 3 kg", "30 min 2 h", "2 h 2 h", "1" * 201 + ".", "5 of"])
def test_what_is_no_number(text: str) -> None:
    assert parse_quantity(text) is None
