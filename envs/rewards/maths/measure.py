"""Units of measurement: `m/s^2` and `m\\cdot s^{-2}` are one, `3.6 km` is 3600 m.

Exact, and without temperatures, whose zeros differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

MAX_FACTORS = 8
Powers = tuple[tuple[str, int], ...]

_PREFIXES = {
    "P": 15, "T": 12, "G": 9, "M": 6, "k": 3, "h": 2, "d": -1, "c": -2, "m": -3, "u": -6, "n": -9, "p": -12, "f": -15
}  # fmt: skip
_LONG = {
    "peta": 15, "tera": 12, "giga": 9, "mega": 6, "kilo": 3, "deci": -1, "centi": -2, "milli": -3, "micro": -6,
    "nano": -9, "pico": -12, "femto": -15,
}  # fmt: skip
# What takes a prefix: in other units, as `factor unit^power unit^power`; by itself, where it is a base.
_SYMBOLS = {
    "m": "1 m", "g": "1 g", "s": "1 s", "A": "1 A", "K": "1 K", "mol": "1 mol", "cd": "1 cd", "bit": "1 bit",
    "l": "1/1000 m^3", "N": "1000 g m s^-2", "J": "1000 g m^2 s^-2", "W": "1000 g m^2 s^-3",
    "Wh": "3600000 g m^2 s^-2", "Pa": "1000 g m^-1 s^-2",
    "Hz": "1 s^-1", "C": "1 A s", "V": "1000 g m^2 s^-3 A^-1", "ohm": "1000 g m^2 s^-3 A^-2",
    "F": "1/1000 g^-1 m^-2 s^4 A^2", "T": "1000 g s^-2 A^-1", "Wb": "1000 g m^2 s^-2 A^-1",
    "H": "1000 g m^2 s^-2 A^-2", "S": "1/1000 g^-1 m^-2 s^3 A^2", "Bq": "1 s^-1", "eV": "1 eV",
    "bar": "100000000 g m^-1 s^-2",
    "B": "8 bit", "cal": "1 cal", "pc": "1 pc",
}  # fmt: skip
_PLAIN = {
    "min": "60 s", "h": "3600 s", "day": "86400 s", "week": "604800 s", "month": "1 month", "year": "12 month",
    "in": "254/10000 m", "ft": "3048/10000 m", "yd": "9144/10000 m", "mi": "1609344/1000 m",
    "lb": "1 lb", "oz": "1/16 lb", "gal": "1 gal", "quart": "1/4 gal", "pint": "1/8 gal", "cup": "1/16 gal",
    "$": "1 $", "cent": "1/100 $", "euro": "1 euro", "pound sterling": "1 gbp", "pence": "1/100 gbp",
    "yuan": "1 yuan", "jiao": "1/10 yuan",
    "atm": "1 atm", "t": "1000000 g", "ha": "10000 m^2", "AU": "1 AU", "u": "1 u", "dB": "1 dB", "M": "1000 m^-3 mol",
    "decade": "120 month", "century": "1200 month",
}  # fmt: skip
_NAMES = {
    "m": "meter metre", "g": "gram gramme", "s": "sec second", "A": "amp ampere", "K": "kelvin", "mol": "mole",
    "l": "L liter litre", "N": "newton", "J": "joule", "W": "watt", "Pa": "pascal", "Hz": "hertz", "C": "coulomb",
    "V": "volt", "ohm": "\u03a9", "F": "farad", "T": "tesla", "Wb": "weber", "H": "henry", "S": "siemens",
    "bit": "bits", "B": "byte", "eV": "electronvolt", "Bq": "becquerel", "cd": "candela", "cal": "calorie",
}  # fmt: skip
_FULL = {name: symbol for symbol, names in _NAMES.items() for name in names.split()}
_FACTOR = re.compile(r"(?P<name>[A-Za-z$\u03a9]+(?: sterling)?)\s?\^?(?P<power>-?[0-9])?")
_MARKS = re.compile(r"\s*([/()])\s*|\s+")


@dataclass(frozen=True, slots=True)
class Measure:
    """`km/h`: Measure(Fraction(5, 18), (("m", 1), ("s", -1)))"""

    factor: Fraction
    powers: Powers


@lru_cache(maxsize=1024)
def parse_measure(unit: str) -> Measure | None:
    """The measure of a unit such as `m s^-2`, `m/s2`, `J/(mol K)`; None where a name is not known."""
    factor, powers = Fraction(1), dict[str, int]()
    below = inside = False  # of the last slash, and in the brackets behind it
    factors = 0
    at = 0
    unit = unit.strip()
    while at < len(unit):
        mark = _MARKS.match(unit, at)
        if mark is not None:
            if mark[1] == "/":
                if below:
                    return None
                below = True
            elif mark[1]:
                if not below or inside is (mark[1] == "("):
                    return None
                below = inside = mark[1] == "("
            at = mark.end()
            continue
        match = _FACTOR.match(unit, at)
        part = _find_unit(match["name"]) if match is not None else None
        factors += 1
        if match is None or part is None or factors > MAX_FACTORS:
            return None
        power = int(match["power"] or 1) * (-1 if below else 1)
        below = below and inside
        factor *= part.factor**power
        for name, exponent in part.powers:
            powers[name] = powers.get(name, 0) + exponent * power
        at = match.end()
    return _make_measure(factor, powers) if factors and not below else None


def _make_measure(factor: Fraction, powers: dict[str, int]) -> Measure:
    return Measure(factor, tuple(sorted((name, power) for name, power in powers.items() if power)))


def _find_unit(name: str) -> Measure | None:
    if name in _PLAIN:
        return _parse_base_units(_PLAIN[name])
    for size, symbol in ((0, name), *((_PREFIXES[p], name[1:]) for p in _PREFIXES if name[:1] == p)):
        if symbol in _SYMBOLS and not (size and name in ("cd", "Pa")):
            return _scale_unit(symbol, size)
    low = name if name in _FULL else name.lower().removesuffix("s") if len(name) > 3 else ""
    for word, size in (("", 0), *_LONG.items()):
        if low.startswith(word) and low[len(word) :] in _FULL:
            return _scale_unit(_FULL[low[len(word) :]], size)
        if word and name.startswith(word) and name[len(word) :] in _FULL:
            return _scale_unit(_FULL[name[len(word) :]], size)
    return None


def _scale_unit(symbol: str, size: int) -> Measure:
    definition = _parse_base_units(_SYMBOLS[symbol])
    return Measure(definition.factor * Fraction(10) ** size, definition.powers)


def _parse_base_units(text: str) -> Measure:
    """Of `1000 g m s^-2`: what stands in the tables is in base units."""
    factor, *parts = text.split()
    split = [part.partition("^") for part in parts]
    return Measure(Fraction(factor), tuple(sorted((name, int(power or 1)) for name, _, power in split)))


def conversion_factor(unit: str, to: str) -> Fraction | None:
    """What a number of one unit is multiplied by to be one of the other: `km` to `m` 1000; None where they measure
    different things."""
    ours, theirs = parse_measure(unit), parse_measure(to)
    if ours is None or theirs is None or ours.powers != theirs.powers:
        return None
    return ours.factor / theirs.factor
