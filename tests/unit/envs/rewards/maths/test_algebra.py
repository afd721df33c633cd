"""envs.rewards.maths.algebra: what only SymPy can tell."""

from fractions import Fraction

import pytest

from envs.rewards.maths import algebra
from envs.rewards.maths.algebra import is_rounding, is_same_statement
from envs.rewards.maths.compare import equivalent


@pytest.mark.parametrize(
    ("given", "gold", "same"),
    [
        ("y > 2x", "2x - y < 0", True),
        ("y > 2x", r"x < \frac{y}{2}", True),
        ("y > 2x", r"x > \frac{y}{2}", False),
        ("y > 2x", "2x - y > 0", False),
        ("y > 2x", r"2x - y \le 0", False),
        (r"y \ge 2x", r"4x - 2y \le 0", True),
        (r"(1,2) \cup (3,4)", r"(3,4) \cup (1,2)", True),
        (r"(1,2) \cup (3,4)", "(1,4)", False),
        (r"x < 1, x > 3", r"(-\infty,1) \cup (3,\infty)", True),
        (r"x > 1, x < 3", "(1,3)", True),
        (r"\mathbb{R} \setminus \{1,2\}", r"x \ne 1, x \ne 2", True),
        ("x^2 + y^2 = 1", "2 = 2x^2 + 2y^2", True),
        ("x^2 + y^2 = 1", "x^2 - y^2 = 1", False),
        ("x > 1", "y > 1", False),
        ("0 < 1", r"\mathbb{R}", True),
        ("1 < 0", r"\{\}", True),
        ("x < 1, 0 < 1", "x < 1", True),
        (r"x \le 1 \cap x \ge 0", r"0 \le x \le 1", True),
        ("x = 1", "1", False),
        (r"\frac{x^2-1}{x-1}", "x+1", True),
        ("x^2 + C", "x^2 + k", True),
        ("a(b+c)", "ab+ac", True),
        ("f(x)", "fx", False),
        ("x^2 + k", "k + x^2", True),
        ("x^2 + C", "x^2", False),
        ("x + y > 1", "1 - x - y < 0", True),
        ("x + y > 1", r"x + y \ge 1", False),
        ("x + y > 1", "2 > 2x + 2y", False),
        ("a + x > 1", "1 < x + a", True),
    ],
)
def test_two_statements(given: str, gold: str, same: bool) -> None:
    assert is_same_statement(given, gold) is same


def test_a_matrix_is_no_number() -> None:
    cell = r"\begin{pmatrix}1\end{pmatrix}"
    assert is_same_statement(cell, "1") is is_same_statement("1", cell) is False


def test_a_multiple_of_a_matrix_is_a_matrix() -> None:
    assert equivalent(r"2\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}2&4\end{pmatrix}")
    assert not equivalent(r"2\begin{pmatrix}1&2\end{pmatrix}", r"\begin{pmatrix}2&2\end{pmatrix}")
    assert not equivalent(r"2\begin{pmatrix}1\end{pmatrix}", r"\begin{pmatrix}2&2\end{pmatrix}")


def test_a_rounded_number_is_within_half_a_place() -> None:
    assert is_rounding(r"\sqrt{2}", Fraction("1.41"), Fraction("0.005"))
    assert not is_rounding(r"\sqrt{2}", Fraction("1.42"), Fraction("0.005"))
    assert is_rounding("x", Fraction(1), Fraction(1)) is is_rounding(r"\frac{", Fraction(1), Fraction(1)) is False
    assert is_rounding(r"\sqrt{4}", Fraction("2.5"), Fraction("0.5")) is True  # on the bound


def test_a_lack_of_memory_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(text: str) -> None:
        raise MemoryError

    monkeypatch.setattr(algebra, "parse_relation", full)
    with pytest.raises(MemoryError):
        is_same_statement("x", "y")
    monkeypatch.undo()
    monkeypatch.setattr(algebra, "normalize_latex", lambda *args, **named: full(""))
    with pytest.raises(MemoryError):
        is_same_statement("x + 17", "y + 17")


def test_what_is_nested_too_deep_is_not_read() -> None:
    for depth, expected in ((12, True), (13, False)):
        assert is_same_statement("-(" * depth + "x" + ")" * depth, "-" * (depth % 2) + "x") is expected
