"""How fast the calculator answers: `python benchmarks/calculator.py`. One process, one core; a table of docs/tools.md.

The rate of a row is the best of five rounds, for other processes of the machine only slow it down. The hostile row is
the slowest of its answers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import Report, parser

from envs.tools.calculator import calculate

ROUNDS = 5
ROUND_S = 0.4

KINDS: dict[str, Sequence[str]] = {
    "one operation (`48 / 2`)": ["48 / 2", "48 + 24", "1,080 * 3", "20% of 50"],
    "several (`(12 + 3) * 4 - 6 / 7`)": ["(12 + 3) * 4 - 6 / 7", "2 * 3.5 + 4 * 1.25", "(48 - 8) / 4 * 3"],
    "exact functions (`binomial(10, 3)`)": ["binomial(10, 3)", "round(10/3, 2)", "max(1, 2, 3)", "5! / 3!", "sqrt(16)"],
    "irrational (`2 sin(pi / 6) + sqrt(2)`)": ["2 sin(pi / 6) + sqrt(2)", "exp(1.5) / ln(7)", "log(100, 3)"],
}
HOSTILE = [
    "9**9**9**9",
    "factorial(10**9)",
    "comb(10**9, 10**8)",
    "9" * 1_000_000,
    "(" * 10_000 + ")" * 10_000,
    "().__class__.__mro__",
    "√2³+" * 127 + "1",
    "*".join(["9**1200"] * 60),
    "lcm(" + ",".join(f"{n}!" for n in range(400, 490)) + ")",
    "exp(" * 40 + "9" + ")" * 40,
    "+".join(["1e999/7"] * 60),
    "1.0000001**(10**19)",
    "sin(10**20)^9^9^9",
]


def rate(expressions: Sequence[str]) -> float:
    """Evaluations per second."""
    best = 0.0
    for _ in range(ROUNDS):
        count, started = 0, time.perf_counter()
        while (seconds := time.perf_counter() - started) < ROUND_S:
            for expression in expressions:
                calculate(expression)
            count += len(expressions)
        best = max(best, count / seconds)
    return best


def slowest(expressions: Sequence[str]) -> tuple[float, str]:
    """Seconds of the slowest answer, and its expression; each is asked three times."""

    def seconds(expression: str) -> float:
        started = time.perf_counter()
        calculate(expression)
        return time.perf_counter() - started

    return max((min(seconds(expression) for _ in range(3)), expression) for expression in expressions)


def main() -> None:
    calculate("sqrt(2)")
    with Report(parser(__doc__).parse_args()) as report:
        report.head("expressions", "evaluations per second")
        for kind, expressions in KINDS.items():
            report.row(kind, rate(expressions))
        seconds, expression = slowest(HOSTILE)
        report.note(f"slowest of {len(HOSTILE)} hostile inputs: {seconds * 1000:.1f} ms ({expression[:24]}...)")


if __name__ == "__main__":
    main()
