"""Graph problems as tasks, and from files: our task records, NLGift's raw graphs, NLGift's chat messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envs.papers.graph_rl.graphs.encodings import HEADINGS, Encoding, wording
from envs.papers.graph_rl.graphs.problem import (
    Kind,
    Problem,
    Weight,
    from_record,
    make_problem,
    require_int,
    to_record,
    truth,
)
from envs.tasks.files import number_text, read_records
from envs.tasks.splits import make_generated_task
from rlsys.errors import BadInput
from rlsys.types import Task

_RAW_PAIR = re.compile(r"\(([0-9]{1,5}),([0-9]{1,5})\)")
_RAW_TRIPLE = re.compile(r"([0-9]{1,5}) ([0-9]{1,5}) ([0-9]{1,9}(?:\.[0-9]{1,9})?)")
_RAW_QUESTION = re.compile(r"([0-9]{1,5}) ([0-9]{1,5})")
_LINE = re.compile(r"Node ([0-9]{1,5}) is connected to ([^\n]*)\.")
_NEIGHBOUR = re.compile(r"([0-9]{1,5})|node ([0-9]{1,5}) with weight ([0-9]{1,9}(?:\.[0-9]{1,9})?)")
_QUESTION = re.compile(r"between node ([0-9]{1,5}) and node ([0-9]{1,5})[,?]")


def to_task(problem: Problem, encoding: Encoding, task_id: str | None = None) -> Task:
    """Its question is the wording without an instruction, its answer the oracle's."""
    record = to_record(problem) | {"encoding": encoding}
    task = make_generated_task("graph", wording(problem, encoding), truth(problem), record)
    return replace(task, task_id=task_id) if task_id else task


def problem_of_task(task: Task) -> Problem:
    return from_record(task.record, f"task {task.task_id}")


def read_problems(source: str, **how: Any) -> list[tuple[str, Problem]]:
    """Task ids with their problems, whose stored answers, where there are any, are the oracle's.

    how: as of `read_records`. Raises BadInput: `graphs.jsonl line 7: "source" is 9, ...`.
    """
    problems: list[tuple[str, Problem]] = []
    for record in read_records(source, **how):
        problem, stored = read_record(record.fields, record.where)
        try:
            answer = truth(problem)
        except BadInput as error:
            raise BadInput(error, where=record.where) from error
        if stored is not None and stored != answer:
            raise BadInput(f"the answer is {stored!r}, but the graph says {answer!r}", where=record.where)
        problems.append((record.task_id, problem))
    return problems


def read_record(record: Mapping[str, Any], where: str) -> tuple[Problem, str | None]:
    """A record in any of the three formats, and the answer stored in it. Raises BadInput that starts with `where`."""
    record = {key: value for key, value in record.items() if value is not None}
    if "kind" in record:
        return from_record(record, where), None
    if "node_number" in record:
        return _read_raw_graph(record, where)
    if "messages" in record:
        return _read_chat_messages(record, where)
    raise BadInput('no "kind" (a task), "node_number" (a raw graph) or "messages" (a chat) among its keys', where=where)


def _read_raw_graph(record: Mapping[str, Any], where: str) -> tuple[Problem, str]:
    """`{"node_number": 5, "graph": "(0,4) (1,4)" or "0 4 4,0 3 3", "question": "0 4", "answer": "yes" or 4}`"""
    graph, question, stored = (record.get(key) for key in ("graph", "question", "answer"))
    if not isinstance(graph, str) or not isinstance(question, str):
        raise BadInput('"graph" and "question" are not both texts', where=where)
    kind = Kind.CONNECTIVITY if stored in ("yes", "no") else Kind.SHORTEST_PATH
    pattern, separator, form = (
        (_RAW_PAIR, " ", "(0,4) (1,4)") if kind is Kind.CONNECTIVITY else (_RAW_TRIPLE, ",", "0 4 4,0 3 3")
    )
    rows = []
    for piece in graph.split(separator) if graph.strip() else []:
        match = pattern.fullmatch(piece.strip())
        if match is None:
            raise BadInput(f"holds {piece[:40]!r}", where=where, key='"graph"', expected=f"the form {form!r}")
        rows.append(_edge_row(*match.groups()))
    question_match = _RAW_QUESTION.fullmatch(question.strip())
    if question_match is None:
        raise BadInput(f"is {question[:40]!r}", where=where, key='"question"', expected="two nodes")
    answer = number_text(stored) if isinstance(stored, int | float) else str(stored)
    count = record["node_number"]  # a column with one that is missing holds 5.0 for 5
    count = int(count) if isinstance(count, float) and count.is_integer() else count
    num_nodes = require_int(count, f'{where}: "node_number"')
    return make_problem(kind, num_nodes, rows, int(question_match[1]), int(question_match[2]), where), answer


def _read_chat_messages(record: Mapping[str, Any], where: str) -> tuple[Problem, str | None]:
    """The incident wording in a user message; the assistant's last word, where there is one, is the stored answer.

    The wording does not say how many nodes there are: one more than the largest number in it.
    """
    user, assistant = (_last_content(record["messages"], role, where) for role in ("user", "assistant"))
    kinds = [kind for kind in Kind if user.startswith(HEADINGS[kind, "incident"])]
    if not kinds:
        raise BadInput(f"the user's message is no graph problem in the incident wording: {user[:40]!r}", where=where)
    rows: dict[tuple[int, int], list[Weight]] = {}
    for line in user.split("\n"):
        if match := _LINE.fullmatch(line):
            for piece in match[2].split(", "):
                neighbour = _NEIGHBOUR.fullmatch(piece)
                if neighbour is None:
                    raise BadInput(f"{piece[:40]!r} is no neighbour in the incident wording", where=where)
                row = _edge_row(match[1], neighbour[1] or neighbour[2], *neighbour.groups()[2:3])
                rows.setdefault((int(min(row[:2])), int(max(row[:2]))), row)
    question_match = _QUESTION.search(user)
    if question_match is None:
        raise BadInput("the user's message asks about no two nodes", where=where)
    source, target = int(question_match[1]), int(question_match[2])
    num_nodes = 1 + max((source, target, *(node for pair in rows for node in pair)))
    stored = assistant.rstrip().rpartition(" ")[2].removesuffix(".") or None
    return make_problem(kinds[0], num_nodes, list(rows.values()), source, target, where), stored


def _last_content(messages: Any, role: str, where: str) -> str:
    """The last message of a role; "" without one."""
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise BadInput("is expected to be a list of objects", where=where, key='"messages"')
    contents = [message.get("content") for message in messages if message.get("role") == role]
    if contents and not isinstance(contents[-1], str):
        raise BadInput(f"the {role}'s message holds no text", where=where)
    return contents[-1] if contents else ""


def _edge_row(first: str, second: str, weight: str | None = None) -> list[Weight]:
    row: list[Weight] = [int(first), int(second)]
    if weight is not None:
        row.append(float(weight) if "." in weight else int(weight))
    return row
