"""A question that is copied is no answer; an answer in another form that is worked out is."""

import pytest

from envs.rewards.maths.compare import decide, equivalent

COPIED = [
    (r"\sum_{k=1}^{100} k", "5050"),
    (r"17 \times 23", "391"),
    ("17 * 23", "391"),
    ("(17)(23)", "391"),
    (r"\int_0^1 x\,dx", r"\frac12"),
    (r"\binom{20}{10}", "184756"),
    (r"\lim_{x\to 0} \frac{\sin 3x}{x}", "3"),
    (r"\det\begin{pmatrix}1&2\\3&4\end{pmatrix}", "-2"),
    (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
    ("(x+1)^5", "x^5+5x^4+10x^3+10x^2+5x+1"),
    ("x^2-5x+6", "(x-2)(x-3)"),
    (r"\sqrt{72}", r"6\sqrt2"),
    ("3x+5=20", "x=5"),
    ("2x-3>7", "x>5"),
    ("x^2-5x+6<0", "(2,3)"),
    ("|x-1|<3", "(-2,4)"),
    (r"7 \mod 3", "1"),
    (r"\frac{d}{dx}x^3", "3x^2"),
    (r"\log_5\frac1{625}", "-4"),
    (r"\frac13+\frac14", r"\frac7{12}"),
    (r"\frac{13}{3-2i}", "3+2i"),
    ("2x+3x+3", "5x+3"),
    ("x^2 x^3", "x^5"),
    (r"3\cdot4\pi", r"12\pi"),
    ("A = P(1+rt)", r"r = \frac{A-P}{Pt}"),
]
WORKED_OUT = [
    ("2^{10}", "1024"),
    (r"\frac{27}{30}", r"\frac9{10}"),
    (r"\pi\cdot 12", r"12\pi"),
    (r"2 + 3 = 5", "5"),
    ("2a+2b", "2(a+b)"),
    ("2y - 4x - 2 = 0", "y = 2x+1"),
    (r"2\sin x\cos x", r"\sin 2x"),
    (r"x\sqrt{x}", "x^{3/2}"),
    (r"\frac{3x}{(x-1)(x+1)}", r"\frac{3x}{x^2-1}"),
    ("-(3/4)", "-0.75"),
    (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"),
]


@pytest.mark.parametrize(("given", "gold"), COPIED)
def test_a_copied_question_is_no_answer(given: str, gold: str) -> None:
    assert decide(given, [gold]) is not True and not equivalent(given, gold) and equivalent(gold, gold)


@pytest.mark.parametrize(("given", "gold"), WORKED_OUT)
def test_another_form_that_is_worked_out_is_one(given: str, gold: str) -> None:
    assert equivalent(given, gold)
