r"""A calculator for text that a model wrote.

`calculate("48 / 2")` is `24.0`. Numbers are exact rationals, so that `0.1 + 0.2` is `0.3` and `(1/3) * 3` is `1.0`;
irrational steps are computed with 60 digits (`envs.tools.arithmetic`) and rounded to a float once, at the end. The
grammar is our own: nothing is evaluated by Python or sympified. SymPy is not needed at run time, only mpmath, the
arithmetic that SymPy stands on; the tests compare with SymPy. The text is hostile: the tokens are one pass of one
regular expression without backtracking, every character and name that is not listed is refused, and length, nesting
and magnitude are bounded before every operation: every input is answered within milliseconds.

| written | read as |
|---|---|
| `+ - * / // ** ^`, `× ÷ · ⋅ −`, `\times \cdot \div` | `2^3^2` is 512, `-2^2` is -4, `7 // 2` is 3 |
| `( ) [ ] { }`, `\left( \right)` | brackets of one kind close each other |
| `1,080`, `$5`, `\$1,080.50`, `1.5e3` | a comma groups thousands, except where it separates arguments |
| `20%`, `20% of 50`, `7 % 3` | percent; before a number, a name or a bracket the remainder with the divisor's sign |
| `5!`, `7²`, `2³`, `30°`, `30^\circ` | factorial, powers, degrees |
| `√2`, `√(2 + 3)`, `\sqrt{2}`, `\sqrt[3]{8}`, `\frac{1}{2}` | roots; √ takes the one number, name or bracket after it |
| `pi π \pi e tau` | constants |
| `2pi`, `2(3 + 4)`, `3 sqrt(2)`, `(1)(2)`, `2π(3)` | products; refused as ambiguous after `/`, a power or a root |
| `sqrt cbrt root(x, n) abs floor ceil round(x, places) mod(a, b) pow(a, b) rational(a, b)` | real roots |
| `min max sum prod mean median gcd lcm`, of numbers or of one `[list]` | |
| `factorial binomial comb nCr perm nPr` | whole numbers |
| `exp ln log log(x, b) log2 log10` | `log` is natural, as in SymPy |
| `sin cos tan asin acos atan degrees radians` | radians, also `arcsin` and `\sin(…)` |
| `5 * 3 =`, `5 * 3 = ?`, `$5 * 3$` | the frame is dropped |

Names are read in any case. Complex numbers do not exist here: `sqrt(-1)` is an error text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from envs.tools.arithmetic import OPERATIONS, NoValue, Value

MAX_LENGTH = 512  # characters of an expression
MAX_DEPTH = 48  # nested parentheses, signs, roots and powers
MANY = MAX_LENGTH  # arguments

CONSTANTS = frozenset({"pi", "e", "tau"})
ARITY: dict[str, tuple[int, int]] = {  # fewest and most arguments
    **dict.fromkeys(("sqrt", "cbrt", "abs", "floor", "ceil", "factorial", "exp", "ln", "log2", "log10"), (1, 1)),
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "degrees", "radians"), (1, 1)),
    **dict.fromkeys(("root", "mod", "binomial", "perm", "pow", "rational"), (2, 2)),
    **dict.fromkeys(("log", "round"), (1, 2)),
    **dict.fromkeys(("min", "max", "gcd", "lcm", "sum", "prod", "mean", "median"), (1, MANY)),
}
ALIASES = {
    **{"arcsin": "asin", "arccos": "acos", "arctan": "atan", "ceiling": "ceil", "average": "mean"},
    **{"comb": "binomial", "ncr": "binomial", "npr": "perm"},
}

# Explicit [0-9]: \d would accept digits of other scripts. No alternative can fail after a long match: linear time.
_TOKEN = re.compile(
    r"(?P<space>[ \t\n\r]+|\\[,;! ]|\\(?:left|right)(?![A-Za-z])|\\?\$(?=[0-9.]))"
    r"|(?P<number>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]*)?"
    r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<degree>°|\^ ?\\circ|\^ ?\{ ?\\circ ?\})"
    r"|(?P<symbol>\*\*|//|[-+*/^%!()\[\]{},=√²³×÷·⋅−π]|\\%)"
    r"|(?P<command>\\[A-Za-z]+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_SPELLINGS = {
    **{"^": "**", "×": "*", "·": "*", "⋅": "*", "÷": "/", "−": "-", "π": "pi", "of": "*", r"\%": "%"},
    **{r"\times": "*", r"\cdot": "*", r"\div": "/", r"\dfrac": r"\frac", r"\tfrac": r"\frac"},
}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "//": 2, "%": 2, "**": 4}
_SIGN = 3  # looser than a power, tighter than a product
_POSTFIX: dict[str, Callable[[Value], Value]] = {
    "!": OPERATIONS["factorial"],
    "°": OPERATIONS["radians"],
    "%": lambda value: OPERATIONS["/"](value, 100),
    "²": lambda value: OPERATIONS["**"](value, 2),
    "³": lambda value: OPERATIONS["**"](value, 3),
}
_AMBIGUOUS = frozenset({"!!", "²²", "²³", "³²", "³³"})
_FACTORS = frozenset({"(", "[", "√", r"\frac", r"\sqrt", *CONSTANTS, *ARITY})  # what starts an operand, but a number
_END = ""  # the token after the last one


def calculate(expression: str) -> str:
    """The text that the model sees: `48 / 2` gives `24.0`, `1 / 0` gives `error: division by zero`. Raises nothing."""
    try:  # the tool's fault boundary: whatever a model writes ends here
        if not isinstance(expression, str):
            raise NoValue("not a text")
        value = float(_evaluate(expression))
        if math.isinf(value):
            raise OverflowError
        return repr(value + 0.0)  # + 0.0 turns -0.0 into 0.0
    except NoValue as refused:
        return f"error: {refused}"
    except ZeroDivisionError:
        return "error: division by zero"
    except OverflowError:
        return "error: result too large"


def _evaluate(text: str) -> Value:
    if len(text) > MAX_LENGTH:
        raise NoValue(f"expression longer than {MAX_LENGTH} characters")
    tokens = _tokens(_strip_frame(text))
    if not tokens:
        raise NoValue("empty expression")
    reader = _Reader([*tokens, _END])
    value = reader.expression()
    if reader.token != _END:
        raise NoValue(f"unexpected {_quote(reader.token)}")
    return value


def _strip_frame(text: str) -> str:
    """Without a trailing `=` or `= ?`, and without the dollar signs around a formula."""
    text = text.strip()
    formula = text.removesuffix("?").rstrip()
    if formula.endswith("="):
        text = formula[:-1].rstrip()
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == "$" else text


def _tokens(text: str) -> list[str]:
    """Numbers as they are written; operators, brackets, commas and lower-case names in one spelling each."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, token = match.lastgroup, match.group()
        if kind == "space":
            continue
        if kind == "degree":
            token = "°"
        elif kind == "other":
            raise NoValue(f"unexpected character {token!a}")
        elif kind == "name":
            token = token.lower()
        elif kind == "command" and token not in _SPELLINGS and token not in _FACTORS:
            token = ALIASES.get(token[1:], token[1:])
            if token not in _FACTORS:
                raise NoValue(f"unknown command {_quote(match.group())}")
        token = _SPELLINGS.get(token, token)
        tokens.append(ALIASES.get(token, token))
    return tokens


class _Reader:
    """Precedence climbing over tokens that end in _END, computing on the way. Raises what `calculate` catches."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0
        self._tail = ""  # how the last operand ends where a factor without a sign after it could be read in two ways
        self._in_list = False  # does a comma separate here? else it groups thousands

    @property
    def token(self) -> str:
        return self._tokens[self._next]

    def expression(self, floor: int = 1) -> Value:
        """An operand and every operator after it that binds at least as tightly as `floor`."""
        self._deeper()
        value = self._parse_signed() if self.token in ("+", "-") else self._operand()
        while True:
            operator = "*" if self._is_juxtaposed() else self.token
            if _PRECEDENCE.get(operator, 0) < floor:
                break
            if operator == self.token:
                self._next += 1
            elif self._tail:
                raise NoValue(f"a product without a sign after {self._tail!a} is ambiguous: write * or parentheses")
            # A power groups to the right, everything else to the left.
            value = OPERATIONS[operator](value, self.expression(_PRECEDENCE[operator] + (operator != "**")))
            if operator in ("/", "//", "%", "**"):
                self._tail = operator
        self._depth -= 1
        return value

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NoValue("expression nested too deeply")

    def _parse_signed(self) -> Value:
        negative = False
        while self.token in ("+", "-"):
            negative ^= self.token == "-"
            self._next += 1
        value = self.expression(_SIGN)
        return -value if negative else value

    def _operand(self) -> Value:
        rooted = self.token == "√"
        value = self._atom()
        while (token := self.token) in _POSTFIX:
            after = self._tokens[self._next + 1]
            if token == "%" and (_is_number(after) or after in _FACTORS):
                break
            if token + after in _AMBIGUOUS:
                raise NoValue(f"{_quote(token)} twice is ambiguous: write parentheses")
            if rooted and token not in ("²", "³"):
                raise NoValue(f"{_quote(token)} after a root is ambiguous: write parentheses")
            value = _POSTFIX[token](value)
            self._next += 1
        self._tail = "√" if rooted else ""
        return value

    def _atom(self) -> Value:
        token = self.token
        if self._in_list and "," in token[1:]:
            self._tokens[self._next : self._next + 1] = re.split("(,)", token)
            token = self.token
        self._next += 1
        if _is_number(token):
            return int(token) if token.isdecimal() else Fraction(token.replace(",", ""))
        if token in _CLOSING:
            return self._single(token)
        if token == "√":
            self._deeper()
            value = OPERATIONS["sqrt"](self._atom())
            self._depth -= 1
            return value
        if token == r"\frac":
            return OPERATIONS["/"](self._argument(token), self._argument(token))
        if token == r"\sqrt":
            degree: Value = 2
            if self.token == "[":
                self._next += 1
                degree = self._single("[")
            return OPERATIONS["root"](self._argument(token), degree)
        if token in CONSTANTS:
            return OPERATIONS[token]()
        if token in ARITY:
            return self._call(token)
        if token == _END:
            raise NoValue("expression ends too early")
        raise NoValue(f"{'unknown name' if token.isidentifier() else 'unexpected'} {_quote(token)}")

    def _list(self, opening: str, *, called: bool = False) -> list[Value]:
        """The values between commas up to the bracket that closes."""
        outside, self._in_list = self._in_list, called or opening == "["
        values = [self.expression()]
        while self.token == ",":
            self._next += 1
            values.append(self.expression())
        self._in_list = outside
        self._close(_CLOSING[opening])
        return values

    def _single(self, opening: str) -> Value:
        values = self._list(opening)
        if len(values) != 1:
            raise NoValue("a list of numbers stands only in a function's parentheses")
        return values[0]

    def _close(self, closing: str) -> None:
        if self.token != closing:
            raise NoValue(f"missing {closing!r}" if self.token == _END else f"unexpected {_quote(self.token)}")
        self._next += 1

    def _argument(self, command: str) -> Value:
        """In braces, after a command of LaTeX."""
        if self.token != "{":
            raise NoValue(f"expected '{{' after {command[1:]!r}")
        self._next += 1
        return self._single("{")

    def _call(self, name: str) -> Value:
        """`max(1, 2)`, and `max([1, 2])` as in Python."""
        if self.token != "(":
            raise NoValue(f"expected '(' after {name!r}")
        self._next += 1
        fewest, most = ARITY[name]
        if most == MANY and self._lone_list():
            self._next += 1
            values = self._list("[")
            self._close(")")
        else:
            values = self._list("(", called=True)
        if not fewest <= len(values) <= most:
            expected = ("one number", "two numbers")[fewest - 1] if fewest == most else "one or two numbers"
            raise NoValue(f"{name} takes {expected}")
        return OPERATIONS[name](*values)

    def _lone_list(self) -> bool:
        """Does the bracket at hand close right before the function's parenthesis?"""
        depth = 0
        for at in range(self._next, len(self._tokens)):
            depth += (self._tokens[at] == "[") - (self._tokens[at] == "]")
            if depth == 0:
                return at > self._next and self._tokens[at + 1] == ")"
        return False

    def _is_juxtaposed(self) -> bool:
        """Does the token at hand, which is no number, multiply the operand before it: `2pi`, `2(3)`, `3 sqrt(2)`?"""
        before, token = self._tokens[self._next - 1], self.token
        if token not in _FACTORS:
            return False
        if _is_number(before):
            if token == r"\frac":
                raise NoValue("a number before a fraction is ambiguous: write + or *")
            return True
        # `e(2)` may mean exp.
        return before in (")", "]", "}") or (before in CONSTANTS and not (before == "e" and token in _CLOSING))


def _is_number(token: str) -> bool:
    return token[:1].isdecimal() or token[:1] == "."


def _quote(token: str) -> str:
    """A token in an error text, a few characters at most, in quotes."""
    return ascii(token if len(token) <= 20 else token[:17] + "...")
