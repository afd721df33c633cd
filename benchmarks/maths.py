"""How often the maths verifier is wrong, by family of answers: `python benchmarks/maths.py`.

Reads tests/data/maths_pairs.jsonl, where each line is `{"family", "given", "gold", "equal", "blind"}`: what a teacher
would say of `given` where `gold` is the answer key, and of some with a `question` from which it may have been copied.
Blind pairs were written before the rules that decide them. `--held-out` reads tests/data/maths_held_out.jsonl, on which
no rule was tuned; `--fresh` maths_fresh.jsonl, written before its writer had read a rule or a table, judged once, and
tuned on since; `--newest` maths_newest.jsonl, as blind as that, of which it also says what was wrong before any rule
was tuned on it; `--typed` maths_typed.jsonl, written before the rules of typed.py and form.py, which were tuned on two
pairs of its blind half; `--cases FOLDER` the tests of another grader, in the form of Math-Verify's: functions under
`pytest.mark.parametrize("gold, pred, expected", [...])`.
`--copies FILE ...` asks of public question sets instead, in any format that tasks come in, how often a formula of the
question itself is paid, where it is not the key letter by letter, and how often the key is.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from envs.rewards.maths.compare import decide, equivalent
from envs.rewards.maths.grader import Grader
from envs.rewards.maths.text import clean, is_prose
from envs.tasks.formats import read_source
from rlsys.errors import BadInput
from rlsys.rollout import EpisodeBroken
from rlsys.types import Task

TABLE = Path(__file__).parents[1] / "tests" / "data" / "maths_pairs.jsonl"
HELD_OUT = TABLE.with_name("maths_held_out.jsonl")
FRESH = TABLE.with_name("maths_fresh.jsonl")
NEWEST = TABLE.with_name("maths_newest.jsonl")
WRITTEN_LATER = ("second", "third")  # families of the newest, by a writer who had read the rules by then
TYPED = TABLE.with_name("maths_typed.jsonl")
_MATHS = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    family: str
    given: str
    gold: str
    equal: bool
    blind: bool
    question: str = ""  # that an answer may have copied
    first: bool = True  # whether it was judged right before any rule was tuned on it, where that was written down


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Of 20 pairs, 11 of them equal: Rates(family="lists", equal=11, missed=1, unequal=9, accepted=0)."""

    family: str
    equal: int
    missed: int
    unequal: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Copies:
    """Of a set: its questions, those with a formula, the keys that are right, and the copies of a formula that are."""

    set: str
    questions: int
    with_formula: int
    keys: int
    longest: int
    last: int
    first: int


def pairs(table: Path = TABLE) -> list[Pair]:
    return [Pair(**json.loads(line)) for line in table.read_text("utf-8").splitlines()]


def cases(folder: Path) -> list[Pair]:
    """The literal cases of another grader's tests, with a test function as their family; each pair once."""
    unique_pairs: dict[tuple[str, str], Pair] = {}
    for file in sorted(folder.rglob("test_*.py")):
        for function in ast.walk(ast.parse(file.read_text("utf-8"))):
            for gold, pred, expected in _parameters(function) if isinstance(function, ast.FunctionDef) else ():
                pair = Pair(
                    family=getattr(function, "name", ""),
                    given=answer_of(pred),
                    gold=answer_of(gold),
                    equal=bool(expected),
                    blind=True,
                )
                unique_pairs.setdefault((pair.given, pair.gold), pair)
    return list(unique_pairs.values())


def _parameters(function: ast.FunctionDef) -> Iterator[tuple[str, str, object]]:
    for mark in function.decorator_list:
        if not isinstance(mark, ast.Call) or len(mark.args) != 2 or not isinstance(mark.args[1], ast.List):
            continue
        names = str(getattr(mark.args[0], "value", "")).replace(" ", "").split(",")
        for row in mark.args[1].elts if names[:3] == ["gold", "pred", "expected"] else ():
            values = [getattr(value, "value", None) for value in getattr(row, "elts", ())[:3]]
            if len(values) == 3 and isinstance(values[0], str) and isinstance(values[1], str):
                yield values[0], values[1], values[2]


def answer_of(text: str) -> str:
    """What an episode would hand over: the text itself, or the last mathematics in a sentence without a box."""
    matches = list(_MATHS.finditer(text)) if "boxed" not in text and is_prose(clean(text)) else []
    return next(part for part in matches[-1].groups() if part) if matches else text


def wrong(table: Iterable[Pair]) -> list[Pair]:
    """The pairs that are judged otherwise than the table says."""
    return [pair for pair in table if _is_equal(pair) is not pair.equal]


def _is_equal(pair: Pair) -> bool:
    verdict = decide(pair.given, (pair.gold,), pair.question)
    return equivalent(pair.given, pair.gold) if verdict is None or not pair.question else verdict


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


def copies(name: str, tasks: Iterable[Task], grader: Grader) -> Copies:
    counts = dict.fromkeys([field.name for field in fields(Copies) if field.name != "set"], 0)
    for task in tasks:
        formulas = [next(part for part in match.groups() if part) for match in _MATHS.finditer(task.question)]
        candidates = (max(formulas, key=len), formulas[-1], formulas[0]) if formulas else ()
        counts["questions"] += 1
        counts["with_formula"] += bool(formulas)
        counts["keys"] += any(_is_right(grader, rf"\boxed{{{gold}}}", gold) for gold in task.answers)
        for kind, formula in zip(("longest", "last", "first"), candidates, strict=False):
            itself = any(clean(formula) == clean(gold) for gold in task.answers)
            refused = itself or decide(formula, task.answers, task.question) is False
            counts[kind] += not refused and any(_is_right(grader, formula, gold) for gold in task.answers)
    return Copies(set=name, **counts)


def _is_right(grader: Grader, answer: str, gold: str) -> bool:
    try:
        return grader.grade_blocking(answer, gold)
    except EpisodeBroken:  # nothing is paid for a key that cannot be graded
        return False


def shares(every: Rates) -> str:
    missed, accepted = 100 * every.missed / every.equal, 100 * every.accepted / every.unequal
    return f"missed {missed:.1f} % of the equal, accepted {accepted:.1f} % of the unequal"


def main() -> None:
    from report import Report, parser  # not in the tests, which import this file for its rates

    cli = parser(__doc__)
    cli.add_argument("--blind", action="store_true", help="only the pairs that were written before the rules")
    cli.add_argument("--show", action="store_true", help="also each pair that is judged wrong")
    cli.add_argument("--held-out", action="store_true", help="the pairs on which no rule was tuned")
    cli.add_argument("--fresh", action="store_true", help="the pairs of a writer who had read no rule and no table")
    cli.add_argument("--newest", action="store_true", help="the pairs of another such writer, and what was wrong first")
    cli.add_argument("--typed", action="store_true", help="the pairs in plain text, and copied questions")
    cli.add_argument("--cases", type=Path, help="the folder of another grader's tests, in place of the tables here")
    cli.add_argument("--copies", type=Path, nargs="+", help="public question sets: what copying the question earns")
    options = cli.parse_args()
    if options.copies:
        with Report(options) as report, Grader() as grader:
            report.head(*(field.name for field in fields(Copies)))
            for file in options.copies:
                try:
                    tasks = read_source(str(file))
                except BadInput as error:
                    sys.exit(f"error: {error}")
                copied = copies(file.stem, tasks, grader)
                report.row(*(getattr(copied, field.name) for field in fields(Copies)))
        return
    files = {"held_out": HELD_OUT, "fresh": FRESH, "newest": NEWEST, "typed": TYPED}
    file = next((files[name] for name in files if getattr(options, name)), TABLE)
    table = cases(options.cases) if options.cases else pairs(file)
    table = [pair for pair in table if pair.blind or not options.blind]
    started = time.perf_counter()
    wrongly = wrong(table)
    seconds = time.perf_counter() - started
    at_once = sum(decide(pair.given, (pair.gold,)) is not None for pair in table)
    rows = rates(table, wrongly)
    with Report(options) as report:
        report.head(*(field.name for field in fields(Rates)))
        for row in rows:
            report.row(*(getattr(row, field.name) for field in fields(Rates)))
        report.note(f"{shares(rows[-1])}; {len(table)} pairs in {seconds:.1f} s, {at_once} of them without algebra")
        for part in ("", *WRITTEN_LATER) if options.newest else ():
            then = [pair for pair in table if pair.family == part or not (part or pair.family in WRITTEN_LATER)]
            first = rates(then, [pair for pair in then if not pair.first])[-1]
            report.note(f"{part or 'the others'} at first: {shares(first)} ({first.missed} and {first.accepted})")
        for pair in wrongly if options.show else ():
            report.note(f"{'missed  ' if pair.equal else 'accepted'} {pair.family}: {pair.given!r} for {pair.gold!r}")


if __name__ == "__main__":
    main()
