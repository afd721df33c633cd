"""Bounded real arithmetic for the calculator: exact rationals, and 60 digits where a result is irrational.

A value is an int, a Fraction, or mpmath's mpf (SymPy computes with the same). Three rules keep it honest and small:

* An exact value longer than MAX_BITS becomes an mpf. What an operation would make is bounded before it is made.
* An mpf that is a whole number to 40 digits becomes that whole number: `sqrt(2)**2` is 2 and `floor(log(8, 2))` is 3.
* A sum (or sine) of mpf that is 0 to 40 digits relative to its terms is 0: `sin(pi)` is 0. What is left of a sum that
  does not vanish has 20 good digits at least, enough for the float that is shown in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any, TypeAlias

from mpmath.ctx_mp import MPContext  # type: ignore[import-untyped]

MAX_BITS = 4096  # of an exact numerator or denominator
MAX_COUNTED_BITS = 32_768  # of a factorial, binomial or number of arrangements, before it is computed
MAX_LOG = 1_000_000  # of a result's natural logarithm, either way
MAX_ARGUMENT = 10**20  # of sin, cos, tan and of an exponent: 60 digits less 20 are left
MAX_PLACES = 30  # of round(x, places)

Value: TypeAlias = int | Fraction | Any  # Any is mpf: mpmath has no types

_CONTEXT = MPContext()  # its own: other code in the process may set the precision of `mpmath.mp`
_CONTEXT.dps = 60
_PI = +_CONTEXT.pi
_NEGLIGIBLE = _CONTEXT.mpf(10) ** -40
_WHOLE_BELOW = _CONTEXT.mpf(10) ** 20


class NoValue(Exception):
    """The expression has no value; the text says why in a few words."""


def _is_exact(*values: Value) -> bool:
    return all(isinstance(value, (int, Fraction)) for value in values)


def _is_whole(value: Value) -> bool:
    return _is_exact(value) and value.denominator == 1


def _real(value: Value) -> Any:
    """The mpf nearest to a value."""
    return _CONTEXT.mpf(value.numerator) / value.denominator if _is_exact(value) else value


def _simplify(value: Value, scale: Any = 0) -> Value:
    """What a computation gave: exact while short; of an mpf 0 where it vanishes against `scale`, an int if whole."""
    if _is_exact(value):
        long = max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS
        return _real(value) if long else value
    size = abs(value)
    if size <= scale * _NEGLIGIBLE:
        return 0
    if 0.5 < size < _WHOLE_BELOW:
        nearest = _CONTEXT.nint(value)
        if abs(value - nearest) < size * _NEGLIGIBLE:
            return int(nearest)
    return value


def _add(left: Value, right: Value) -> Value:
    if _is_exact(left, right):
        return _simplify(left + right)
    left, right = _real(left), _real(right)
    return _simplify(left + right, max(abs(left), abs(right)))


def _multiply(left: Value, right: Value) -> Value:
    return _simplify(left * right if _is_exact(left, right) else _real(left) * _real(right))


def _divide(left: Value, right: Value) -> Value:
    if right == 0:
        raise ZeroDivisionError
    return _simplify(Fraction(left, right) if _is_exact(left, right) else _real(left) / _real(right))


def _floor(value: Value) -> Value:
    """The whole number at or below."""
    return math.floor(value) if _is_exact(value) else _simplify(_CONTEXT.floor(value))


def _remainder(left: Value, right: Value) -> Value:
    """With the divisor's sign, as in Python: `-7 % 3` is 2."""
    if right == 0:
        raise ZeroDivisionError
    if _is_exact(left, right):
        return left % right
    return _add(left, -_multiply(right, _floor(_divide(left, right))))


def _power(base: Value, exponent: Value) -> Value:
    whole = _is_whole(exponent)
    if base == 0:
        if exponent < 0:
            raise ZeroDivisionError
        return 1 if exponent == 0 else 0
    if base < 0 and not whole:
        raise NoValue("fractional power of a negative number")
    odd = whole and exponent.numerator % 2 == 1
    if base in (1, -1):
        return base if odd else 1
    if whole and _is_exact(base):
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if bits * abs(exponent.numerator) <= MAX_BITS:  # the size of an exact result is known before it is computed
            return Fraction(base) ** exponent.numerator
    if abs(exponent) > MAX_ARGUMENT:
        raise NoValue("exponent too large")
    size = _exponential(_real(exponent) * _CONTEXT.ln(abs(_real(base))))
    return -size if base < 0 and odd else size


def _exponential(value: Value) -> Value:
    if value > MAX_LOG:
        raise OverflowError
    return _simplify(_CONTEXT.exp(_real(value))) if value > -MAX_LOG else 0


def _logarithm(value: Value, base: Value | None = None) -> Value:
    """Natural without a base."""
    if value <= 0:
        raise NoValue("logarithm of a number that is not positive")
    natural = _simplify(_CONTEXT.ln(_real(value)))
    return natural if base is None else _divide(natural, _logarithm(base))


def _root(value: Value, degree: Value) -> Value:
    """The real root: of a negative number where the degree is odd."""
    if not _is_whole(degree) or not 1 <= degree <= MAX_BITS:
        raise NoValue(f"a root's degree is a whole number from 1 to {MAX_BITS}")
    degree = degree.numerator
    if value < 0:
        if degree % 2 == 0:
            raise NoValue("square root of a negative number" if degree == 2 else "even root of a negative number")
        return -_root(-value, degree)
    if degree == 2 and _is_exact(value):
        roots = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if (roots[0] ** 2, roots[1] ** 2) == (value.numerator, value.denominator):
            return Fraction(*roots)
    return _power(value, Fraction(1, degree))


def _round(value: Value, places: Value = 0) -> Value:
    """Halves go to the even neighbour, as in Python: `round(2.5)` is 2."""
    if not _is_whole(places) or abs(places) > MAX_PLACES:
        raise NoValue(f"round takes a number and at most {MAX_PLACES} places")
    if _is_exact(value):
        return round(Fraction(value), places.numerator)
    unit = Fraction(10) ** -places.numerator
    count = value / _real(unit)
    if abs(count) >= _WHOLE_BELOW**2:  # of its 60 digits, none of interest stands so far right
        return value
    return _simplify(int(_CONTEXT.nint(count)) * unit)


def _sine_like(name: str, value: Value) -> Value:
    """sin, cos and tan of radians."""
    if abs(value) > MAX_ARGUMENT:
        raise NoValue(f"argument of {name} too large")
    value = _real(value)
    if name == "tan":
        return _divide(_sine_like("sin", value), _sine_like("cos", value))
    scale = max(1, abs(value)) if abs(value) > 1 else 0  # no zeros but 0 itself near 0
    return _simplify(getattr(_CONTEXT, name)(value), scale)


def _require_whole(name: str, values: Sequence[Value]) -> list[int]:
    if not all(map(_is_whole, values)):
        raise NoValue(f"{name} takes whole numbers")
    return [value.numerator for value in values]


def _count_arrangements(name: str, *values: Value) -> Value:
    """A factorial, a number of arrangements or a binomial; its size is known before it is computed."""
    numbers = _require_whole(name, values)
    if min(numbers) < 0:
        raise NoValue(f"{name} takes no negative numbers")
    n, k = numbers[0], numbers[-1]
    bits = min(n, k) * n.bit_length()
    if name == "binomial":
        bits = min(n, min(k, abs(n - k)) * n.bit_length())
    if bits > MAX_COUNTED_BITS:
        raise OverflowError
    return _simplify((math.comb if name == "binomial" else math.perm)(*numbers))


def _inverse_sine_like(name: str, value: Value) -> Value:
    if name != "atan" and abs(value) > 1:
        raise NoValue(f"{name} takes a number from -1 to 1")
    return _simplify(getattr(_CONTEXT, name)(_real(value)))


def _sort(values: Sequence[Value]) -> list[Value]:
    return sorted(values, key=None if _is_exact(*values) else _real)


def _mean(*values: Value) -> Value:
    return _divide(reduce(_add, values), len(values))


OPERATIONS: dict[str, Callable[..., Value]] = {
    **{"+": _add, "-": lambda left, right: _add(left, -right)},
    **{"*": _multiply, "/": _divide, "//": lambda left, right: _floor(_divide(left, right)), "%": _remainder},
    **{"**": _power, "pow": _power, "rational": _divide, "mod": _remainder},
    **{"pi": lambda: _PI, "tau": lambda: 2 * _PI, "e": lambda: +_CONTEXT.e},
    **{"root": _root, "sqrt": lambda value: _root(value, 2), "cbrt": lambda value: _root(value, 3)},
    **{"abs": abs, "floor": _floor, "ceil": lambda value: -_floor(-value), "round": _round},
    **{name: partial(_count_arrangements, name) for name in ("factorial", "binomial", "perm")},
    "gcd": lambda *values: math.gcd(*_require_whole("gcd", values)),
    "lcm": lambda *values: _simplify(math.lcm(*_require_whole("lcm", values))),
    "min": lambda *values: _sort(values)[0],
    "max": lambda *values: _sort(values)[-1],
    "sum": lambda *values: reduce(_add, values),
    "prod": lambda *values: reduce(_multiply, values),
    "mean": _mean,
    "median": lambda *values: _mean(*_sort(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]),
    **{"exp": _exponential, "ln": _logarithm, "log": _logarithm},
    **{"log2": lambda value: _logarithm(value, 2), "log10": lambda value: _logarithm(value, 10)},
    **{name: partial(_sine_like, name) for name in ("sin", "cos", "tan")},
    **{name: partial(_inverse_sine_like, name) for name in ("asin", "acos", "atan")},
    "degrees": lambda value: _divide(_multiply(value, 180), _PI),
    "radians": lambda value: _divide(_multiply(value, _PI), 180),
}
