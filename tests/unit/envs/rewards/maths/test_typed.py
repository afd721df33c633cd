"""Mathematics as it is typed or dressed is the same as in LaTeX."""

import pytest

from envs.rewards.maths.compare import decide, equivalent
from envs.rewards.maths.text import clean
from envs.rewards.maths.typed import split_modulus
from tests.work import lines_run

SAME = [
    ("sin(x)", r"\sin x"),
    ("ln(2)", r"\ln 2"),
    (r"\log 2", r"\ln 2"),
    ("atan(2)", r"\arctan 2"),
    ("log2(3)", r"\log_2 3"),
    ("exp(2*x)", "e^{2x}"),
    ("2*x**2 + 3*x", "2x^2+3x"),
    ("0.(27)", r"\frac{3}{11}"),
    ("0.333...", r"\frac13"),
    (r"0.\dot{1}2\dot{3}", r"\frac{41}{333}"),
    ("0.3 repeating", r"\frac13"),
    (
        r"\begin{cases} -x & \text{if } x<0 \\ x & \text{otherwise} \end{cases}",
        r"\begin{cases} x, & x\ge 0, \\ -x, & x<0. \end{cases}",
    ),
    (r"x \equiv 3 \pmod{7}", "3 mod 7"),
    ("+/- 2", r"\pm 2"),
    (r"\textcolor{red}{5}", "5"),
    (r"\therefore x = 5", "5"),
    (r"{10 \choose 3}", r"\binom{10}{3}"),
    ("_{10}C_3", r"\binom{10}{3}"),
    ("∛2", r"\sqrt[3]{2}"),
    (r"45^\circ 30'", r"45.5^\circ"),
    ("x=2\nx=3", "2, 3"),
    ("]2,5]", "(2,5]"),
    ("(-inf,1) U (2,inf)", r"(-\infty,1)\cup(2,\infty)"),
    ("[1,2,3]^T", r"\begin{pmatrix}1\\2\\3\end{pmatrix}"),
    ("i + 2j + 3k", "(1,2,3)"),
    ("2h30m", r"150\text{ min}"),
    ("f(t)=t^2", "f(x)=x^2"),
    ("C(2,3)", "(2,3)"),
    ("A(1,2), B(3,4), C(5,6)", "(1,2),(3,4),(5,6)"),
    ("0.2(50) = 10", "10"),
    ("1.5(2)^x", r"1.5 \cdot 2^x"),
    ("x^2 + 2x\n+ 1", "x^2+2x+1"),
    ("5\ncm", "5 cm"),
    (r"50\\%", r"50\%"),
    ("t^{2}C_2+C_1", "C_1+C_2t^2"),
    ("5 min (approx)", "5"),
    ("a tan shirt", "tan shirt"),
    ("1C2", "1C2_{16}"),
    ("3 +-5i", "3-5i"),
    (r"\log (2(x+1))", r"\log 2(x+1)"),
]
DIFFERENT = [
    ("2sin(x)", "sin(2x)"),
    (r"\log 2(x+1)", r"\log_2(x+1)"),
    ("2i+3i", "(3,0)"),
    ("1/24", "1/2 dozen"),
    ("u(t)-u(1)", "u(t-1)"),
    (r"2\zeta(1)", r"\zeta(2)"),
    ("3, 2", "x=2, y=3"),
    ("11_2", "11"),
    ("f(t)=x^2", "f(x)=x^2"),
    (r"n \bmod 2", "n"),
    (r"\begin{cases} x & x<0 \\ -x & x\ge 0 \end{cases}", r"\begin{cases} x & x\ge 0 \\ -x & x<0 \end{cases}"),
    ("**5** or **6**", "5"),
]


@pytest.mark.parametrize(("given", "gold"), SAME)
def test_the_same_answer(given: str, gold: str) -> None:
    assert equivalent(given, gold)


@pytest.mark.parametrize(("given", "gold"), DIFFERENT)
def test_another_answer(given: str, gold: str) -> None:
    assert not equivalent(given, gold)


def test_a_modulus_stands_apart() -> None:
    assert split_modulus(r"x \equiv 3 \pmod{7}") == ("3", "7") and split_modulus("3") == ("3", "")
    assert clean("the max of 5") == "the max of 5"


@pytest.mark.parametrize(
    "flood",
    [
        "(",
        "x is ",
        "if ",
        "for all ",
        "k in Z ",
        "]1,",
        "0.3",
        "1",
        "1 dozen",
        r"{1} score",
        r"\dot",
        "sin",
        "{1\n",
        "1C",
        "i+",
        "1/2 ",
        "of the ",
    ],
)
def test_a_flood_is_read_in_a_bounded_number_of_steps(flood: str) -> None:
    assert lines_run(lambda: decide(flood * (1999 // len(flood)), ["5"])) < 400_000


@pytest.mark.parametrize(
    ("given", "gold", "other"),
    [
        ("3/4 x", r"\frac34 x", r"\frac{3}{4x}"),
        ("-3/4x + 1", r"1-\frac{3x}{4}", r"1-\frac{3}{4x}"),
        ("4/3pi", r"\frac{4\pi}{3}", r"\frac{4}{3\pi}"),
        ("1/2 sqrt(3)", r"\frac{\sqrt3}{2}", r"\frac{1}{2\sqrt3}"),
        ("1/2(x+1)", r"\frac{x+1}{2}", r"\frac{1}{2(x+1)}"),
        ("1/2 + sqrt(3)/2 i", r"\frac12+\frac{\sqrt3}{2}i", r"\frac12+\frac{\sqrt3}{2i}"),
        ("2 1/2 cups", "2.5", "1"),
        ("3/4 cup", r"\frac34", "3"),
    ],
)
def test_a_slash_is_read_from_the_left(given: str, gold: str, other: str) -> None:
    assert equivalent(given, gold) and not equivalent(given, other)


@pytest.mark.parametrize(
    "given",
    [
        "**Final answer:** \\(17\\)",
        "**Final Answer**: $17$",
        "Answer: **17**",
        "The answer is \\[17\\]",
        "It has 17 legs. #### 17",
        "$x$ equals $17$",
        "x is equal to 17",
        "x is 17",
    ],
)
def test_what_stands_around_an_answer(given: str) -> None:
    assert equivalent(given, "17") and not equivalent(given, "71")
