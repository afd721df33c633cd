"""Worked examples in a prompt, in ICRL's form, from a file or written out here."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlsys.errors import BadInput

MARK = "=" * 15
PROBLEM, SOLUTION = "Example Problem:", "Example Solution:"
_SEPARATOR = re.compile(rf"{MARK}Example [0-9]{{1,6}}{MARK}")


def read_examples(path: str) -> tuple[str, ...]:
    """The examples of a file, without the lines `===============Example N===============` before each.

    Raises BadInput for a file that cannot be read, for text before the first of these lines, and for an example
    without its problem or its solution.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise BadInput(f"{path}: cannot be read ({reason}), expected examples for a prompt") from error
    blocks: list[list[str]] = [[]]
    for line in lines:
        if _SEPARATOR.fullmatch(line.strip()):
            blocks.append([])
        else:
            blocks[-1].append(line)
    before, *examples = ["\n".join(block).strip() for block in blocks]
    if before or not examples:
        found = repr(before[:40]) if before else "no example"
        raise BadInput(f"{path}: begins with {found}, expected a line {MARK}Example 1{MARK}")
    for number, example in enumerate(examples, start=1):
        problem, solution = example.find(PROBLEM), example.find(SOLUTION)
        if problem != 0 or solution < 0:
            missing = PROBLEM if problem != 0 else SOLUTION
            raise BadInput(f'{path} example {number}: no "{missing}", expected it and then "{SOLUTION}"')
    return tuple(examples)


def write_example(problem: str, solution: str) -> str:
    return f"{PROBLEM} {problem}\n\n{SOLUTION} {solution}"


def numbered(examples: Sequence[str]) -> str:
    """The examples as they stand in a prompt."""
    return "\n".join(f"{MARK}Example {number}{MARK}\n{example}" for number, example in enumerate(examples, start=1))
