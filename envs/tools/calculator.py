"""A calculator for text that a model wrote.

    expression  <- numbers, + - * / ** ^ %, signs, parentheses, sqrt abs round min max

Its own tokenizer and precedence-climbing parser over exact rationals, so that `0.1 + 0.2` is `0.3`. Floats take over
where a result is irrational, or too long to keep exactly. Length, nesting and magnitude are bounded: every input is
answered within milliseconds.

* `%` before a number, a name or `(` is the remainder with the divisor's sign; anywhere else it is a percentage:
  `7 % 3` is `1.0`, `20% * 50` is `10.0`, `100% - 20%` is `0.8`.
* A comma groups thousands (`1,080`), except directly inside a function's parentheses, where it separates.
* `-2 ** 2` is `-4.0` and `2 ** 3 ** 2` is `512.0`, as in mathematics.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction

MAX_LENGTH = 512  # characters of an expression
MAX_DEPTH = 48  # nested parentheses, signs and powers
MAX_BITS = 4096  # of an exact numerator or denominator; past it a float takes over
MAX_PLACES = 30  # of round(x, places)

Value = int | Fraction | float

# Explicit [0-9]: \d would accept digits of other scripts.
_NUMBER = re.compile(r"([0-9]+)?(\.[0-9]*)?([eE][+-]?[0-9]{1,3}(?![0-9]))?")
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?")
_NAME = re.compile(r"[A-Za-z_]+")
_SPACE = " \t\n\r"
_SYMBOLS = "+-*/^%(),"
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "**": 4}
_SIGN = 3  # looser than a power, tighter than a product


class _Refused(Exception):
    """The expression has no value; the text says why in a few words."""


def calculate(expression: str) -> str:
    """The text that the model sees: `48 / 2` gives `24.0`, `1 / 0` gives `error: division by zero`. Raises nothing."""
    try:  # the tool's fault boundary: whatever a model writes ends here
        return repr(float(_evaluate(expression)) + 0.0)  # + 0.0 turns -0.0 into 0.0
    except _Refused as refused:
        return f"error: {refused}"
    except ZeroDivisionError:
        return "error: division by zero"
    except OverflowError:
        return "error: result too large"


def _evaluate(expression: str) -> Value:
    if not isinstance(expression, str):
        raise _Refused("not a text")
    if len(expression) > MAX_LENGTH:
        raise _Refused(f"expression longer than {MAX_LENGTH} characters")
    tokens = _tokens(expression)
    if not tokens:
        raise _Refused("empty expression")
    parser = _Parser(tokens)
    value = parser.expression(1)
    if parser.token is not None:
        raise _Refused(f"unexpected {_shown(parser.token)}")
    return value


def _tokens(text: str) -> list[int | Fraction | str]:
    """Numbers as exact values; operators, parentheses, commas and names as text."""
    tokens: list[int | Fraction | str] = []
    in_arguments: list[bool] = []  # one per open parenthesis: does it hold a function's arguments?
    at = 0
    while at < len(text):
        char = text[at]
        if char in _SPACE:
            at += 1
        elif char in "0123456789.":
            grouped = None if in_arguments and in_arguments[-1] else _GROUPED.match(text, at)
            found = grouped or _NUMBER.match(text, at)
            assert found is not None  # every part of _NUMBER is optional
            tokens.append(_number(found.group().replace(",", "")))
            at = found.end()
        elif char in _SYMBOLS:
            if char == "(":
                in_arguments.append(bool(tokens) and isinstance(tokens[-1], str) and tokens[-1].isidentifier())
            elif char == ")" and in_arguments:
                in_arguments.pop()
            double = text.startswith("**", at)
            tokens.append("**" if double or char == "^" else char)
            at += 2 if double else 1
        else:
            name = _NAME.match(text, at)
            if name is None:
                raise _Refused(f"unexpected character {char!a}")
            tokens.append(name.group())
            at = name.end()
    return tokens


def _number(text: str) -> int | Fraction:
    if text.isdigit():
        return int(text)
    if text[0] == "." and not text[1:2].isdigit():
        raise _Refused("unexpected '.'")
    return Fraction(text)


class _Parser:
    """Precedence climbing over a token list: evaluates while it reads. Raises _Refused."""

    def __init__(self, tokens: Sequence[int | Fraction | str]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    @property
    def token(self) -> int | Fraction | str | None:
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    def expression(self, floor: int) -> Value:
        """An operand and every operator after it that binds at least as tightly as `floor`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _Refused("expression nested too deeply")
        value = self._signed() if self.token in ("+", "-") else self._operand()
        while isinstance(self.token, str) and _PRECEDENCE.get(self.token, 0) >= floor:
            operator = self.token
            self._next += 1
            # A power groups to the right, everything else to the left.
            right = self.expression(_PRECEDENCE[operator] + (operator != "**"))
            value = _bounded(_apply(operator, value, right))
        self._depth -= 1
        return value

    def _signed(self) -> Value:
        negative = False
        while self.token in ("+", "-"):
            negative ^= self.token == "-"
            self._next += 1
        value = self.expression(_SIGN)
        return -value if negative else value

    def _operand(self) -> Value:
        token = self.token
        self._next += 1
        if token is None:
            raise _Refused("expression ends too early")
        if not isinstance(token, str):
            value: Value = token
        elif token == "(":
            value = self.expression(1)
            self._close()
        elif token in _FUNCTIONS:
            if self.token != "(":
                raise _Refused(f"expected '(' after {token!r}")
            value = _bounded(_FUNCTIONS[token](token, self._arguments()))
        elif token.isidentifier():
            raise _Refused(f"unknown name {_shown(token)}")
        else:
            raise _Refused(f"unexpected {_shown(token)}")
        while self.token == "%" and not self._operand_follows():
            self._next += 1
            value = _apply("/", value, 100)
        return value

    def _arguments(self) -> list[Value]:
        """The values between the parentheses of a function; the current token is `(`."""
        values: list[Value] = []
        while not values or self.token == ",":
            self._next += 1
            values.append(self.expression(1))
        self._close()
        return values

    def _close(self) -> None:
        if self.token != ")":
            raise _Refused("missing ')'" if self.token is None else f"unexpected {_shown(self.token)}")
        self._next += 1

    def _operand_follows(self) -> bool:
        after = self._tokens[self._next + 1] if self._next + 1 < len(self._tokens) else ")"
        return not isinstance(after, str) or after == "(" or after.isidentifier()


def _shown(token: int | Fraction | str) -> str:
    """A token in an error text, a few characters at most: whole numbers as they are, names and operators in quotes."""
    text = token if isinstance(token, str) else str(token)
    return ascii(text if len(text) <= 20 else text[:17] + "...")


def _bounded(value: Value) -> Value:
    """Exact while short, else a float. Raises OverflowError past a float's range, _Refused for nan."""
    if isinstance(value, float):
        if math.isinf(value):
            raise OverflowError
        if math.isnan(value):
            raise _Refused("not a number")
        return value
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        return float(value)
    return value


def _apply(operator: str, left: Value, right: Value) -> Value:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    if operator == "**":
        return _power(left, right)
    if right == 0:
        raise ZeroDivisionError
    if operator == "%":
        return left % right
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    return Fraction(left, right)


def _power(base: Value, exponent: Value) -> Value:
    if base == 0 and exponent < 0:
        raise ZeroDivisionError
    if base < 0 and exponent != int(exponent):
        raise _Refused("fractional power of a negative number")
    if not isinstance(base, float) and not isinstance(exponent, float) and exponent.denominator == 1:
        times = exponent.numerator
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        # The size of an exact result is known before it is computed.
        if bits * abs(times) <= MAX_BITS:
            return Fraction(base) ** times
    power: float = float(base) ** float(exponent)
    return power


def _exact(value: Value) -> Fraction:
    return Fraction(value)


def _only(name: str, values: Sequence[Value]) -> Value:
    if len(values) != 1:
        raise _Refused(f"{name} takes one number")
    return values[0]


def _abs(name: str, values: Sequence[Value]) -> Value:
    value = _only(name, values)
    return -value if value < 0 else value


def _sqrt(name: str, values: Sequence[Value]) -> Value:
    value = _only(name, values)
    if value < 0:
        raise _Refused("square root of a negative number")
    if not isinstance(value, float):
        roots = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if (roots[0] ** 2, roots[1] ** 2) == (value.numerator, value.denominator):
            return Fraction(*roots)
    return math.sqrt(value)


def _round(name: str, values: Sequence[Value]) -> Value:
    """Halves go to the even neighbour, as in Python: `round(2.5)` is `2.0`."""
    number, *rest = [_exact(value) for value in values]
    if not rest:
        return round(number)
    if len(rest) > 1 or rest[0].denominator != 1 or abs(rest[0]) > MAX_PLACES:
        raise _Refused(f"round takes a number and at most {MAX_PLACES} places")
    return round(number, rest[0].numerator)


_FUNCTIONS: dict[str, Callable[[str, Sequence[Value]], Value]] = {
    "sqrt": _sqrt,
    "abs": _abs,
    "round": _round,
    "min": lambda name, values: min(values, key=_exact),
    "max": lambda name, values: max(values, key=_exact),
}
