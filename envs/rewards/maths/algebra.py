"""Two statements compared by SymPy, read by Math-Verify's parser. Slow to import and without a deadline: only for
grader workers.

Two expressions are equal when they agree to 100 digits wherever they are tried: SymPy's own `simplify` is slower, gives
up on many pairs that are equal, and is asked only where nothing can be evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import permutations
from typing import Any

import sympy
from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex  # type: ignore[import-untyped]
from latex2sympy2_extended.latex2sympy2 import ConversionConfig  # type: ignore[import-untyped]
from sympy.core.function import AppliedUndef

from envs.rewards.maths.structure import REALS, parse_collection, parse_relation, split_outside_brackets
from envs.rewards.maths.text import split_name

MAX_NESTING = 12  # brackets inside brackets; what is deeper is no answer, and the parser takes for ever
DIGITS = 110
WORKED = 500  # digits that SymPy may use on the way, where much cancels out
ZERO, HUGE, NOTHING = sympy.Float("1e-100"), sympy.Float("1e100"), sympy.Float("1e-300")
# Where two expressions are tried: each variable takes the next value, from another start each time.
_VALUES = ((31, 97), (173, 61), (-89, 83), (229, 127), (-37, 113), (607, 101), (71, 53))
POINTS = [sympy.Rational(*pair) for pair in _VALUES]
# Ours have cut the units, the boxes and the text before: what is left is one expression.
_SPELLING = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_READING = ConversionConfig(lowercase_symbols=False)
_SET_MARKS = re.compile(r"\\(?:cup|cap|setminus|mathbb|le|ge|ne)(?![a-zA-Z])|[<>]")
_DECIMAL = re.compile(r"(\^\s?)?(?<![0-9])([0-9]*)\.([0-9]+)")
# Two numbers side by side, and a mark behind a number, are parsed into what the writer does not mean.
_UNREADABLE = re.compile(r"[0-9.]\s+[0-9.]|[0-9)}]\s?'|\\unitvector|\\[vh]?phantom|\\color|\$")
_TURNED = re.compile(r"\^\s?\{?\s?T(?![a-zA-Z])")  # of a number it would be the number
_LOG_BASE = re.compile(r"_([0-9])(?=\s[0-9])")  # \log_2 8
_CONSTANT = re.compile(r"\+\s?(?:[cCkK]|\\text\s?\{\s?(?:[cC]onst(?:ant)?\.?|[cC])\s?\})$")
_ARBITRARY = re.compile(r"[cCkK]_\{?[0-9]\}?")
_A_CONSTANT = re.compile(rf"{_ARBITRARY.pattern}|[A-HK-Zac]")
MAX_CONSTANTS = 3
_TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
_DEGREES = re.compile(r"([0-9.]+|\\frac\{[0-9]+\}\{[0-9]+\})\s?\^\\circ")
_FUNCTION_NAMES = frozenset((*"fghuFGHPQ", "delta", "zeta", r"\zeta", "Gamma", r"\Gamma"))
_RELATIONS = {"<": sympy.Lt, ">": sympy.Gt, r"\le": sympy.Le, r"\ge": sympy.Ge, r"\ne": sympy.Ne, "=": sympy.Eq}


def is_same_statement(answer: str, gold: str) -> bool:
    """Whether two cleaned texts say the same. What cannot be read as mathematics says nothing."""
    try:
        if _SET_MARKS.search(answer) or _SET_MARKS.search(gold):
            return _same_solution_set(answer, gold)
        ours, theirs = parse_relation(answer), parse_relation(gold)
        if (ours is None) is not (theirs is None):
            return False
        if ours is not None and theirs is not None:
            equations = _zero_numerator(ours.sides), _zero_numerator(theirs.sides)
            return None not in equations and _constant_ratio(*equations) is not None
        return _same_expression(answer, gold)
    except MemoryError:
        raise
    except Exception:  # SymPy's errors share no type; RecursionError is one of them
        return False


def is_rounding(text: str, value: Fraction, within: Fraction) -> bool:
    """Whether an expression is a number as far from `value` as rounding takes it."""
    number = _parse(text)
    if number is None or number.free_symbols:
        return False
    return bool(abs(_evaluate_number(number) - _rational(value)) <= _rational(within))


def _rational(value: Fraction) -> Any:
    return sympy.Rational(value.numerator, value.denominator)


def _same_expression(answer: str, gold: str) -> bool:
    if _CONSTANT.search(answer) and _CONSTANT.search(gold):
        answer, gold = _CONSTANT.sub("+C", answer), _CONSTANT.sub("+C", gold)
    theirs = _parse(gold)
    ours = _parse(answer) if theirs is not None else None
    return ours is not None and any(_is_equal(variant, theirs) for variant in _name_constants(ours, theirs))


def _name_constants(ours: Any, theirs: Any) -> Iterable[Any]:
    """`ours`, and where `theirs` has constants of integration, c_1 and c_2, with its own in their places."""
    yield ours
    if not (isinstance(ours, sympy.Expr) and isinstance(theirs, sympy.Expr)):
        return
    consts = [symbol for symbol in theirs.free_symbols if _ARBITRARY.fullmatch(str(symbol))]
    free = sorted(ours.free_symbols - (theirs.free_symbols - {*consts}), key=str)
    if 0 < len(consts) == len(free) <= MAX_CONSTANTS and all(_A_CONSTANT.fullmatch(str(symbol)) for symbol in free):
        for order in permutations(consts):
            yield ours.xreplace(dict(zip(free, order, strict=True)))


def _is_equal(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, sympy.MatrixBase) or isinstance(theirs, sympy.MatrixBase):
        if not (isinstance(ours, sympy.MatrixBase) and isinstance(theirs, sympy.MatrixBase)):
            return False
        return ours.shape == theirs.shape and all(map(_is_equal, ours, theirs))
    if not (isinstance(ours, sympy.Expr) and isinstance(theirs, sympy.Expr)):
        return False
    if ours.has(sympy.nan, sympy.zoo) or theirs.has(sympy.nan, sympy.zoo):
        return False
    if ours == theirs:
        return True
    difference = ours - theirs
    if difference.is_Rational or ours.has(sympy.oo, sympy.S.NegativeInfinity) or theirs.has(sympy.oo):
        return bool(difference == 0)
    verdicts = [_agree_at_point(difference, ours, theirs, point) for point in _sample_points(difference)]
    if False in verdicts:
        return False
    return True in verdicts or sympy.simplify(difference) == 0


def _sample_points(expression: Any) -> Iterable[dict[Any, Any]]:
    symbols = sorted(expression.free_symbols, key=str)
    starts = range(len(POINTS) if symbols else 1)
    return [
        {symbol: POINTS[(start + 3 * at) % len(POINTS)] + at for at, symbol in enumerate(symbols)} for start in starts
    ]


def _agree_at_point(difference: Any, ours: Any, theirs: Any, point: dict[Any, Any]) -> bool | None:
    """Whether the two are equal at a point; None where one is not defined, or not real though it should be."""
    apart, size, gold_size = (_evaluate_number(expression.subs(point)) for expression in (difference, ours, theirs))
    if not all(number.is_number and number.is_finite for number in (apart, size, gold_size)):
        return None
    if point and not difference.has(sympy.I) and abs(sympy.im(size)) > ZERO:
        return None
    apart, scale = abs(apart), max(abs(size), abs(gold_size))
    if scale < NOTHING or apart == 0:
        return True
    return bool(apart <= ZERO * scale and (apart <= ZERO or scale > HUGE))


def _evaluate_number(expression: Any) -> Any:
    return expression.evalf(DIGITS, maxn=WORKED)


def _zero_numerator(sides: tuple[str, ...]) -> Any:
    """What the equation says is zero, without denominators; None where it cannot be read."""
    if len(sides) != 2:
        return None
    left, right = _parse(sides[0]), _parse(sides[1])
    if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
        return None
    return sympy.together(left - right).as_numer_denom()[0]


def _constant_ratio(ours: Any, theirs: Any) -> Any:
    """The number by which one is the other, scaled; None where there is no such number."""
    if ours.free_symbols != theirs.free_symbols or not ours.free_symbols:
        return None
    ratio = sympy.cancel(ours / theirs)
    if ratio.free_symbols:
        ratio = sympy.simplify(ratio)
    return ratio if not ratio.free_symbols and ratio.is_finite and ratio.is_nonzero else None


def _same_solution_set(answer: str, gold: str) -> bool:
    names = {name for name in map(_only_variable, (answer, gold)) if name is not None}
    if len(names) > 1:
        return _same_half_space(answer, gold)
    variable = sympy.Symbol(next(iter(names), "x"), real=True)
    ours, theirs = _solution_set(answer, variable), _solution_set(gold, variable)
    if ours is None or theirs is None:
        return _same_half_space(answer, gold)
    return bool(ours == theirs or ours.symmetric_difference(theirs).is_empty)


def _only_variable(text: str) -> str | None:
    """The only variable of an inequality, "" where it has more; None without one."""
    symbols: set[str] = set()
    for part in re.split(r"\\(?:cup|cap|setminus|mathbb\{R\})|,", text):
        statement = parse_relation(part.strip())
        for side in statement.sides if statement is not None else ():
            symbols |= {str(symbol) for symbol in getattr(_parse(side), "free_symbols", ())}
    return None if not symbols else symbols.pop() if len(symbols) == 1 else ""


def _same_half_space(answer: str, gold: str) -> bool:
    """Two inequalities in several variables: `y > 2x` and `2x - y < 0`."""
    zeros = []
    for text in (answer, gold):
        claim = parse_relation(text)
        if claim is None or len(claim.sides) != 2 or claim.operators[0] not in ("<", ">", r"\le", r"\ge"):
            return False
        left, right = (_parse(side) for side in claim.sides)
        if not (isinstance(left, sympy.Expr) and isinstance(right, sympy.Expr)):
            return False
        zeros.append((left - right if claim.operators[0] in (">", r"\ge") else right - left, "e" in claim.operators[0]))
    (ours, open_), (theirs, closed) = zeros
    ratio = _constant_ratio(ours, theirs)
    return open_ is closed and ratio is not None and bool(ratio.is_positive)


def _solution_set(text: str, variable: Any) -> Any:
    """The set of real numbers that a text describes; None where it describes none."""
    text = split_name(text)[1].strip()
    if text == REALS:
        return sympy.S.Reals
    for mark, joined in ((r"\cup", sympy.Union), (r"\cap", sympy.Intersection), (r"\setminus", sympy.Complement)):
        parts = split_outside_brackets(text, mark)
        if len(parts) > 1:
            sets = [_solution_set(part, variable) for part in parts]
            return None if None in sets else joined(*sets)
    claim = parse_relation(text)
    if claim is not None:
        sides = [_parse(side) for side in claim.sides]
        if not all(isinstance(side, sympy.Expr) and side.free_symbols <= {variable} for side in sides):
            return None
        pairs = zip(sides, claim.operators, sides[1:], strict=False)
        statements = (_RELATIONS[operator](left, right) for left, operator, right in pairs)
        return sympy.Intersection(*(_solve(statement, variable) for statement in statements))
    container = parse_collection(text)
    if container is None:
        return None
    if container.kind == "list":
        sets = [
            _solution_set(part, variable) if parse_relation(part) is not None else None for part in container.elements
        ]
        # Inequalities in one list both hold, unless that is impossible: x < 1, x > 3.
        intersection = None if None in sets else sympy.Intersection(*sets)
        return sympy.Union(*sets) if intersection is not None and intersection.is_empty else intersection
    ends = [_parse(element) for element in container.elements]
    if not all(isinstance(end, sympy.Expr) and not end.free_symbols for end in ends):
        return None
    if container.kind == "set":
        return sympy.FiniteSet(*ends)
    if container.kind not in ("()", "(]", "[)", "[]") or len(ends) != 2:
        return None
    return sympy.Interval(*ends, left_open=container.kind[0] == "(", right_open=container.kind[1] == ")")


def _solve(statement: Any, variable: Any) -> Any:
    if statement in (sympy.true, sympy.false):
        return sympy.S.Reals if statement else sympy.S.EmptySet
    return sympy.solveset(statement, variable, sympy.S.Reals)


@lru_cache(maxsize=256)  # siblings of one group share the gold
def _parse(text: str) -> Any:
    """An expression or a matrix of exact numbers, `i` the imaginary unit; None for what is neither."""
    text = _LOG_BASE.sub(r"_{\1}", text)
    if (
        _nesting_depth(text) > MAX_NESTING
        or _UNREADABLE.search(text)
        or (_TURNED.search(text) and "matrix}" not in text)
    ):
        return None
    try:
        text = _DECIMAL.sub(_decimal_as_fraction, text)
        if r"\circ" in text and _TRIGONOMETRY.search(text):
            text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
        latex = normalize_latex(text.replace("\u00a4", ""), config=_SPELLING)
        parsed = latex2sympy(
            latex, is_real=True, convert_degrees=False, normalization_config=None, conversion_config=_READING
        )
        return _evaluate(parsed)
    except MemoryError:
        raise
    except Exception:  # the parser's errors share no type; RecursionError is one of them
        return None


def _decimal_as_fraction(decimal: re.Match[str]) -> str:
    power, integer, places = decimal.groups()
    fraction = rf"\frac{{{integer}{places}}}{{1{'0' * len(places)}}}"
    return f"^{{{fraction}}}" if power else fraction


def _evaluate(parsed: Any) -> Any:
    if isinstance(parsed, sympy.Basic):
        parsed = parsed.xreplace({symbol: sympy.I for symbol in parsed.free_symbols if str(symbol) == "i"})
    if isinstance(parsed, sympy.MatrixExpr):
        return parsed.doit().as_explicit()
    parsed = parsed.doit()
    return parsed.replace(_is_product, _as_product) if isinstance(parsed, sympy.Expr) else parsed


def _is_product(part: Any) -> bool:
    """a(b + c) is a product; f(x) is a function, and so is y(2x)."""
    if not isinstance(part, AppliedUndef) or len(part.args) != 1:
        return False
    return part.func.__name__ not in _FUNCTION_NAMES and not (part.args[0].is_Mul and part.args[0].free_symbols)


def _as_product(part: Any) -> Any:
    return sympy.Symbol(part.func.__name__, real=True) * part.args[0]


def _nesting_depth(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest
