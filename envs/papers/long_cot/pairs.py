"""Two numbers of a list that have a sum, looked for one try after another: each further try is as likely to be right.

    Which two of 14 17 21 26 28 31 35 add up to 56?
    56: 14+21=35 no
    56: 17+28=45 no           a try that fails says nothing about the others
    56: 21+35=56 yes
    \\boxed{21, 35}            after the last try, right or not

Skill makes no try better, only more tries, and none twice. So an answer is right as often as it is long: what a reward
on length, a window and a penalty on repetition have to weigh.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from envs.tasks.splits import is_held_out, make_generated_task
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed
from rlsys.types import Task

Pair = tuple[int, int]
_TRY = re.compile(r"(\d+): (\d+)\+(\d+)=(\d+) (yes|no)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PairProblem:
    """PairProblem(numbers=(4, 7, 11), total=18): 7 and 11 are the one pair that has this sum."""

    numbers: tuple[int, ...]  # different, rising
    total: int

    @property
    def pairs(self) -> list[Pair]:
        return list(combinations(self.numbers, 2))

    @property
    def answer(self) -> str:
        return ", ".join(str(number) for pair in self.pairs if sum(pair) == self.total for number in pair)

    @property
    def question(self) -> str:
        return f"Which two of {' '.join(map(str, self.numbers))} add up to {self.total}?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One line of an answer, as it was written: `56: 14+21=35 no`."""

    wanted: int
    pair: Pair
    total: int
    verdict: bool

    @property
    def is_true(self) -> bool:
        """It adds up, and the verdict follows."""
        return sum(self.pair) == self.total and self.verdict == (self.total == self.wanted)


def generate(count: int, seed: int, *, numbers: int, smallest: int, largest: int, held_out: bool) -> list[PairProblem]:
    """`count` different problems of one side of the split, the same for the same arguments.

    A larger count extends a smaller one. Raises BadInput when there are not that many.
    """
    rng = random.Random(derive_seed("pairs", seed))
    problems: dict[PairProblem, None] = {}
    for _ in range(1000 + 100 * count):
        if len(problems) >= count:
            return list(problems)
        drawn = tuple(sorted(rng.sample(range(smallest, largest + 1), numbers)))
        sums = [sum(pair) for pair in combinations(drawn, 2)]
        problem = PairProblem(numbers=drawn, total=rng.choice(sums))
        if sums.count(problem.total) == 1 and is_held_out(problem.question) == held_out:
            problems.setdefault(problem)
    raise BadInput(
        f"{count} different pairs asked for: {numbers} numbers from {smallest} to {largest} give about "
        f"{len(problems)}; raise env.largest"
    )


def to_task(problem: PairProblem) -> Task:
    record = {"numbers": list(problem.numbers), "total": problem.total}
    return make_generated_task("pair", problem.question, problem.answer, record)


def problem_of_task(task: Task) -> PairProblem | None:
    """None for a task of a file, whose record holds its question too."""
    if task.record.keys() != {"numbers", "total"}:
        return None
    return PairProblem(numbers=tuple(task.record["numbers"]), total=task.record["total"])


def solution(problem: PairProblem, rng: random.Random, *, give_up: float, repeat: float) -> tuple[str, str]:
    """The lines of a solution, and the pair that it answers with, the last one tried.

    give_up: probability, after each try that failed, that it was the last. repeat: probability that a try after the
    first is an old one; the others come in a random order.
    """
    lines: list[str] = []
    for pair in _draw_order(problem.pairs, rng, repeat):
        right = sum(pair) == problem.total
        lines.append(f"{problem.total}: {pair[0]}+{pair[1]}={sum(pair)} {'yes' if right else 'no'}")
        if right or rng.random() < give_up:
            break
    return "\n".join(lines), f"{pair[0]}, {pair[1]}"


def _draw_order(pairs: list[Pair], rng: random.Random, repeat: float) -> Iterator[Pair]:
    order = rng.sample(pairs, len(pairs))
    for new, pair in enumerate(order):
        while new and rng.random() < repeat:
            yield rng.choice(order[:new])
        yield pair


def tries(text: str) -> list[Try]:
    """The tries that a text holds, whoever wrote it."""
    return [
        Try(wanted=int(wanted), pair=(int(first), int(second)), total=int(total), verdict=verdict == "yes")
        for wanted, first, second, total, verdict in _TRY.findall(text)
    ]
