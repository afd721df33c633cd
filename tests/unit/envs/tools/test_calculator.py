"""envs.tools.calculator: hand-computed values, bounds, and no exception on any text."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.tools.calculator import MAX_DEPTH, MAX_LENGTH, calculate


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("48 / 2", "24.0"),
        ("48 + 24", "72.0"),
        ("1/3", "0.3333333333333333"),
        ("0.1 + 0.2", "0.3"),
        ("2 + 3 * 4", "14.0"),
        ("(2 + 3) * 4", "20.0"),
        ("10 - 3 - 2", "5.0"),
        ("100 / 10 / 2", "5.0"),
        ("-2 ** 2", "-4.0"),
        ("2 ** -1", "0.5"),
        ("2 ** 3 ** 2", "512.0"),
        ("2^10", "1024.0"),
        ("4 ** 0.5", "2.0"),
        ("--3 - -2", "5.0"),
        ("7 % 3", "1.0"),
        ("-7 % 3", "2.0"),
        ("20% * 50", "10.0"),
        ("100% - 20%", "0.8"),
        ("1,080 * 2", "2160.0"),
        ("1,234,567", "1234567.0"),
        ("max(1,200)", "200.0"),
        ("max((1,200), 3)", "1200.0"),
        ("min(4, 2, 3)", "2.0"),
        ("sqrt(16)", "4.0"),
        ("sqrt(1/4)", "0.5"),
        ("sqrt(2)", "1.4142135623730951"),
        ("abs(3 - 5)", "2.0"),
        ("round(2.5)", "2.0"),
        ("round(2.675, 2)", "2.68"),
        ("round(10/3, 1)", "3.3"),
        (".5 + 1.", "1.5"),
        ("1e3 + 1E-1", "1000.1"),
        ("1e16 * 1", "1e+16"),
        ("10**400 / 10**399", "10.0"),
        ("(1/3)**900 * 3**900", "1.0"),
        ("-0", "0.0"),
        ("0 ** 0", "1.0"),
        ("7 // 2", "3.0"),
        ("-7 // 2", "-4.0"),
        # irrational steps are rounded once, at the end
        ("sqrt(2)**2", "2.0"),
        ("sqrt(2)*sqrt(8)", "4.0"),
        ("sin(pi)", "0.0"),
        ("cos(pi/2)", "0.0"),
        ("sin(pi/6)", "0.5"),
        ("sqrt(2) + sqrt(3) - sqrt(5 + 2sqrt(6))", "0.0"),
        ("(1/3)*3", "1.0"),
        ("27 ** (1/3)", "3.0"),
        ("floor(log(1000) / log(10))", "3.0"),
        ("floor(sqrt(2)**2)", "2.0"),
        ("factorial(sqrt(2)**4)", "24.0"),
        ("exp(-100)", "3.720075976020836e-44"),
        ("exp(-200) * exp(200)", "1.0"),
        ("1.0000001 ** 10**9", "2.6881037012649237e+43"),
        ("exp(-10**9)", "0.0"),
        # functions
        ("cbrt(-8) + root(81, 4)", "1.0"),
        ("floor(-2.5) + ceil(2.1) + ceiling(-0.5)", "0.0"),
        ("round(pi, 4)", "3.1416"),
        ("round(12345.678, -2)", "12300.0"),
        ("round(1000pi, -2)", "3100.0"),
        ("gcd(12, 18, 8) + lcm(4, 6, 10)", "62.0"),
        ("mod(17, 5)", "2.0"),
        ("5! + 3!", "126.0"),
        ("-3!", "-6.0"),
        ("100! / 98!", "9900.0"),
        ("1000! / 999!", "1000.0"),
        ("binomial(5, 2) + comb(5, 6) + nCr(10, 3)", "130.0"),
        ("comb(10**6, 2)", "499999500000.0"),
        ("perm(5, 2) + nPr(3, 4)", "20.0"),
        ("degrees(pi) + radians(0)", "180.0"),
        ("ln(e**3) + log(e) + log(8, 2) + log10(1000) + log2(1/2)", "9.0"),
        ("asin(1) / pi + acos(1) + arctan(0)", "0.5"),
        ("sum(1, 2, 3) + sum([4, 5])", "15.0"),
        ("max([3, 4] )", "4.0"),
        ("mean(1, 2, 6) + median(9, 1, 2) + median([1, 2])", "6.5"),
        ("prod(2, 3, 4)", "24.0"),
        ("min(pi, 3, e)", "2.718281828459045"),
        ("Abs(-3) + Rational(1, 2) + PI * 0 + 0E", "3.5"),
        # how contests and word problems write
        ("2 × 3 ÷ 4 − 1 · 2 ⋅ 3", "-4.5"),
        ("√2²", "2.0"),
        ("2√9 + √(16)", "10.0"),
        ("3² + 2³", "17.0"),
        ("-5²", "-25.0"),
        ("2^3²", "512.0"),
        ("2pi / pi + 2π(3) / π", "8.0"),
        ("2(3 + 4)²", "98.0"),
        ("3 sqrt(4) sqrt(9)", "18.0"),
        ("sin(30°) + cos(60^\\circ)", "1.0"),
        ("\\frac{3}{4} \\times 8 + \\sqrt{16} - \\sqrt[3]{27} \\cdot \\dfrac{1}{3}", "9.0"),
        ("\\left(1 + 2\\right)^{10 - 8} \\div 3 \\cdot 2", "6.0"),
        ("\\sin(\\pi / 2)", "1.0"),
        ("[(2 + 3) * 4] / {5}", "4.0"),
        ("$5 + $1,080.50 + \\$.25", "1085.75"),
        ("$3 \\cdot 4$", "12.0"),
        ("20% of $50", "10.0"),
        ("1/2 of 10", "5.0"),
        ("48 / 2 =", "24.0"),
        ("48 / 2 = ?", "24.0"),
    ],
)
def test_value(expression: str, result: str) -> None:
    assert calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("1 / 0", "error: division by zero"),
        ("5 % (2 - 2)", "error: division by zero"),
        ("0 ** -1", "error: division by zero"),
        ("", "error: empty expression"),
        (" \n", "error: empty expression"),
        ("3 +", "error: expression ends too early"),
        ("(1", "error: missing ')'"),
        ("1)", "error: unexpected ')'"),
        ("1 2", "error: unexpected '2'"),
        ("1,2", "error: unexpected ','"),
        ("1,234,5678", "error: unexpected ','"),
        ("12 x 2", "error: unexpected 'x'"),
        ("3 apples", "error: unexpected 'apples'"),
        ("48 / 2 = 24", "error: unexpected '='"),
        ("2 pi 3", "error: unexpected '3'"),
        ("e(2)", "error: unexpected '('"),
        ("5!(2)", "error: unexpected '('"),
        ("1/2pi", "error: a product without a sign after '/' is ambiguous: write * or parentheses"),
        ("6 / 2(1 + 2)", "error: a product without a sign after '/' is ambiguous: write * or parentheses"),
        ("-2^2(3)", "error: a product without a sign after '**' is ambiguous: write * or parentheses"),
        ("2 * √3(4)", "error: a product without a sign after '\\u221a' is ambiguous: write * or parentheses"),
        ("2\\frac{1}{2}", "error: a number before a fraction is ambiguous: write + or *"),
        ("√4!", "error: '!' after a root is ambiguous: write parentheses"),
        ("3!!", "error: '!' twice is ambiguous: write parentheses"),
        ("2³²", "error: '\\xb3' twice is ambiguous: write parentheses"),
        ("(1]", "error: unexpected ']'"),
        ("[1, 2] + 1", "error: a list of numbers stands only in a function's parentheses"),
        ("\\frac12", "error: expected '{' after 'frac'"),
        ("\\input{x}", "error: unknown command '\\\\input'"),
        ("log(1, 2, 3)", "error: log takes one or two numbers"),
        ("root(2)", "error: root takes two numbers"),
        ("root(-16, 4)", "error: even root of a negative number"),
        ("root(2, 1/2)", "error: a root's degree is a whole number from 1 to 4096"),
        ("log(0)", "error: logarithm of a number that is not positive"),
        ("log(2, 1)", "error: division by zero"),
        ("tan(pi / 2)", "error: division by zero"),
        ("asin(2)", "error: asin takes a number from -1 to 1"),
        ("2.5!", "error: factorial takes whole numbers"),
        ("(-1)!", "error: factorial takes no negative numbers"),
        ("gcd(1.5, 2)", "error: gcd takes whole numbers"),
        ("sin(10**21)", "error: argument of sin too large"),
        ("lambda: 1", "error: unexpected character ':'"),
        ("import os", "error: unknown name 'import'"),
        ("pi.__class__", "error: unexpected character '.'"),
        ("\u0430bs(1)", "error: unexpected character '\\u0430'"),  # Cyrillic a
        ("price", "error: unknown name 'price'"),
        ("sqrt 4", "error: expected '(' after 'sqrt'"),
        ("sqrt(1, 2)", "error: sqrt takes one number"),
        ("sqrt(-1)", "error: square root of a negative number"),
        ("(-8) ** (1/3)", "error: fractional power of a negative number"),
        ("round(1, 31)", "error: round takes a number and at most 30 places"),
        ("$x", "error: unexpected character '$'"),
        ("1 + \u0663", "error: unexpected character '\\u0663'"),
        ("\uff11", "error: unexpected character '\\uff11'"),
        ("().__class__", "error: unexpected character '.'"),
        ("__import__('os')", 'error: unexpected character "\'"'),
    ],
)
def test_refusal_is_a_short_text(expression: str, result: str) -> None:
    assert calculate(expression) == result


def test_hostile_sizes_are_refused() -> None:
    too_long = f"error: expression longer than {MAX_LENGTH} characters"
    assert calculate("9" * 1_000_000) == too_long
    assert calculate("(" * 10_000 + ")" * 10_000) == too_long
    assert calculate("(" * 100 + "1" + ")" * 100) == "error: expression nested too deeply"
    assert calculate("2**" * 170 + "1") == "error: expression nested too deeply"
    assert calculate("9" * MAX_LENGTH) == "error: result too large"
    assert calculate("9**9**9**9") == "error: result too large"
    assert calculate("(((9**99)**99)**99)**99") == "error: result too large"
    assert calculate("*".join(["9**1200"] * 60)) == "error: result too large"
    assert calculate("(2**0.5)**5000") == "error: result too large"
    assert calculate("1e308 * 10") == "error: result too large"
    assert calculate("-" * (MAX_LENGTH - 1) + "1") == "-1.0"
    assert calculate("factorial(10**9)") == calculate("9!" + "+ 9999!") == "error: result too large"
    assert calculate("comb(10**9, 10**8)") == calculate("perm(10**9, 10**8)") == "error: result too large"
    assert calculate("exp(exp(exp(9)))") == calculate("exp(10**7)") == "error: result too large"
    assert calculate("1e999 ** 9e99 * 0") == "error: exponent too large"
    assert calculate("\u221a" * 400 + "1") == "error: expression nested too deeply"


def test_depth_within_the_bound_is_answered() -> None:
    levels = MAX_DEPTH - 1
    assert calculate("(" * levels + "1" + ")" * levels) == "1.0"


TEXTS = st.one_of(
    st.text(max_size=600), st.text(alphabet="0123456789.,+-*/^%()[]{}!\\ \u221a\xb2$=?esqrtabfcminx_", max_size=80)
)


@given(TEXTS)
def test_any_text_gets_a_finite_number_or_an_error(text: str) -> None:
    result = calculate(text)
    assert result.startswith("error: ") or math.isfinite(float(result))
    assert len(result) < 120


def rational_expressions() -> st.SearchStrategy[tuple[str, Fraction]]:
    """Fully parenthesised expressions with their exact values, built side by side."""
    numbers = st.one_of(
        st.integers(0, 999).map(lambda number: (str(number), Fraction(number))),
        st.decimals(0, 99, places=2).map(lambda number: (str(number), Fraction(number))),
    )

    def combine(children: st.SearchStrategy[tuple[str, Fraction]]) -> st.SearchStrategy[tuple[str, Fraction]]:
        def join(parts: tuple[tuple[str, Fraction], str, tuple[str, Fraction]]) -> tuple[str, Fraction]:
            (left, x), operator, (right, y) = parts
            if operator == "/" and y == 0:
                operator = "+"
            value = {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "/": lambda: x / y}[operator]()
            return f"({left} {operator} {right})", value

        return st.one_of(
            st.tuples(children, st.sampled_from("+-*/"), children).map(join),
            children.map(lambda part: (f"-{part[0]}", -part[1])),
        )

    return st.recursive(numbers, combine, max_leaves=12)


@given(rational_expressions())
def test_agrees_with_exact_rationals(case: tuple[str, Fraction]) -> None:
    expression, value = case
    assert calculate(expression) == repr(float(value) + 0.0)


@given(st.lists(st.tuples(st.integers(1, 99), st.sampled_from(["+", "-", "*", "/"])), min_size=1, max_size=10))
def test_precedence_agrees_with_sums_of_products(parts: list[tuple[int, str]]) -> None:
    terms: list[Fraction] = []
    for at, (number, _) in enumerate(parts):
        operator = parts[at - 1][1] if at else "+"
        if operator == "*":
            terms[-1] *= number
        elif operator == "/":
            terms[-1] /= number
        else:
            terms.append(Fraction(number if operator == "+" else -number))
    text = "".join(f"{number} {operator} " for number, operator in parts[:-1]) + str(parts[-1][0])
    assert calculate(text) == repr(float(sum(terms)) + 0.0)
