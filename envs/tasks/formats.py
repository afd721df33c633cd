"""What the fields of a public data set mean: one small reader per format, and the table that picks one.

A reader takes one record and gives a task, or raises BadInput naming the record. Field names are compared without case.
Every task keeps its record as it was read; multiple choice and ProScript add the fields that their rewards look at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from envs.tasks.fields import answer, lower, task, text, texts, value_text
from envs.tasks.files import Located
from envs.tasks.jsonl import text_field
from envs.tasks.structured import (
    expla_graphs,
    knowledge_crosswords,
    mmlu_pro,
    ordered_steps,
    proscript,
    strategy_qa,
)
from envs.text.boxed import last_boxed
from envs.text.words import parse_number
from rlsys.errors import BadInput
from rlsys.types import Task

FINAL_ANSWER = "#### "  # GSM8K
# What wraps a problem where a row holds a whole prompt: DAPO-Math puts an instruction before it and one after it, ICRL
# its system text and its examples before it.
DAPO_BEFORE, DAPO_AFTER = "Solve the following math problem", "Remember to put your answer"
ICRL_MARKS = ("\nActual Problem: ", "\nProblem: ")


@dataclass(frozen=True, slots=True)
class Format:
    """The fields by which a format is recognised, and its reader."""

    fields: frozenset[str]
    read: Callable[[Located], Task]
    mark: str = ""  # stands in the answer


def recognise(record: Located) -> Format:
    """The first format of the table whose fields the record has. Raises BadInput naming those found and those known."""
    fields = lower(record)
    for names, what in FOREIGN.items():
        if names <= fields.keys():
            raise BadInput(f"{record.where}: {what}, expected questions with answers")
    for known in FORMATS.values():
        if known.fields <= fields.keys() and known.mark in str(fields.get("answer")):
            return known
    found = ", ".join(sorted(key[:40] for key in record.fields)[:20]) or "none"
    formats = "; ".join(f"{name} ({', '.join(sorted(known.fields))})" for name, known in FORMATS.items())
    raise BadInput(f"{record.where}: in no known format. Fields found: {found}. Known: {formats}")


def own(record: Located) -> Task:
    """This project's own: {"question", "answers": [..]}; multiple choice has {"options": {"A": ..}} too."""
    fields = lower(record)
    answers = texts(fields.get("answers"), "answers", record)
    options = fields.get("options")
    if options is not None and not (isinstance(options, Mapping) and all(letter in options for letter in answers)):
        raise BadInput(f'{record.where}: "answers" {answers} are not among "options", expected letters of {{"A": ..}}')
    return task(record, text(record, "question"), answers)


def flash_rag(record: Located) -> Task:
    """FlashRAG: any of "golden_answers"."""
    return task(record, text(record, "question"), texts(lower(record).get("golden_answers"), "golden_answers", record))


def rule_rows(record: Located) -> Task:
    """Rows of ReSearch, ICRL and DAPO-Math: "reward_model" holds "ground_truth", a text, a list or {"target": ..}.

    The question is the field "question", or what "prompt" holds without the instructions around it.
    """
    fields = lower(record)
    model = fields.get("reward_model")
    truth = model.get("ground_truth") if isinstance(model, Mapping) else None
    truth = truth.get("target") if isinstance(truth, Mapping) else truth
    truth = [truth] if isinstance(truth, str | int | float) else truth
    answers = texts(truth, "reward_model.ground_truth", record)
    return task(record, text(record, "question") if "question" in fields else _from_prompt(record), answers)


def hotpot_qa(record: Located) -> Task:
    """HotpotQA and 2WikiMultiHopQA: one "answer"; paragraphs and supporting facts stay in the record."""
    return task(record, text(record, "question"), (answer(record),))


def musique(record: Located) -> Task:
    """MuSiQue: "answer" or any of "answer_aliases". Its unanswerable questions have no answer key."""
    fields = lower(record)
    if fields.get("answerable") is False:
        raise BadInput(f"{record.where}: an unanswerable question, expected MuSiQue-Ans, which has none")
    aliases = fields.get("answer_aliases")
    also = texts(aliases, "answer_aliases", record) if aliases else ()
    return task(record, text(record, "question"), (answer(record), *also))


def trivia_qa(record: Located) -> Task:
    """TriviaQA: "answer" holds "value" and "aliases"."""
    key = lower(record).get("answer")
    if not isinstance(key, Mapping):
        raise BadInput(f'{record.where}: "answer" is no object with "value" and "aliases"')
    also = texts(key["aliases"], "answer.aliases", record) if key.get("aliases") else ()
    return task(record, text(record, "question"), (value_text(key.get("value"), "answer.value", record), *also))


def gsm8k(record: Located) -> Task:
    """GSM8K: the result stands in "answer" after `#### `; thousands lose their commas."""
    question, solution = text(record, "question"), text_field(lower(record), "answer", record.where)
    _, mark, final = solution.rpartition(FINAL_ANSWER)
    final = final.strip()
    if not mark or not final:
        found = f'"answer" ends in {solution[-20:]!r}'
        raise BadInput(f'{record.where}: {found}, expected "{FINAL_ANSWER}" and the result')
    final = final.replace(",", "") if parse_number(final) is not None else final
    return task(record, question, (final,))


def mathematics(record: Located) -> Task:
    """MATH, MATH-500 and AIME: "answer", or else the last box of "solution"."""
    if lower(record).get("answer") is not None:
        return task(record, text(record, "problem"), (answer(record),))
    boxed = last_boxed(text(record, "solution"))
    if not boxed:
        raise BadInput(f'{record.where}: no "answer", and no \\boxed{{}} ends "solution"')
    return task(record, text(record, "problem"), (boxed,))


def theorem_qa(record: Located) -> Task:
    """TheoremQA: "Answer" is a text, a number, true or false, or one list: `True`, `[1, 2]`."""
    value = lower(record).get("answer")
    if isinstance(value, bool):
        value = str(value)
    elif isinstance(value, list):
        value = json.dumps([number for number in value if isinstance(number, int | float)])
    return task(record, text(record, "question"), (value_text(value, "answer", record),))


def question_answer(record: Located) -> Task:
    """Any other "question" and "answer": a text, a number, or a list of which any is right."""
    value = lower(record).get("answer")
    answers = texts(value, "answer", record) if isinstance(value, list) else (answer(record),)
    return task(record, text(record, "question"), answers)


def _from_prompt(record: Located) -> str:
    prompt = lower(record).get("prompt")
    if isinstance(prompt, list):
        said = [each.get("content") for each in prompt if isinstance(each, Mapping) and each.get("role") == "user"]
        prompt = said[-1] if said else None
    whole = value_text(prompt, "prompt", record)
    question = _unwrapped(whole).strip()
    if not question:
        raise BadInput(f'{record.where}: "prompt" holds no question')
    return question


def _unwrapped(prompt: str) -> str:
    if prompt.startswith(DAPO_BEFORE):
        _, _, rest = prompt.partition("\n\n")
        end = rest.rfind(DAPO_AFTER)
        return rest if end < 0 else rest[:end]
    for mark in ICRL_MARKS:
        if mark in prompt:
            return prompt.rpartition(mark)[2]
    return prompt


def _fields(*names: str) -> frozenset[str]:
    return frozenset(names)


# Records that belong to other readers, and would be taken for something else here.
FOREIGN: dict[frozenset[str], str] = {
    _fields("node_number", "graph"): "an NLGift graph, which env.name=graph reads",
    _fields("query", "ground_truth_plan"): "a PlanBench instance, which env.name=blocksworld reads",
    _fields("initial", "goal"): "a Blocksworld instance, which env.name=blocksworld reads",
    _fields("contents"): "a passage of a corpus, which a retriever reads",
}
# Tried in this order: a format stands before those whose fields are among its own.
FORMATS: dict[str, Format] = {
    "rlsys": Format(_fields("question", "answers"), own),
    "flashrag": Format(_fields("question", "golden_answers"), flash_rag),
    "rule_rows": Format(_fields("reward_model"), rule_rows),
    "knowledge_crosswords": Format(
        _fields("source", "relation", "target", "blanks", "options", "golds"), knowledge_crosswords
    ),
    "proscript": Format(
        _fields("scenario", "flatten_input_for_edge_prediction", "flatten_output_for_edge_prediction"), proscript
    ),
    "ordered_steps": Format(_fields("goal", "steps", "constraints"), ordered_steps),
    "explagraphs": Format(_fields("belief", "argument", "stance"), expla_graphs),
    "musique": Format(_fields("question", "answer", "paragraphs"), musique),
    "2wiki": Format(_fields("question", "answer", "supporting_facts", "context", "evidences"), hotpot_qa),
    "hotpotqa": Format(_fields("question", "answer", "supporting_facts", "context"), hotpot_qa),
    "strategyqa": Format(_fields("question", "answer", "term"), strategy_qa),
    "mmlu_pro": Format(_fields("question", "answer", "options"), mmlu_pro),
    "triviaqa": Format(_fields("question", "answer", "question_source"), trivia_qa),
    "theoremqa": Format(_fields("question", "answer", "answer_type"), theorem_qa),
    "gsm8k": Format(_fields("question", "answer"), gsm8k, mark=FINAL_ANSWER),
    "math": Format(_fields("problem", "solution"), mathematics),
    "aime": Format(_fields("problem", "answer"), mathematics),
    "question_answer": Format(_fields("question", "answer"), question_answer),
}
