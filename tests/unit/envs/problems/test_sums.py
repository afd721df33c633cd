"""envs.problems.sums: the arithmetic is right where it should be and wrong where it slips."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from envs.problems.sums import RECHECK, ArithmeticSlip, SumsConfig, draw_slip, generate, question, solution
from envs.tasks.splits import is_held_out
from tests.refused import refused

TERMS = st.lists(st.integers(1, 10**6), min_size=2, max_size=6).map(tuple)


def test_a_solution_by_columns_and_one_in_one_go() -> None:
    assert question((47, 85, 9)) == "What is 47 + 85 + 9?"
    by_columns = "47 + 85: 7+5=12 4+8+1=13 so 132\n132 + 9: 2+9=11 3+0+1=4 1+0=1 so 141"
    assert solution((47, 85, 9), columns=True) == (by_columns, 141)
    assert solution((47, 85, 9), columns=False) == ("47 + 85 = 132\n132 + 9 = 141", 141)


def test_a_doubted_line_is_written_again_and_a_mistake_that_nobody_saw_is_not() -> None:
    twice = "47 + 85 = 132\nWait, recheck.\n47 + 85 = 132\n132 + 9 = 141"
    assert solution((47, 85, 9), columns=False, doubts=(1, 0)) == (twice, 141)
    slip = ArithmeticSlip(addition=0, column=0, shift=-1)
    assert solution((47, 85, 9), columns=False, slip=slip, doubts=(3, 0)) == ("47 + 85 = 131\n131 + 9 = 140", 140)
    seen, total = solution((47, 85, 9), columns=False, slip=slip, recheck=True, doubts=(1, 0))
    assert seen.count("Wait, recheck.\n47 + 85 = 132") == 2 and total == 141


def test_a_slip_in_one_column_is_carried_on() -> None:
    slip = ArithmeticSlip(addition=0, column=0, shift=-1)
    assert solution((12, 8), columns=True, slip=slip) == ("12 + 8: 2+8=9 1+0=1 so 19", 19)
    assert solution((47, 85, 9), columns=False, slip=slip) == ("47 + 85 = 131\n131 + 9 = 140", 140)
    lines, total = solution((47, 85, 9), columns=False, slip=slip, recheck=True)
    assert lines.splitlines() == ["47 + 85 = 131", RECHECK, "47 + 85 = 132", "132 + 9 = 141"] and total == 141


@given(TERMS, st.booleans(), st.integers())
def test_every_line_adds_up_unless_it_slips(terms: tuple[int, ...], columns: bool, seed: int) -> None:
    assert solution(terms, columns=columns)[1] == sum(terms)
    slip = draw_slip(terms, random.Random(seed))
    text, total = solution(terms, columns=columns, slip=slip)
    assert total == sum(terms) + slip.shift * 10**slip.column >= 0
    assert solution(terms, columns=columns, slip=slip, recheck=True)[1] == sum(terms)
    equations = re.findall(r"([0-9+ ]+)= ?([0-9]+)", text)
    wrong = [(left, right) for left, right in equations if sum(map(int, left.split("+"))) != int(right)]
    assert len(wrong) == 1
    if columns:
        for line in text.splitlines():  # the total copies its columns
            digits = re.findall(r"=([0-9]+)", line)
            copied = digits[-1] + "".join(digit[-1] for digit in reversed(digits[:-1]))
            assert int(copied) == int(line.rpartition(" ")[2])


def test_generated_sums_differ_and_keep_to_the_config_and_the_split() -> None:
    config = SumsConfig(min_terms=3, max_terms=5, digits=3)
    train, held_out = generate(300, 0, config, held_out=False), generate(50, 0, config, held_out=True)
    assert len(set(train)) == 300 and len(set(held_out)) == 50
    assert {len(terms) for terms in train} == {3, 4, 5}
    assert all(1 <= term <= 999 for terms in train for term in terms)
    assert not any(is_held_out(question(terms)) for terms in train)
    assert all(is_held_out(question(terms)) for terms in held_out)
    assert generate(100, 0, config, held_out=False) == train[:100]
    assert generate(100, 1, config, held_out=False) != train[:100]


def test_every_digit_is_asked_for() -> None:
    drawn = generate(60, 0, SumsConfig(min_terms=2, max_terms=3, digits=1), held_out=False)
    assert {term for terms in drawn for term in terms} == set(range(1, 10))


def test_more_terms_are_a_longer_solution() -> None:
    lengths = [len(solution(tuple([57] * number), columns=True)[0]) for number in (2, 4, 8)]
    assert lengths[1] > 2 * lengths[0] and lengths[2] > 2 * lengths[1]


def test_too_many_sums_or_a_bad_setting_is_bad_input() -> None:
    with refused(says="raise env.sums.max_terms or"):
        generate(300, 0, SumsConfig(max_terms=2, digits=1), held_out=False)
    with refused("env.sums.max_terms", found=2):
        SumsConfig(min_terms=3, max_terms=2)
