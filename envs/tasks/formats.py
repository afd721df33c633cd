"""Tasks from public data sets: what their fields mean, one small reader per format, and the table that picks one.

`read_source("musique/train.jsonl")` or `read_source("hotpotqa/hotpot_qa:distractor", split="validation")` gives tasks.
A reader takes one record and gives a task, or raises BadInput naming the record. Field names are compared without case.
Every task keeps its record as it was read; multiple choice and ProScript add the fields that their rewards look at.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice

from envs.tasks.conversation import answer_texts, conversation, prompt_question, prompt_row, unpack_texts
from envs.tasks.files import Located, read_records, text_field
from envs.tasks.multiple_choice import knowledge_crosswords, labelled, lettered, mmlu_pro
from envs.text.amounts import read_amount
from envs.text.words import last_boxed
from rlsys.errors import BadInput, nearest, require
from rlsys.row_keys import refuse_columns
from rlsys.types import Task

FINAL_ANSWER = "#### "  # GSM8K
# What wraps a problem where a row holds a whole prompt: DAPO-Math puts an instruction before it and one after it, ICRL
# its system text and its examples before it.
DAPO_BEFORE, DAPO_AFTER = "Solve the following math problem", "Remember to put your answer"
ICRL_MARKS = ("\nActual Problem: ", "\nProblem: ")


@dataclass(frozen=True, slots=True)
class Format:
    """The fields by which a format is recognised, and its reader."""

    fields: tuple[str, ...]
    read: Callable[[Located], Task]
    mark: str = ""  # stands in the answer


def recognise(record: Located) -> Format:
    """The first format of the table whose fields the record has. Raises BadInput naming its fields."""
    fields = record.lower
    for names, description in FOREIGN.items():
        if fields.keys() >= set(names):
            raise BadInput(description, where=record.where, expected="questions with answers")
    for form in FORMATS.values():
        if fields.keys() >= set(form.fields) and form.mark in str(fields.get("answer")):
            return form
    field_names = ", ".join(sorted(key[:40] for key in record.fields)[:20]) or "none"
    columns = "question and answer, or env.columns={question: .., answer: ..} that says which they are"
    raise BadInput(f"in no known format. Fields found: {field_names}", where=record.where, expected=columns)


def read_own(record: Located) -> Task:
    """This project's own: {"question", "answers": [..]}; multiple choice has {"options": {"A": ..}} too."""
    fields = record.lower
    answers = record.texts(fields.get("answers"), "answers")
    options = fields.get("options")
    if options is not None and not (isinstance(options, Mapping) and all(letter in options for letter in answers)):
        raise BadInput(
            f'{answers} are not among "options"', where=record.where, key='"answers"', expected='letters of {"A": ..}'
        )
    return record.task(record.text("question"), answers)


def flash_rag(record: Located) -> Task:
    """FlashRAG: any of "golden_answers"."""
    return record.task(record.text("question"), record.texts(record.lower.get("golden_answers"), "golden_answers"))


def rule_rows(record: Located) -> Task:
    """Rows of ReSearch, ICRL and DAPO-Math: "reward_model" holds "ground_truth", a text, a list or {"target": ..}.

    verl's may be anything that a function of the user's reads: then there is no answer here. The question is the field
    "question", or what "prompt" holds without the instructions around it.
    """
    fields = record.lower
    model = fields.get("reward_model")
    if not isinstance(model, Mapping) or "ground_truth" not in model:
        raise BadInput('has no "ground_truth"', where=record.where, key='"reward_model"')
    truth = model["ground_truth"]
    truth = truth["target"] if isinstance(truth, Mapping) and "target" in truth else truth
    listed = truth if isinstance(truth, list | tuple) else unpack_texts(truth)
    answers = tuple(text for text in answer_texts(listed) if text)
    return record.task(record.text("question") if "question" in fields else _question_in_prompt(record), answers)


def read_multi_hop(record: Located) -> Task:
    """HotpotQA, 2WikiMultiHopQA and MuSiQue: "answer" or any of "answer_aliases"; paragraphs stay in the record.

    MuSiQue's unanswerable questions have no answer key.
    """
    fields = record.lower
    if fields.get("answerable") is False:
        raise BadInput("an unanswerable question", where=record.where, expected="MuSiQue-Ans, which has none")
    aliases = fields.get("answer_aliases")
    also = record.texts(aliases, "answer_aliases") if aliases else ()
    return record.task(record.text("question"), (record.answer(), *also))


def trivia_qa(record: Located) -> Task:
    """TriviaQA: "answer" holds "value" and "aliases"."""
    key = record.lower.get("answer")
    if not isinstance(key, Mapping):
        raise BadInput('is no object with "value" and "aliases"', where=record.where, key='"answer"')
    also = record.texts(key["aliases"], "answer.aliases") if key.get("aliases") else ()
    return record.task(record.text("question"), (record.value_text(key.get("value"), "answer.value"), *also))


def gsm8k(record: Located) -> Task:
    """GSM8K: the result stands in "answer" after `#### `; thousands lose their commas."""
    question, solution = record.text("question"), text_field(record.lower, "answer", record.where)
    _, mark, final = solution.rpartition(FINAL_ANSWER)
    final = final.strip()
    if not mark or not final:
        problem = f'"answer" ends in {solution[-20:]!r}'
        raise BadInput(problem, where=record.where, expected=f'"{FINAL_ANSWER}" and the result')
    final = final.replace("{,}", "").replace(",", "") if read_amount(final) is not None else final
    return record.task(question, (final,))


def mathematics(record: Located) -> Task:
    """MATH, MATH-500 and AIME: "answer", or else the last box of "solution"."""
    has_answer = record.lower.get("answer") is not None
    final = record.answer() if has_answer else last_boxed(record.text("solution"))
    if not final:
        raise BadInput('no "answer", and no \\boxed{} ends "solution"', where=record.where)
    return record.task(record.text("problem"), (final,))


def theorem_qa(record: Located) -> Task:
    """TheoremQA: "Answer" is a text, a number, true or false, or one list, which people write without its brackets.

    Two numbers without brackets would be in any order: they are kept as parts instead, which are in theirs.
    """
    value = record.lower.get("answer")
    if isinstance(value, bool):
        answers: tuple[str, ...] = (str(value), "Yes" if value else "No")
    elif isinstance(value, list):
        numbers = [json.dumps(number) for number in value if isinstance(number, int | float)]
        listed = ", ".join(numbers)
        bare = (f"(a) {numbers[0]}, (b) {numbers[1]}",) if len(numbers) == 2 else ()
        answers = (f"[{listed}]", f"({listed})", *bare) if len(numbers) > 1 else (f"[{listed}]",)
    else:
        answers = (record.value_text(value, "answer"),)
    return record.task(record.text("question"), answers)


def question_answer(record: Located) -> Task:
    """Any other "question" and "answer": a text, a number, or a list of which any is right."""
    value = record.lower.get("answer")
    answers = record.texts(value if isinstance(value, list) else unpack_texts(value), "answer")
    return record.task(record.text("question"), answers)


def strategy_qa(record: Located) -> Task:
    """StrategyQA: "answer" is true or false, written as yes or no."""
    value = record.lower.get("answer")
    if not isinstance(value, bool):
        raise BadInput(f"is {str(value)[:40]!r}", where=record.where, key='"answer"', expected="true or false")
    return record.task(record.text("question"), ("yes" if value else "no",))


def expla_graphs(record: Located) -> Task:
    """ExplaGraphs: whether an argument supports or counters a belief."""
    stance = record.text("stance").casefold()
    if stance not in ("support", "counter"):
        raise BadInput(f"is {stance[:40]!r}", where=record.where, key='"stance"', expected="support or counter")
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
            raise BadInput(f"{piece[:40]!r} is no new step", where=where, expected='"step0: get the milk; step1: ..."')
        steps[name] = words.strip()
    constraints: list[list[str]] = []
    for piece in record.text("flatten_output_for_edge_prediction").split(";"):
        before, _, after = (part.strip() for part in piece.partition("->"))
        if before not in steps or after not in steps:
            raise BadInput(f"{piece.strip()[:40]!r} does not order two of its {len(steps)} steps", where=where)
        constraints.append([before, after])
    return _ordering_task(record, goal, steps, constraints)


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
            raise BadInput(f"a constraint does not order two of {', '.join(steps)[:80]}", where=record.where)
        pairs.append(pair)
    if not pairs:
        raise BadInput(
            "is missing, empty or no list", where=record.where, key='"constraints"', expected='[["step0", "step3"], ..]'
        )
    return _ordering_task(record, record.text("goal"), steps, pairs)


def _ordering_task(record: Located, goal: str, steps: Mapping[str, str], constraints: list[list[str]]) -> Task:
    question = f"Goal: {goal}\nSteps:\n" + "\n".join(f"{name}: {words}" for name, words in steps.items())
    return record.task(question, (), {"goal": goal, "steps": steps, "constraints": constraints})


def _question_in_prompt(record: Located) -> str:
    question = _strip_instruction(prompt_question(record, record.lower.get("prompt"), "prompt")).strip()
    if not question:
        raise BadInput("holds no question", where=record.where, key='"prompt"')
    return question


def _strip_instruction(prompt: str) -> str:
    if prompt.startswith(DAPO_BEFORE):
        _, _, question = prompt.partition("\n\n")
        end = question.rfind(DAPO_AFTER)
        return question if end < 0 else question[:end]
    for mark in ICRL_MARKS:
        if mark in prompt:
            return prompt.rpartition(mark)[2]
    return prompt


def _refuse_media(record: Located) -> Located:
    refuse_columns(record.fields, record.where)
    return record


# Records that belong to other readers, and would be taken for something else here.
FOREIGN: dict[tuple[str, ...], str] = {
    ("node_number", "graph"): "an NLGift graph, which env.name=graph reads",
    ("query", "ground_truth_plan"): "a PlanBench instance, which env.name=blocksworld reads",
    ("initial", "goal"): "a Blocksworld instance, which env.name=blocksworld reads",
    ("fact", "eval"): "a WikiDYK fact, of which `rlsys data prepare graph_rl` makes questions",
    ("contents",): "a passage of a corpus, which a retriever reads",
}
# Tried in this order: a format stands before those whose fields are among its own.
FORMATS: dict[str, Format] = {
    "rlsys": Format(("question", "answers"), read_own),
    "flashrag": Format(("question", "golden_answers"), flash_rag),
    "rule_rows": Format(("reward_model",), rule_rows),
    "knowledge_crosswords": Format(
        ("source", "relation", "target", "blanks", "options", "golds"), knowledge_crosswords
    ),
    "proscript": Format(
        ("scenario", "flatten_input_for_edge_prediction", "flatten_output_for_edge_prediction"), proscript
    ),
    "ordered_steps": Format(("goal", "steps", "constraints"), ordered_steps),
    "explagraphs": Format(("belief", "argument", "stance"), expla_graphs),
    "musique": Format(("question", "answer", "paragraphs"), read_multi_hop),
    "2wiki": Format(("question", "answer", "supporting_facts", "context", "evidences"), read_multi_hop),
    "hotpotqa": Format(("question", "answer", "supporting_facts", "context"), read_multi_hop),
    "strategyqa": Format(("question", "answer", "term"), strategy_qa),
    "mmlu_pro": Format(("question", "answer", "options"), mmlu_pro),
    "mmlu": Format(("question", "answer", "choices"), lettered),
    "arc": Format(("question", "choices", "answerkey"), labelled),
    "triviaqa": Format(("question", "answer", "question_source"), trivia_qa),
    "theoremqa": Format(("question", "answer", "answer_type"), theorem_qa),
    "gsm8k": Format(("question", "answer"), gsm8k, mark=FINAL_ANSWER),
    "math": Format(("problem", "solution"), mathematics),
    "aime": Format(("problem", "answer"), mathematics),
    "question_answer": Format(("question", "answer"), question_answer),
    "prompts": Format(("prompt",), prompt_row),
    "messages": Format(("messages",), conversation),
}


def read_source(
    source: str,
    *,
    split: str | None = None,
    columns: Mapping[str, str] | None = None,
    format: str = "auto",
    limit: int | None = None,
) -> list[Task]:
    """The tasks of a file, of a folder or of a data set on the hub; the first `limit` of them.

    `source` is a path (JSON lines, a JSON array, parquet, CSV, a folder), or `owner/name` or `owner/name:config` on the
    hub; `split` chooses among the files of a folder or a data set, `columns` renames (`files.read_records`). `auto`
    recognises the format by the fields of each record. Raises BadInput for what cannot be read, with file and line, is
    in no known format, or in one of two that have the same fields.
    """
    if format != "auto" and format not in FORMATS:
        raise BadInput(
            key="format",
            found=format,
            expected=f"auto or one of {', '.join(FORMATS)}{nearest(format, FORMATS, otherwise='')}",
        )
    require(limit is None or limit >= 1, "limit", limit, "at least 1, or none")
    records = map(_refuse_media, islice(read_records(source, split=split, columns=columns), limit))
    if format != "auto":
        return [FORMATS[format].read(record) for record in records]
    tasks: list[Task] = []
    of_fields: dict[tuple[str, ...], Format] = {}  # those whose answers have a mark, or those without: not one row so
    latest: Format | None = None
    for record in records:
        try:
            form = recognise(record)
        except BadInput:
            if latest is None:
                raise
            form = latest  # says what is wrong with it
        latest = of_fields.setdefault(form.fields, form)
        if form is not latest and form.mark:
            raise BadInput(f"has {form.mark!r}, and those before it have not", where=record.where, key='"answer"')
        tasks.append(latest.read(record))
    return tasks
