"""envs.problems.word_problems: exact, deterministic, and split by the question alone."""

import random
import re

import pytest

from envs.problems.word_problems import TEMPLATES, Problem, Template, generate, make_flawed
from envs.tools.calculator import calculate
from tests.refused import refused


def test_same_arguments_give_the_same_problems_and_a_larger_count_extends_them() -> None:
    assert generate(50, 3) == generate(80, 3)[:50]
    assert generate(50, 3) != generate(50, 4)


def test_problems_are_different_short_and_copy_their_numbers() -> None:
    problems = generate(2000, 0)
    assert len({problem.question for problem in problems}) == 2000
    for problem in problems:
        assert 15 <= len(problem.question.split()) <= 35
        known = re.findall(r"[0-9]+", problem.question)
        for expression, result in problem.steps:
            left, _, right = expression.split(" ")
            assert left in known and right in known
            assert result > 0 and calculate(expression) == f"{result}.0"
            known.append(str(result))
        assert problem.answer == problem.steps[-1][1]


def test_second_calculation_uses_the_first_result() -> None:
    two = [problem for problem in generate(500, 1) if len(problem.steps) == 2]
    assert len(two) > 200
    assert all(problem.steps[1][0].startswith(f"{problem.steps[0][1]} ") for problem in two)


def test_the_vocabulary_is_small_and_every_template_occurs() -> None:
    problems = generate(2000, 0)
    words = {word for problem in problems for word in re.findall(r"[A-Za-z]+", problem.question)}
    assert len(words) < 120
    shapes = {re.sub(r"[0-9]+", "#", problem.question.split("How")[0]) for problem in problems}
    assert len(TEMPLATES) >= 8 and len(shapes) >= len(TEMPLATES)


def test_no_held_out_question_is_ever_trained_on() -> None:
    train = {problem.question for seed in range(4) for problem in generate(2000, seed, held_out=False)}
    held_out = {problem.question for seed in range(4) for problem in generate(300, seed, held_out=True)}
    assert not train & held_out
    share = sum(problem.held_out for problem in generate(4000, 9)) / 4000
    assert 0.1 < share < 0.15  # one in eight


def test_asking_for_more_than_there_are_is_bad_input(monkeypatch: pytest.MonkeyPatch) -> None:
    template = Template(text="{name}: {a} + {b}, {item}", steps=("a + b",), ranges={"a": (1, 2), "b": (1, 2)})
    monkeypatch.setattr("envs.problems.word_problems.TEMPLATES", (template,))
    monkeypatch.setattr("envs.problems.word_problems.NAMES", ("Ann",))
    with refused(says="49 generated word problems asked"):
        generate(49, 0)


def test_a_mistake_always_ends_in_a_wrong_whole_number() -> None:
    rng = random.Random(0)
    kinds = set()
    for problem in generate(1000, 5):
        steps = make_flawed(problem.steps, rng)
        assert steps[-1][1] != problem.answer
        assert all(calculate(expression) == f"{result}.0" for expression, result in steps)
        kinds.add("early" if steps == problem.steps[:-1] else len(steps))
    assert kinds == {"early", 1, 2}


def test_mistakes_of_a_sum_are_the_expected_ones() -> None:
    problem = Problem(question="", steps=(("6 + 3", 9),))
    seen = {make_flawed(problem.steps, random.Random(seed))[0] for seed in range(300)}
    operators = {("6 - 3", 3), ("6 * 3", 18), ("6 / 3", 2)}
    numbers = {("6 + 1", 7), ("6 + 2", 8), ("6 + 4", 10), ("6 + 5", 11), ("6 + 13", 19)}
    assert seen == operators | numbers
