"""How often the maths verifier is wrong, by family of answers: `python benchmarks/maths.py`.

Reads tests/data/maths_pairs.jsonl, where each line is `{"family", "given", "gold", "equal", "blind"}`: what a teacher
would say of `given` where `gold` is the answer key. Blind pairs were written before the rules that decide them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from envs.rewards.maths.compare import decided, equivalent

TABLE = Path(__file__).parents[1] / "tests" / "data" / "maths_pairs.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    family: str
    given: str
    gold: str
    equal: bool
    blind: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of 20 pairs, 11 of them equal: Rates(family="lists", equal=11, missed=1, unequal=9, accepted=0)."""

    family: str
    equal: int
    missed: int
    unequal: int
    accepted: int


def pairs() -> list[Pair]:
    return [Pair(**json.loads(line)) for line in TABLE.read_text("utf-8").splitlines()]


def wrong(table: Iterable[Pair]) -> list[Pair]:
    """The pairs that `equivalent` judges otherwise than the table."""
    return [pair for pair in table if equivalent(pair.given, pair.gold) is not pair.equal]


def rates(table: list[Pair], wrongly: list[Pair]) -> list[Rates]:
    """One for each family in the order of the table, then one for all."""
    families = [*dict.fromkeys(pair.family for pair in table), "all"]
    return [
        Rates(
            family=family,
            equal=sum(pair.equal for pair in table if family in (pair.family, "all")),
            missed=sum(pair.equal for pair in wrongly if family in (pair.family, "all")),
            unequal=sum(not pair.equal for pair in table if family in (pair.family, "all")),
            accepted=sum(not pair.equal for pair in wrongly if family in (pair.family, "all")),
        )
        for family in families
    ]


def shares(every: Rates) -> str:
    missed, accepted = 100 * every.missed / every.equal, 100 * every.accepted / every.unequal
    return f"missed {missed:.1f} % of the equal, accepted {accepted:.1f} % of the unequal"


def main() -> None:
    from report import Report, parser  # not in the tests, which import this file for its rates

    given = parser(__doc__)
    given.add_argument("--blind", action="store_true", help="only the pairs that were written before the rules")
    given.add_argument("--show", action="store_true", help="also each pair that is judged wrong")
    options = given.parse_args()
    table = [pair for pair in pairs() if pair.blind or not options.blind]
    started = time.perf_counter()
    wrongly = wrong(table)
    seconds = time.perf_counter() - started
    at_once = sum(decided(pair.given, (pair.gold,)) is not None for pair in table)
    rows = rates(table, wrongly)
    with Report(options) as report:
        report.head(*(each.name for each in fields(Rates)))
        for row in rows:
            report.row(*(getattr(row, each.name) for each in fields(Rates)))
        report.note(f"{shares(rows[-1])}; {len(table)} pairs in {seconds:.1f} s, {at_once} of them without algebra")
        for pair in wrongly if options.show else ():
            report.note(f"{'missed  ' if pair.equal else 'accepted'} {pair.family}: {pair.given!r} for {pair.gold!r}")


if __name__ == "__main__":
    main()
