"""Word problems of one or two calculations, generated: the quickstart's data, learnable by a very small model.

The wording decides the operation, every number of the first calculation is copied from the question, and a second
calculation takes the first one's result. All results are positive whole numbers.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from envs.tasks.splits import HELD_OUT_ONE_IN, make_generated_task
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed
from rlsys.types import Task

MAX_RESULT = 999
Steps = tuple[tuple[str, int], ...]  # (expression, its result), in the order they are calculated
_OPERATORS = ("+", "-", "*", "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Problem(question="Ann buys 6 boxes of 8 pens each and then ...", steps=(("6 * 8", 48), ("48 - 5", 43)))"""

    question: str
    steps: Steps  # the last result is the answer

    @property
    def answer(self) -> int:
        return self.steps[-1][1]

    @property
    def held_out(self) -> bool:
        """Decided by the question alone: the same in every run, whatever the seeds and counts."""
        digest = hashlib.blake2b(self.question.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    text: str
    steps: tuple[str, ...]  # over the letters of `ranges`; `@` is the result before
    ranges: dict[str, tuple[int, int]]  # inclusive


def _templates(table: str) -> Iterator[Template]:
    """Of two lines each: `a * b, @ - c; a 2-9, b 2-12, c 2-60`, and the words."""
    lines = iter(table.splitlines())
    for head, text in zip(lines, lines, strict=True):
        steps, ranges = head.split("; ")
        bounds = {letter: (int(low), int(high)) for letter, low, high in re.findall(r"([a-c]) (\d+)-(\d+)", ranges)}
        yield Template(text=text, steps=tuple(steps.split(", ")), ranges=bounds)


# What is calculated, the numbers it is calculated with, and the words.
TEMPLATES = tuple(
    _templates("""\
a * b; a 2-12, b 2-12
{name} buys {a} boxes of {item} at the shop. Each box holds {b} {item}. How many {item} does {name} buy?
a / b; a 4-99, b 2-9
{name} has {a} {item} and shares all of them equally among {b} friends. How many {item} does each friend get?
a - b; a 5-99, b 2-90
{name} has {a} {item} and then gives away {b} of them to a friend. How many {item} does {name} have left?
a + b; a 2-90, b 2-90
{name} has {a} {item} and then finds {b} more on the way home. How many {item} does {name} have now?
a * b, @ - c; a 2-9, b 2-12, c 2-60
{name} buys {a} boxes of {b} {item} each and then gives away {c} of them. How many {item} does {name} have left?
a * b, @ + c; a 2-9, b 2-12, c 2-60
{name} buys {a} boxes of {b} {item} each and then finds {c} more. How many {item} does {name} have now?
a + b, @ / c; a 2-60, b 2-60, c 2-9
{name} has {a} {item}, finds {b} more and shares all of them equally among {c} friends. \
How many {item} does each friend get?
a - b, @ / c; a 10-99, b 2-80, c 2-9
{name} has {a} {item}, gives away {b} of them and packs the rest into bags of {c}. How many bags does {name} fill?
a / b, @ - c; a 8-99, b 2-9, c 2-30
{name} shares {a} {item} equally among {b} friends. \
Each friend then gives away {c}. How many {item} does each friend have left?
a + b, @ * c; a 2-20, b 2-20, c 2-9
{name} finds {a} {item} every morning and {b} {item} every evening. How many {item} does {name} find in {c} days?
a - b, @ * c; a 4-40, b 2-30, c 2-9
A box of {item} costs {a} dollars, but today it is {b} dollars cheaper. \
How many dollars does {name} pay for {c} boxes?
a * b, @ - c; a 3-20, b 2-9, c 2-60
{name} earns {a} dollars per hour, works for {b} hours and spends {c} dollars on {item}. \
How many dollars does {name} have left?
""")
)
NAMES = ("Ann", "Ben", "Cara", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ivy", "Jack", "Lena", "Max")
ITEMS = ("pens", "books", "apples", "coins", "cards", "stamps", "cakes", "shells", "stones", "beads", "eggs", "plums")


@lru_cache(maxsize=8)
def generate(count: int, seed: int, *, held_out: bool | None = None) -> tuple[Problem, ...]:
    """`count` different problems, the same for the same arguments; `held_out` keeps only one side of the split.

    A larger count extends a smaller one. Raises BadInput when the templates do not hold that many.
    """
    rng = random.Random(derive_seed("word problems", seed))
    unique: dict[str, Problem] = {}
    for _ in range(1000 + 50 * count):
        if len(unique) >= count:
            return tuple(unique.values())
        problem = _draw(rng)
        if held_out is None or problem.held_out == held_out:
            unique.setdefault(problem.question, problem)
    raise BadInput(f"{count} generated word problems asked for: the templates give about {len(unique)} different ones")


def to_task(problem: Problem) -> Task:
    record = {"steps": [list(step) for step in problem.steps]}
    return make_generated_task("word", problem.question, str(problem.answer), record)


def solution_steps(task: Task, rng: random.Random, error_rate: float, *, early: bool = False) -> Steps | None:
    """How a made-up task is solved, in a share `error_rate` of the draws with a mistake; None for a file's task.

    early: the mistake is always to leave out the last of several calculations; a single one is done rightly.
    """
    if task.record.keys() != {"steps"}:  # the record of a file holds its question too
        return None
    steps = tuple((str(expression), int(result)) for expression, result in task.record["steps"])
    if rng.random() >= error_rate:
        return steps
    return (steps[:-1] or steps) if early else make_flawed(steps, rng)


def program(steps: Steps) -> str:
    """All calculations as one: 6 * 8, then 48 - 5, is `print(6 * 8 - 5)`. Every result is whole, and stays so."""
    formula, so_far = "", None
    for expression, result in steps:
        left, operator, right = expression.replace("/", "//").split(" ")
        if left == so_far:
            left = f"({formula})" if operator in ("*", "//") else formula
        elif right == so_far:
            right = f"({formula})"
        formula, so_far = f"{left} {operator} {right}", str(result)
    return f"print({formula})"


def apply(operator: str, left: int, right: int) -> int | None:
    """The exact whole result, or None where there is none."""
    if operator == "/":
        return left // right if right and left % right == 0 else None
    return {"+": left + right, "-": left - right, "*": left * right}[operator]


def make_flawed(steps: Steps, rng: random.Random) -> Steps:
    """The calculations with one mistake, so that the last result is wrong.

    Of the kinds that this problem allows, one is drawn: a wrong operator, swapped operands, a wrong number, or stopping
    one calculation early. Results stay whole numbers; after a mistake the rest is done rightly on the wrong result.
    """
    answer = steps[-1][1]
    mistakes = [(kind, redone) for kind, redone in _mistakes(steps) if redone and redone[-1][1] != answer]
    drawn_kind = rng.choice(sorted({kind for kind, _ in mistakes}))
    return rng.choice([redone for kind, redone in mistakes if kind == drawn_kind])


def _mistakes(steps: Steps) -> Iterator[tuple[str, Steps | None]]:
    """Every mistake with its kind; None where it has no whole result. Some lead to the right answer all the same."""
    if len(steps) > 1:
        yield "early", steps[:-1]
    for at, (expression, _) in enumerate(steps):
        left, operator, right = expression.split(" ")
        for substitute in _OPERATORS:
            if substitute != operator:
                yield "operator", _redo(steps, at, f"{left} {substitute} {right}")
        yield "swapped", _redo(steps, at, f"{right} {operator} {left}")
        for shift in (-10, -2, -1, 1, 2, 10):
            if int(right) + shift > 0:
                yield "number", _redo(steps, at, f"{left} {operator} {int(right) + shift}")


def _redo(steps: Steps, at: int, expression: str) -> Steps | None:
    """The steps with `expression` at index `at`, later ones recalculated from its result; None if one is not whole."""
    later = ["@ " + expression.partition(" ")[2] for expression, _ in steps[at + 1 :]]
    redone = _solve([expression, *later])
    return None if redone is None else (*steps[:at], *redone)


def _solve(expressions: Iterable[str]) -> Steps | None:
    """The expressions with their results; None if one is not whole."""
    steps: list[tuple[str, int]] = []
    for expression in expressions:
        expression = expression.replace("@", str(steps[-1][1])) if steps else expression
        left, operator, right = expression.split(" ")
        result = apply(operator, int(left), int(right))
        if result is None:
            return None
        steps.append((expression, result))
    return tuple(steps)


def _draw(rng: random.Random) -> Problem:
    """One problem: numbers are drawn again until every result is whole, positive and short."""
    template = rng.choice(TEMPLATES)
    words = {"name": rng.choice(NAMES), "item": rng.choice(ITEMS)}
    while True:
        numbers = {letter: rng.randint(low, high) for letter, (low, high) in template.ranges.items()}
        filled = [" ".join(str(numbers.get(word, word)) for word in step.split(" ")) for step in template.steps]
        steps = _solve(filled)
        if steps is not None and all(0 < result <= MAX_RESULT for _, result in steps):
            return Problem(question=template.text.format(**words, **numbers), steps=steps)
