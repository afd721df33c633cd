"""Families of reasoning-gym that one answer solves: `python benchmarks/gym_constants.py [--problems 64] [FAMILY ..]`.

Of each family that is offered, at its default settings: the constant answer that the family's own scorer gives 1 most
often on half of the problems, and the share of the others for which it does. Constants are the answers of the first
half, the most frequent first, and a few usual ones. The families come in the order of that share.
Where problems are left out so that answers are balanced, the same of what is left: "here".
`--levels` asks at level 0 of the curriculum, where a family has one, in the place of the default settings.
"""

from __future__ import annotations

import io
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from report import Report, parser

sys.path.remove(str(Path(__file__).parent))  # reasoning_gym.py lies there, and is not the library

from envs.problems.procedural.entries import Balance
from envs.problems.procedural.families import FAMILIES, check_family, compare
from envs.problems.procedural.gym_program import entries, highest_level, score
from rlsys.errors import BadInput

Entry = dict[str, Any]
USUAL = ("0", "1", "2", "0.0", "-1", "True", "False", "yes", "no", "Yes", "No", "None", "[]", "A", "infeasible", "-")
OWN = 12  # answers of the problems that are tried
FIRST = 16  # problems after which the better half of the constants is tried on all
SHOWN = 40  # characters of a constant
BATCH = 16  # problems of one seed
APART = 1_000_003  # between two seeds: an entry is made by its seed and its number together
MORE = 6  # times as many problems are made where some are left out
PATIENCE_S = 20.0  # with the generator of one family


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("families", nargs="*", metavar="FAMILY", help="families (default: all that are offered)")
    help_text = "problems to choose a constant by, and as many to try it on"
    cli.add_argument("--problems", type=int, default=64, help=help_text)
    cli.add_argument("--levels", action="store_true", help="at level 0 in the place of the default settings")
    options = cli.parse_args()
    try:
        for name in options.families:
            check_family(name)
    except BadInput as error:
        sys.exit(f"error: {error}")
    shares: dict[str, tuple[str, float, str, float | None, int]] = {}
    with Report(options) as report:
        for name in options.families or FAMILIES:
            print(name, end=" ", flush=True, file=sys.stderr)
            level = 0 if options.levels and has_levels(name) else None
            most = FAMILIES[name].most
            balance = Balance(most)
            every = make_problems(name, level, 2 * options.problems * (1 if most == 1 else MORE))
            sides = [every, [entry for entry in every if balance.takes(entry)]]
            best = [best_constant(name, level, side[: 2 * options.problems]) for side in sides[: 1 + (most < 1)]]
            shares[name] = (*best[0], *(best[-1] if most < 1 else ("", None)), min(len(every) // 2, options.problems))
        report.head("family", "constant", "share", "here: constant", "share", "problems")
        for name, (constant, right, balanced, accuracy, number) in sorted(shares.items(), key=lambda row: -row[1][1]):
            report.row(name, shown(constant), right, shown(balanced), accuracy, number)


def shown(constant: str) -> str:
    return f"`{' '.join(constant.split())[:SHOWN]}`" if constant else ""


def best_constant(family: str, level: int | None, entries: Sequence[Entry]) -> tuple[str, float]:
    """And its share of the problems by which it was not chosen."""
    half = len(entries) // 2
    constant = find_constant(family, level, entries[:half])
    return constant, share(family, level, constant, entries[half:])


def make_problems(family: str, level: int | None, count: int) -> list[Entry]:
    """Different ones, as JSON brings them to a scorer; fewer of a family that is slow, or has few."""
    problems: dict[str, Entry] = {}
    until = time.monotonic() + PATIENCE_S
    for seed in range(4 * count // BATCH):
        if len(problems) >= count or (problems and time.monotonic() > until):
            break
        with suppress(TypeError):  # codeio has problems that are no JSON
            request: dict[str, Any] = {"family": family, "level": level, "options": {}}
            request |= {"seed": APART * seed, "count": BATCH}
            with redirect_stdout(io.StringIO()):  # some generators print
                batch = json.loads(json.dumps(entries(request), default=str))
            problems |= {entry["question"]: entry for entry in batch}
    return list(problems.values())[:count]


def has_levels(family: str) -> bool:
    try:
        return highest_level(family) >= 0
    except ValueError:
        return False


def find_constant(family: str, level: int | None, train: Sequence[Entry]) -> str:
    answers = Counter(str(entry["answer"]) for entry in train if entry["answer"] is not None)
    constants = list(dict.fromkeys([*(answer for answer, _ in answers.most_common(OWN)), *USUAL]))
    constants.sort(key=lambda answer: -share(family, level, answer, train[:FIRST]))
    return max(constants[: len(constants) // 2], key=lambda answer: share(family, level, answer, train))


def share(family: str, level: int | None, answer: str, entries: Sequence[Entry]) -> float:
    """Of problems for which it is right."""
    return sum(is_right(family, level, answer, entry) for entry in entries) / len(entries)


def is_right(family: str, level: int | None, answer: str, entry: Entry) -> bool:
    """As `envs.tools.gym_scorer` has it, without the sandbox: the constants are ours and the library's."""
    rule = FAMILIES[family]
    if answer == entry["answer"] or rule.compares:
        return compare(answer, entry["answer"]) == 1.0
    if rule.grammar is not None and not rule.grammar.fullmatch(answer):
        return False
    try:
        return score({"family": family, "level": level, "options": {}, "answer": answer, "entry": entry}) == 1.0
    except Exception:  # the scorer's own, on an answer that it does not expect
        return False


if __name__ == "__main__":
    main()
