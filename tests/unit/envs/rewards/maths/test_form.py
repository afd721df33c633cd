"""A question that is copied is no answer; an answer in another form that is worked out is one."""

import pytest

from envs.rewards.maths.compare import decide, equivalent

LEFT_TO_DO = [
    (r"\sum_{k=1}^{100} k", "5050"),
    (r"17 \times 23", "391"),
    ("17 * 23", "391"),
    (r"17\cdot{23}", "391"),
    (r"(17)\times(23)", "391"),
    ("(17)(23)", "391"),
    (r"15\% \cdot 80", "12"),
    (r"391 \div 17 + 1", "24"),
    (r"\int_0^1 x\,dx", r"\frac12"),
    (r"\lim_{x\to 0} \frac{\sin 3x}{x}", "3"),
    (r"\det\begin{pmatrix}1&2\\3&4\end{pmatrix}", "-2"),
    (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", "-2"),
    ("3x+5=20", "x=5"),
    ("2x-3>7", "x>5"),
    ("x^2-5x+6<0", "(2,3)"),
    ("|x-1|<3", "(-2,4)"),
    (r"7 \mod 3", "1"),
    (r"\frac{d}{dx}x^3", "3x^2"),
    (r"\frac{\mathrm{d}}{\mathrm{d}x}x^3", "3x^2"),
    (r"\frac13+\frac14", r"\frac7{12}"),
]
WORKED_OUT = [
    ("2^{10}", "1024"),
    (r"\binom{20}{10}", "184756"),
    (r"\frac{27}{30}", r"\frac9{10}"),
    (r"\pi\cdot 12", r"12\pi"),
    (r"2 + 3 = 5", "5"),
    ("2a+2b", "2(a+b)"),
    ("(x+1)^2", "x^2+2x+1"),
    ("2y - 4x - 2 = 0", "y = 2x+1"),
    (r"2\sin x\cos x", r"\sin 2x"),
    (r"x\sqrt{x}", "x^{3/2}"),
    (r"\frac{d}{2}", "d/2"),
    ("-(3/4)", "-0.75"),
    (r"\frac{1}{2^{10}}", r"\frac{1}{1024}"),
    (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"),
    (r"x > 1 \text{ and } x < 3", "(1,3)"),
    (r"0.6931\ldots", "0.6931"),
    ("1/2 dozen", "6"),
    (r"\frac12\text{ dozen}", "6"),
    ("b = a/2", "a = 2b"),
]
COPIED = [
    ("Expand $(x+1)^5$.", "(x+1)^5", "x^5+5x^4+10x^3+10x^2+5x+1"),
    ("Expand $f(x) = (x+1)^2$.", "f(x) = (x+1)^2", "x^2+2x+1"),
    ("Factor $x^2 - 5x + 6$.", "x^2-5x+6", "(x-2)(x-3)"),
    (r"Simplify $\sqrt{72}$.", r"\sqrt {72}", r"6\sqrt2"),
    (r"Rationalize $\dfrac{1}{\sqrt2}$.", r"\frac{1}{\sqrt{2}}", r"\frac{\sqrt2}{2}"),
    (r"What is $\dbinom{20}{10}$?", r"\binom{20}{10}", "184756"),
    (r"Evaluate $\log_5\frac1{625}$.", r"\log_5\frac1{625}", "-4"),
    ("What is $2^{10}$?", "2^{10}", "1024"),
    (r"Compute $\sin 30^\circ$.", r"\sin(30^{\circ})", r"\frac12"),
    (r"Write $\frac{13}{3-2i}$ as $a+bi$.", r"\frac{13}{3-2i}", "3+2i"),
    ("Simplify $2x+3x+3$.", "2x+3x+3", "5x+3"),
    (r"Simplify the fraction $\frac{27}{30}$.", r"\frac{27}{30}", r"\frac9{10}"),
    (r"Convert $\frac{60}{7}$ to a mixed number.", r"\frac{60}{7}", r"8\frac47"),
    ("Write $0.75$ as a fraction.", "0.75", r"\frac34"),
    ("Write 0.5 in per cent.", "0.5", r"50\%"),
    (r"Convert $7 \mathrm{mi}$ to yards.", r"7\text{ mi}", r"12320\text{ yd}"),
    (r"Convert $150^\circ$ to radians.", r"150^\circ", r"\frac{5\pi}{6}"),
    (r"Approximate $\cos(e)$.", r"\cos(e)", r"\cos(e) \approx -0.912"),
    ("Expand $(x+1)^2$.", "y = (x+1)**2.", "x^2+2x+1"),
    ("Expand $(x+1)^2$.", "(1+x)^2", "x^2+2x+1"),
    ("Solve $A = P(1+rt)$ for $r$.", "A = P(1+rt)", r"r = \frac{A-P}{Pt}"),
    (r"Expand $\big(x+1\big)²$.", "[x+1]^2", "x^2+2x+1"),
    (r"Simplify $\frac{27}{30}$.", "27/30", r"\frac9{10}"),
    ("Write $x < 5$ in interval notation.", "x<5", r"(-\infty,5)"),
    (
        r"Compute \[\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}1\\1\end{pmatrix}\]",
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}\begin{pmatrix}1\\1\end{pmatrix}",
        r"\begin{pmatrix}3\\7\end{pmatrix}",
    ),
]
CHANGED = [  # in looks alone
    "(x+1)^5+0",
    "0 + (x+1)^5",
    "(x+1)^5 - 0x",
    r"(x+1)^5\cdot 1",
    r"1\times(x+1)^5",
    "1(x+1)^5",
    "(x+1)^5 (1)",
    "-(-(x+1)^5)",
    "(x--1)^5",
    "+(1+x)^5",
    "(x+1)^5/1",
    r"\frac{(x+1)^5}{1}",
    "((x+1)^5)^1",
    "(x+1)^5+3-3",
    r"(x+1)^5\cdot\frac{2}{2}",
    "y = (x+1)^{5} + 0.0",
    "(1x+1.0)^5",
    "2(x+1)^5/2",
    r"\frac{2(x+1)^5}{2}",
    r"0\cdot x+(x+1)^5 + (0)",
    "(x+1)^5 e^0",
    r"(x+\frac{2}{2})^5",
    "(x+1)^5 = (x+1)^5",
]
SAID_BEFORE = [  # right answers that stand in their question
    ("A coin shows heads with probability 1/2. With which tails?", "1/2", r"\frac12"),
    ("A pen is $1.50, and so is a book. What is a book, in dollars?", "1.50", "1.5"),
    ("One car drives at $48 \\mathrm{mph}$; how fast is the other?", r"48 \mathrm{mph}", "48"),
    ("Let $f(x) = x+1$. What is $f(x)$?", "x+1", "1+x"),
    ("Which lies higher, $(2,3)$ or $(3,2)$?", "(2,3)", "(2, 3)"),
    ("What is wrong, (A) 3 or (B) 4?", "B", r"\text{(B)}"),
    ("Is 15 larger than 5?", "5", "5.0"),
    ("For which $x$ is $x>3$ or $x<-9$ false ...", "x>3", r"(3,\infty)"),
    ("Who is older, Ann or Bob?", "Bob", "bob"),
    (r"Let $\theta = \pi/2$. What is $\theta$?", r"\pi/2", r"\frac{\pi}{2}"),
    ("If 50 of 100 students pass, what percentage is that?", "50", r"50\%"),
    ("[asy] draw((3,0.5)); [/asy] Write the share as a fraction.", "0.5", r"\frac12"),
    ("A coin has probability 1/2. What is it for tails?", "1/2", "0.5"),
]


@pytest.mark.parametrize(("given", "gold"), LEFT_TO_DO)
def test_work_that_is_left_to_do_is_no_answer(given: str, gold: str) -> None:
    assert decide(given, [gold]) is not True and not equivalent(given, gold) and equivalent(gold, gold)


@pytest.mark.parametrize(("given", "gold"), WORKED_OUT)
def test_another_form_that_is_worked_out_is_one(given: str, gold: str) -> None:
    assert equivalent(given, gold)


@pytest.mark.parametrize(("question", "given", "gold"), COPIED)
def test_a_copied_question_is_no_answer(question: str, given: str, gold: str) -> None:
    assert decide(given, [gold], question) is False and decide(gold, [gold], question) is True
    assert decide(given, [gold], "Another question.") is not False and equivalent(given, gold)


@pytest.mark.parametrize("given", CHANGED)
def test_a_copy_that_is_changed_in_looks_alone_is_none(given: str) -> None:
    for question in ("Expand $(x+1)^5$.", r"Expand \((x+1)^5\).", r"Expand \[(x+1)^5.\]"):
        assert decide(given, [r"x^5+5x^4+10x^3+10x^2+5x+1"], question) is False
    assert decide("(x+2)^5", ["x^5+5x^4+10x^3+10x^2+5x+1"], "Expand $(x+1)^5$.") is None


@pytest.mark.parametrize(
    ("given", "gold", "shown"),
    [
        ("x^{1/2}", r"\sqrt{x}", "x/2"),
        ("2^{1+x}", r"2\cdot 2^x", "2+x"),
        ("x^{0+y}", "x^y", "x+y"),
        ("10x", "x*10", "x"),
    ],
)
def test_what_only_looks_like_a_neutral_part_is_none(given: str, gold: str, shown: str) -> None:
    assert decide(given, [gold], f"Let $z = {shown}$. What is it?") is not False


def test_terms_in_another_order_are_a_copy_and_a_key_in_another_order_is_right() -> None:
    question = r"Factor \(x^2 - 5x + 6\)."
    for answer in ("6-5x+x^2", "-5x+x^2+6", "x^2+(-5x)+6", "x^2 - 5x + 6 + 0"):
        assert decide(answer, ["(x-2)(x-3)"], question) is False
        assert decide(answer, ["x^2-5x+6"], question) is not False
    assert decide("(x-3)(x-2)", ["(x-2)(x-3)"], question) is None


@pytest.mark.parametrize(("question", "given", "gold"), SAID_BEFORE)
def test_an_answer_that_stands_in_its_question_is_right(question: str, given: str, gold: str) -> None:
    assert decide(given, [gold], question) is not False and equivalent(given, gold)
