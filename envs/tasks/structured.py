"""Readers for multiple choice and for the real-world sets of Graph-RL (arXiv 2506.00845, appendix D)."""

from __future__ import annotations

import math
import random
import re
import string
from collections.abc import Mapping, Sequence
from itertools import product

from envs.tasks.files import Located
from rlsys.errors import BadInput
from rlsys.seeds import derive
from rlsys.types import Task

LETTERS = string.ascii_uppercase
MAX_COMBINATIONS = 10_000  # of Knowledge Crosswords' blanks; in the released files each has three options


def mmlu_pro(record: Located) -> Task:
    """MMLU-Pro: a list of "options" and the letter of the right one."""
    return _choice(record, record.text("question"), record.texts(record.lower.get("options"), "options"))


def strategy_qa(record: Located) -> Task:
    """StrategyQA: "answer" is true or false, told as yes or no."""
    value = record.lower.get("answer")
    if not isinstance(value, bool):
        raise BadInput(f'{record.where}: "answer" is {str(value)[:40]!r}, expected true or false')
    return record.task(record.text("question"), ("yes" if value else "no",))


def knowledge_crosswords(record: Located) -> Task:
    """Knowledge Crosswords: one question with four options, each of which fills all blanks.

    Three other combinations of the blanks' own options are drawn, always the same ones for a record, and shuffled.
    """
    fields, where = record.lower, record.where
    blanks = record.texts(fields.get("blanks"), "blanks")
    edges = [record.texts(fields.get(key), key) for key in ("source", "relation", "target")]
    if len({len(column) for column in edges}) != 1:
        raise BadInput(f'{where}: "source", "relation" and "target" differ in length')
    options, golds = record.mapping("options"), record.mapping("golds")
    columns = [record.texts(options.get(blank), f"options.{blank}") for blank in blanks]
    right = tuple(
        column[_index(golds.get(blank), len(column), f"golds.{blank}", record)]
        for blank, column in zip(blanks, columns, strict=True)
    )
    if math.prod(len(column) for column in columns) > MAX_COMBINATIONS:
        raise BadInput(f"{where}: more than {MAX_COMBINATIONS} combinations of the blanks' options")
    wrong = sorted(set(product(*columns)) - {right})
    if len(wrong) < 3:
        raise BadInput(f"{where}: {len(wrong)} wrong combinations of the blanks' options, expected at least 3")
    rng = random.Random(derive("knowledge crosswords", *blanks, *right, edges))
    drawn = [right, *rng.sample(wrong, 3)]
    rng.shuffle(drawn)
    constraints = ", ".join(" ".join(edge) for edge in zip(*edges, strict=True))
    question = (
        "Which option fills the blanks so that every constraint holds? "
        f"An option names the words for {', '.join(blanks)} in this order.\nConstraints: {constraints}."
    )
    return _choice(record, question, [", ".join(words) for words in drawn], LETTERS[drawn.index(right)])


def expla_graphs(record: Located) -> Task:
    """ExplaGraphs: whether an argument supports or counters a belief."""
    stance = record.text("stance")
    if stance not in ("support", "counter"):
        raise BadInput(f'{record.where}: "stance" is {stance[:40]!r}, expected support or counter')
    belief, argument = record.text("belief"), record.text("argument")
    question = f"Belief: {belief}\nArgument: {argument}\nDoes the argument support or counter the belief?"
    return record.task(question, (stance,))


def proscript(record: Located) -> Task:
    """ProScript: {"goal", "steps": {"step0": ..}, "constraints": [["step5", "step3"], ..]} is added to the record."""
    where, goal = record.where, record.text("scenario")
    steps: dict[str, str] = {}
    for piece in re.split(r"; (?=step[0-9])", record.text("flatten_input_for_edge_prediction")):
        name, colon, words = piece.partition(":")
        if not colon or name in steps:
            raise BadInput(f'{where}: {piece[:40]!r} is no new step, expected "step0: get the milk; step1: ..."')
        steps[name] = words.strip()
    constraints: list[list[str]] = []
    for piece in record.text("flatten_output_for_edge_prediction").split(";"):
        before, _, after = (part.strip() for part in piece.partition("->"))
        if before not in steps or after not in steps:
            raise BadInput(f"{where}: {piece.strip()[:40]!r} does not order two of its {len(steps)} steps")
        constraints.append([before, after])
    return _ordering(record, goal, steps, constraints)


def ordered_steps(record: Located) -> Task:
    """This project's own form of ProScript. A list of steps is named step0, step1 ..."""
    fields = record.lower
    listed, constraints = fields.get("steps"), fields.get("constraints")
    if isinstance(listed, Mapping):
        steps = {name: words for name, words in zip(listed, record.texts([*listed.values()], "steps"), strict=True)}
    else:
        steps = {f"step{number}": words for number, words in enumerate(record.texts(listed, "steps"))}
    pairs: list[list[str]] = []
    for pair in constraints if isinstance(constraints, list) else []:
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, str) and end in steps for end in pair)
        ):
            raise BadInput(f"{record.where}: a constraint does not order two of {', '.join(steps)[:80]}")
        pairs.append(pair)
    if not pairs:
        raise BadInput(f'{record.where}: "constraints" is missing, empty or no list, expected [["step0", "step3"], ..]')
    return _ordering(record, record.text("goal"), steps, pairs)


def _ordering(record: Located, goal: str, steps: Mapping[str, str], constraints: list[list[str]]) -> Task:
    question = f"Goal: {goal}\nSteps:\n" + "\n".join(f"{name}: {words}" for name, words in steps.items())
    return record.task(question, (), {"goal": goal, "steps": steps, "constraints": constraints})


def _choice(record: Located, question: str, options: Sequence[str], letter: str | None = None) -> Task:
    """A multiple-choice task: options by letter, and the right letter as the answer."""
    if len(options) > len(LETTERS):
        raise BadInput(f'{record.where}: {len(options)} "options", expected at most {len(LETTERS)}')
    letter = record.answer() if letter is None else letter
    _index(letter, len(options), "answer", record)
    extra = {"question": question, "options": dict(zip(LETTERS, options, strict=False)), "answers": [letter]}
    return record.task(question, (letter,), extra)


def _index(letter: object, count: int, key: str, record: Located) -> int:
    if not isinstance(letter, str) or len(letter) != 1 or letter not in LETTERS[:count]:
        raise BadInput(
            f'{record.where}: "{key}" is {str(letter)[:40]!r}, expected a letter from A to {LETTERS[count - 1]}'
        )
    return LETTERS.index(letter)
