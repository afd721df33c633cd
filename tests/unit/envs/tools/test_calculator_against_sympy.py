"""The calculator's numbers are SymPy's: text and SymPy expression are built side by side, nothing is sympified."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from envs.tools.arithmetic import OPERATIONS
from envs.tools.calculator import ALIASES, ARITY, CONSTANTS, calculate

sympy = pytest.importorskip("sympy")

Case = tuple[str, Any]  # (what the calculator reads, what SymPy computes)


def agrees(case: Case) -> None:
    text, expression = case
    expected = sympy.N(expression, 30)
    assert math.isclose(float(calculate(text)), float(expected), rel_tol=1e-12, abs_tol=1e-25), (text, expected)


FIXED: list[tuple[str, Callable[[], Any]]] = [
    ("sqrt(7) + cbrt(7) + root(7, 5)", lambda: sympy.sqrt(7) + sympy.cbrt(7) + sympy.root(7, 5)),
    ("abs(-7/3) + floor(-7/3) + ceil(7/3)", lambda: sympy.Rational(7, 3) - 3 + 3),
    ("factorial(20) / binomial(30, 11)", lambda: sympy.factorial(20) / sympy.binomial(30, 11)),
    ("exp(1/3) - ln(5) + log(5, 3)", lambda: sympy.exp(sympy.Rational(1, 3)) - sympy.log(5) + sympy.log(5, 3)),
    ("log2(10) * log10(2)", lambda: sympy.log(10, 2) * sympy.log(2, 10)),
    ("sin(1) + cos(1) * tan(1)", lambda: sympy.sin(1) + sympy.cos(1) * sympy.tan(1)),
    ("asin(1/3) + acos(1/3) * atan(7)", lambda: sympy.asin(third()) + sympy.acos(third()) * sympy.atan(7)),
    ("sin(100000000000000000000)", lambda: sympy.sin(10**20)),
    ("degrees(1) + radians(1)", lambda: 180 / sympy.pi + sympy.pi / 180),
    ("mod(-7, 3) + mod(pi, 2/3)", lambda: sympy.Mod(-7, 3) + sympy.Mod(sympy.pi, sympy.Rational(2, 3))),
    ("gcd(84, 36) / lcm(84, 36)", lambda: sympy.Rational(sympy.gcd(84, 36), sympy.lcm(84, 36))),
    ("pow(2, rational(1, 3)) + e + tau", lambda: sympy.Integer(2) ** third() + sympy.E + 2 * sympy.pi),
    ("perm(9, 4) + 0.1!", lambda: None),
    ("max(pi, 22/7) - min(e, 3)", lambda: sympy.Max(sympy.pi, sympy.Rational(22, 7)) - sympy.E),
    # SymPy would raise an exact base to the exact power: the logarithm first.
    ("1.0000001 ** 10**9", lambda: sympy.exp(10**9 * sympy.N(sympy.log(sympy.Rational(10000001, 10000000)), 50))),
    ("sqrt(10001) - sqrt(10000)", lambda: sympy.sqrt(10001) - 100),
    ("sqrt(10**30 + 1) - 10**15", lambda: sympy.sqrt(10**30 + 1) - 10**15),
]


def third() -> Any:
    return sympy.Rational(1, 3)


@pytest.mark.parametrize(("text", "build"), FIXED, ids=[text for text, _ in FIXED])
def test_every_function_agrees(text: str, build: Callable[[], Any]) -> None:
    expected = build()
    if expected is None:  # no whole number: SymPy would take the gamma function, the calculator refuses
        assert calculate(text).startswith("error: ")
    else:
        agrees((text, expected))


def expressions() -> st.SearchStrategy[Case]:
    whole = st.integers(1, 99).map(lambda n: (str(n), sympy.Integer(n)))
    decimal = st.decimals("0.01", "99", places=2).map(
        lambda d: (str(d), sympy.Rational(*Fraction(d).as_integer_ratio()))
    )
    leaf = st.one_of(whole, decimal, st.just(("pi", sympy.pi)), st.just(("e", sympy.E)))

    def grow(children: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
        return st.one_of(
            st.tuples(children, children).map(lambda p: (f"({p[0][0]} + {p[1][0]})", p[0][1] + p[1][1])),
            st.tuples(children, children).map(lambda p: (f"({p[0][0]} - {p[1][0]})", p[0][1] - p[1][1])),
            st.tuples(children, children).map(lambda p: (f"({p[0][0]} * {p[1][0]})", p[0][1] * p[1][1])),
            st.tuples(children, leaf).map(lambda p: (f"({p[0][0]}) / ({p[1][0]})", p[0][1] / p[1][1])),
            st.tuples(leaf, st.integers(-4, 4)).map(lambda p: (f"({p[0][0]}) ** {p[1]}", p[0][1] ** p[1])),
            children.map(lambda c: (f"-({c[0]})", -c[1])),
            children.map(lambda c: (f"√(abs({c[0]}))", sympy.sqrt(sympy.Abs(c[1])))),
            children.map(lambda c: (f"ln(1 + ({c[0]})²)", sympy.log(1 + c[1] ** 2))),
            children.map(lambda c: (f"sin({c[0]})", sympy.sin(c[1]))),
            children.map(lambda c: (f"exp(cos({c[0]}))", sympy.exp(sympy.cos(c[1])))),
            children.map(lambda c: (f"\\frac{{atan({c[0]})}}{{3}}", sympy.atan(c[1]) / 3)),
        )

    return st.recursive(leaf, grow, max_leaves=6)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expressions())
def test_random_expressions_agree(case: Case) -> None:
    assume("too large" not in calculate(case[0]))
    agrees(case)


def test_grammar_and_arithmetic_know_the_same_names() -> None:
    signs = {"+", "-", "*", "/", "//", "%", "**", "negative"}
    assert OPERATIONS.keys() - signs == ARITY.keys() | CONSTANTS
    assert set(ALIASES.values()) <= ARITY.keys()
