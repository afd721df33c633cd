"""envs.papers.long_cot.pairs: one pair is right, a solution tries until it has it or gives up, and may repeat a try."""

import random

import pytest

from envs.papers.long_cot.pairs import PairProblem, Try, generate, problem_of_task, solution, to_task, tries
from envs.tasks.splits import is_held_out
from tests.refused import refused

PROBLEM = PairProblem(numbers=(4, 7, 11, 16), total=20)


class Draws(random.Random):
    """Pairs in their order, and the numbers between 0 and 1 that are given."""

    def __init__(self, *between: float) -> None:
        super().__init__(0)
        self.between = list(between)

    def sample(self, population, k):  # type: ignore[no-untyped-def]
        return list(population)[:k]

    def random(self) -> float:
        return self.between.pop(0)

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return seq[0]


def test_a_solution_tries_until_it_is_right() -> None:
    assert PROBLEM.question == "Which two of 4 7 11 16 add up to 20?" and PROBLEM.answer == "4, 16"
    keep_on = [0.9, 0.9, 0.9, 0.9]  # not given up, not repeated, not given up, not repeated
    found = "20: 4+7=11 no\n20: 4+11=15 no\n20: 4+16=20 yes"
    assert solution(PROBLEM, Draws(*keep_on), give_up=0.5, repeat=0.5) == (found, "4, 16")


def test_a_solution_gives_up_with_its_last_try_and_may_repeat_an_old_one() -> None:
    assert solution(PROBLEM, Draws(0.1), give_up=0.5, repeat=0.5) == ("20: 4+7=11 no", "4, 7")
    again = [0.9, 0.1, 0.9, 0.9, 0.1]  # on, an old one, on, a new one, up
    given_up = "20: 4+7=11 no\n20: 4+7=11 no\n20: 4+11=15 no"
    assert solution(PROBLEM, Draws(*again), give_up=0.5, repeat=0.5) == (given_up, "4, 11")


def test_a_try_is_right_one_time_in_as_many_as_there_are_pairs() -> None:
    problems = generate(2000, 0, numbers=8, smallest=1, largest=30, held_out=False)
    written = [tries(solution(p, random.Random(at), give_up=1.0, repeat=0.0)[0]) for at, p in enumerate(problems)]
    assert {len(of_one) for of_one in written} == {1}
    assert sum(of_one[0].verdict for of_one in written) / 2000 == pytest.approx(1 / 28, abs=0.012)  # 3 deviations
    to_the_end = [solution(p, random.Random(0), give_up=0.0, repeat=0.3) for p in problems[:50]]
    assert [answer for _, answer in to_the_end] == [p.answer for p in problems[:50]]


def test_tries_are_read_from_what_a_policy_wrote() -> None:
    text = "20: 4+7=11 no\n11: 7+4=11 no\n20: 7+4=12 no\n20: 4+ 11=15 no 20: 4+16=20 maybe\n\\boxed{4, 16}"
    read = tries(text)
    assert read[0] == Try(wanted=20, pair=(4, 7), total=11, verdict=False)
    assert [line.pair for line in read] == [(4, 7), (7, 4), (7, 4)]
    assert [line.is_true for line in read] == [True, False, False]  # the second is what was wanted, the third no sum


def test_problems_differ_have_one_answer_and_keep_to_the_split() -> None:
    train, held_out = (
        generate(count, 0, numbers=5, smallest=1, largest=12, held_out=side) for count, side in ((200, 0), (40, 1))
    )
    assert len(set(train)) == 200 and len(set(held_out)) == 40
    for problem in train:
        assert [sum(pair) for pair in problem.pairs].count(problem.total) == 1
        assert len(set(problem.numbers)) == 5 and max(problem.numbers) <= 12
        assert problem_of_task(to_task(problem)) == problem and to_task(problem).answers == (problem.answer,)
    assert not any(is_held_out(problem.question) for problem in train)
    assert all(is_held_out(problem.question) for problem in held_out)
    assert generate(50, 0, numbers=5, smallest=1, largest=12, held_out=False) == train[:50]
    assert generate(50, 1, numbers=5, smallest=1, largest=12, held_out=False) != train[:50]


def test_more_problems_than_there_are_is_bad_input() -> None:
    with refused(says="raise env.largest"):
        generate(100, 0, numbers=3, smallest=1, largest=4, held_out=False)
