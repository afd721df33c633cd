"""The letter of a family of solutions, which stands for any integer."""

import pytest

from envs.rewards.maths.compare import equivalent
from envs.rewards.maths.counters import rename_counter

KEY = r"\frac{\pi}{2}+k\pi"
CLAUSES = [
    r"n \in \mathbb{Z}",
    r"where n is an integer",
    r"\text{ for any integer } n",
    r"(n \in \mathbb{Z})",
    r"\forall n \in Z",
    r"\text{, where n is any integer}",
]


@pytest.mark.parametrize("clause", CLAUSES)
def test_another_letter_will_do_where_it_is_said_to_be_any_integer(clause: str) -> None:
    joint = "" if clause.startswith((r"\text", "(", "where")) else ","
    assert rename_counter(rf"\frac{{\pi}}{{2}}+n\pi{joint} {clause}", KEY)[0] == KEY
    assert equivalent(rf"\frac{{\pi}}{{2}}+n\pi{joint} {clause}", KEY)
    assert not equivalent(rf"\frac{{\pi}}{{2}}+2n\pi{joint} {clause}", KEY)


def test_the_key_may_say_it_and_the_set_too() -> None:
    assert equivalent(r"x = n\pi \text{ or } x = \frac{\pi}{6}+2n\pi", r"k\pi, \frac{\pi}{6}+2k\pi, k \in \mathbb{Z}")
    assert equivalent(r"\{ \frac{\pi}{2}+n\pi : n \in \mathbb{Z} \}", rf"{KEY}, k \in \mathbb{{Z}}")


def test_without_the_word_a_letter_is_a_letter() -> None:
    assert rename_counter("2n+1", "2k+1") == ("2n+1", "2k+1")
    assert not equivalent("2n+1", "2k+1")
    assert rename_counter(r"\mathbb{Z}", r"\mathbb{Z}") == (r"\mathbb{Z}",) * 2
    assert rename_counter("an integer", "an integer") == ("an integer", "an integer")
