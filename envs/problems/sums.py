"""Long sums, worked out in writing: a small world for reasoning in one message, learnable by a very small model.

    What is 47 + 85 + 9?
    47 + 85: 7+5=12 4+8+1=13 so 132        by columns, from the right, with the carry
    132 + 9 = 141                          or in one step
    \\boxed{141}

More terms make the question harder and the shortest solution longer. At the same question a solution by columns is
several times as long as one in one step and easier to get right: what a reward on length has to weigh.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from envs.tasks.splits import is_held_out
from rlsys.errors import BadInput, require
from rlsys.seeds import derive_seed
from rlsys.types import Task

RECHECK = "Wait, recheck."
Terms = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class SumsConfig:
    """Length of the made-up sums."""

    min_terms: int = 2
    """Number of terms of the shortest sum."""
    max_terms: int = 4
    """Number of terms of the longest sum. Each further term is one more addition in the solution."""
    digits: int = 2
    """Number of digits of the longest term."""

    def __post_init__(self) -> None:
        require(self.min_terms >= 2, "env.sums.min_terms", self.min_terms, "at least 2")
        enough = self.max_terms >= self.min_terms
        require(enough, "env.sums.max_terms", self.max_terms, f"at least min_terms={self.min_terms}")
        require(1 <= self.digits <= 15, "env.sums.digits", self.digits, "from 1 to 15")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticSlip:
    """One column comes out wrong by `shift`, so the total by `shift * 10**column`; the rest is done rightly on it."""

    addition: int  # 0 is the first
    column: int  # 0 is the last digit
    shift: int


def question(terms: Terms) -> str:
    return f"What is {' + '.join(map(str, terms))}?"


def generate(count: int, seed: int, config: SumsConfig, *, held_out: bool) -> list[Terms]:
    """`count` different sums of one side of the split, the same for the same arguments.

    A larger count extends a smaller one. Raises BadInput when there are not that many.
    """
    rng = random.Random(derive_seed("sums", seed))
    problems: dict[Terms, None] = {}
    for _ in range(1000 + 100 * count):
        if len(problems) >= count:
            return list(problems)
        number = rng.randint(config.min_terms, config.max_terms)
        terms = tuple(rng.randint(1, 10 ** rng.randint(1, config.digits) - 1) for _ in range(number))
        if is_held_out(question(terms)) == held_out:
            problems.setdefault(terms)
    raise BadInput(
        f"{count} different sums asked for: {config.min_terms} to {config.max_terms} terms of up to {config.digits} "
        f"digits give about {len(problems)}; raise env.sums.max_terms or env.sums.digits"
    )


def to_task(terms: Terms) -> Task:
    name = f"sum-{'-'.join(map(str, terms))}"
    return Task(task_id=name, question=question(terms), answers=(str(sum(terms)),), record={"terms": list(terms)})


def terms_of_task(task: Task) -> Terms | None:
    """None for a task of a file, whose record holds its question too."""
    return tuple(int(term) for term in task.record["terms"]) if task.record.keys() == {"terms"} else None


def solution(
    terms: Terms,
    *,
    columns: bool,
    slip: ArithmeticSlip | None = None,
    recheck: bool = False,
    doubts: Sequence[int] = (),
) -> tuple[str, int]:
    """The lines of a solution, and the total that it comes to. With `recheck` a slip is noticed and set right.

    doubts: how often each addition is checked once more although it came out right; () is never.
    """
    lines: list[str] = []
    total = terms[0]
    for addition, term in enumerate(terms[1:]):
        slipped = slip if slip is not None and slip.addition == addition else None
        line, result = _addition(total, term, columns, slipped)
        lines.append(line)
        if slipped is not None and recheck:
            line, result = _addition(total, term, columns, None)
            lines += [RECHECK, line]
        if slipped is None or recheck:
            lines += [RECHECK, line] * (doubts[addition] if doubts else 0)
        total = result
    return "\n".join(lines), total


def draw_slip(terms: Terms, rng: random.Random) -> ArithmeticSlip:
    """A slip that leaves every column at 0 or more."""
    addition = rng.randrange(len(terms) - 1)
    sums = list(_columns(sum(terms[: addition + 1]), terms[addition + 1]))
    column = rng.randrange(len(sums))
    left, right, carry = sums[column]
    return ArithmeticSlip(
        addition=addition, column=column, shift=rng.choice((-1, 1)) if left + right + carry > 0 else 1
    )


def _addition(left: int, right: int, columns: bool, slip: ArithmeticSlip | None) -> tuple[str, int]:
    total = left + right + (slip.shift * 10**slip.column if slip is not None else 0)
    if not columns:
        return f"{left} + {right} = {total}", total
    steps: list[str] = []
    wrong = 0  # what the slip adds to the carry of the next column
    for column, (upper, lower, carried) in enumerate(_columns(left, right)):
        carry = carried + wrong
        result = upper + lower + carry + (slip.shift if slip is not None and slip.column == column else 0)
        wrong = result // 10 - (upper + lower + carried) // 10
        steps.append(f"{upper}+{lower}{f'+{carry}' if carry else ''}={result}")
    return f"{left} + {right}: {' '.join(steps)} so {total}", total


def _columns(left: int, right: int) -> Iterator[tuple[int, int, int]]:
    """(upper digit, lower digit, carry into them) of every column, from the right."""
    carry = 0
    while left or right:
        yield left % 10, right % 10, carry
        carry = (left % 10 + right % 10 + carry) // 10
        left, right = left // 10, right // 10
