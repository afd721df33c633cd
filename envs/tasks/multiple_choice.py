"""Public formats of multiple choice: options by letter, and the right letter as the answer."""

from __future__ import annotations

import math
import random
import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from envs.tasks.files import Located
from rlsys.errors import BadInput
from rlsys.seeds import derive_seed
from rlsys.types import Task

LETTERS = string.ascii_uppercase
MAX_COMBINATIONS = 10_000  # of Knowledge Crosswords' blanks; in the released files each has three options


def mmlu_pro(record: Located) -> Task:
    """MMLU-Pro: a list of "options" and the letter of the right one."""
    return _choice_task(record, record.text("question"), record.texts(record.lower.get("options"), "options"))


def lettered(record: Located) -> Task:
    """MMLU: a list of "choices", and the place of the right one, from 0, or its letter."""
    choices, answer = record.texts(record.lower.get("choices"), "choices"), record.lower.get("answer")
    answer = int(answer) if isinstance(answer, float) and answer.is_integer() else answer
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < min(len(choices), len(LETTERS)):
        return _choice_task(record, record.text("question"), choices, LETTERS[answer])
    return _choice_task(record, record.text("question"), choices)


def labelled(record: Located) -> Task:
    """ARC and CommonsenseQA: "choices" holds "text" and "label", and "answerKey" is one of the labels."""
    choices = record.mapping("choices")
    texts, labels = (record.texts(choices.get(key), f"choices.{key}") for key in ("text", "label"))
    right = record.text("answerkey")
    if right not in labels or len(labels) != len(texts):
        raise BadInput(f"is {right[:40]!r}", where=record.where, key='"answerKey"', expected=f"one of {labels}")
    return _choice_task(record, record.text("question"), texts, LETTERS[labels.index(right)])


def knowledge_crosswords(record: Located) -> Task:
    """Knowledge Crosswords: one question with four options, each of which fills all blanks.

    Three other combinations of the blanks' own options are drawn, always the same ones for a record, and shuffled.
    """
    fields, where = record.lower, record.where
    blanks = record.texts(fields.get("blanks"), "blanks")
    edges = [record.texts(fields.get(key), key) for key in ("source", "relation", "target")]
    if len({len(column) for column in edges}) != 1:
        raise BadInput('"source", "relation" and "target" differ in length', where=where)
    options, golds = record.mapping("options"), record.mapping("golds")
    columns = [record.texts(options.get(blank), f"options.{blank}") for blank in blanks]
    right = tuple(
        column[_option_index(golds.get(blank), len(column), f"golds.{blank}", record)]
        for blank, column in zip(blanks, columns, strict=True)
    )
    if math.prod(len(column) for column in columns) > MAX_COMBINATIONS:
        raise BadInput(f"more than {MAX_COMBINATIONS} combinations of the blanks' options", where=where)
    wrong = sorted(set(product(*columns)) - {right})
    if len(wrong) < 3:
        raise BadInput(f"{len(wrong)} wrong combinations of the blanks' options", where=where, expected="at least 3")
    rng = random.Random(derive_seed("knowledge crosswords", *blanks, *right, edges))
    combinations = [right, *rng.sample(wrong, 3)]
    rng.shuffle(combinations)
    constraints = ", ".join(" ".join(edge) for edge in zip(*edges, strict=True))
    question = (
        "Which option fills the blanks so that every constraint holds? "
        f"An option names the words for {', '.join(blanks)} in this order.\nConstraints: {constraints}."
    )
    choices = [", ".join(words) for words in combinations]
    task = _choice_task(record, question, choices, LETTERS[combinations.index(right)])
    words = dict(zip(blanks, right, strict=True))
    filled = [" ".join(words.get(word, word) for word in edge) for edge in zip(*edges, strict=True)]
    more = {"edges": constraints, "num_blanks": len(blanks), "filled": filled}
    return replace(task, record={**task.record, **more})


def _choice_task(record: Located, question: str, options: Sequence[str], letter: str | None = None) -> Task:
    """A multiple-choice task: options by letter, and the right letter as the answer; of the same option twice both."""
    if len(options) > len(LETTERS):
        raise BadInput(f'{len(options)} "options"', where=record.where, expected=f"at most {len(LETTERS)}")
    letter = record.answer() if letter is None else letter
    right = options[_option_index(letter, len(options), "answer", record)]
    lettered = dict(zip(LETTERS, options, strict=False))
    answers = [letter, *(other for other, text in lettered.items() if text == right and other != letter)]
    return record.task(question, answers, {"question": question, "options": lettered, "answers": answers})


def _option_index(letter: object, count: int, key: str, record: Located) -> int:
    if not isinstance(letter, str) or len(letter) != 1 or letter not in LETTERS[:count]:
        raise BadInput(
            f"is {str(letter)[:40]!r}",
            where=record.where,
            key=f'"{key}"',
            expected=f"a letter from A to {LETTERS[count - 1]}",
        )
    return LETTERS.index(letter)
