"""Rows made of a recipe's other files: prompts with their right answers, for an sft stage, and single steps of tasks.

A prompt is asked as the `questions` world asks it, in a set's style of answer. A single step is a separate question
(arXiv 2506.00845, section 5.2 and appendix E).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import networkx

from envs.protocols.styles import STYLES
from envs.tasks.files import open_records
from envs.tasks.formats import read_source, recognise
from envs.worlds.questions import QuestionsConfig, QuestionsWorld
from launch.data.records import PublicSet, Row
from rlsys.errors import BadInput
from rlsys.types import Task

Fields = Mapping[str, Any]


def demonstration_rows(path: Path, kind: PublicSet) -> Iterator[Row]:
    """`{"prompt": [{"role": "user", ..}], "response": "..", ..}` of each task of a file. Raises BadInput."""
    style = kind.style
    world = QuestionsWorld(QuestionsConfig(data=str(path), style=style, prompt=kind.prompt))  # type: ignore[arg-type]
    for task in read_source(str(path)):
        prompt = [{"role": message.role, "content": message.content} for message in world.env(task).first_messages()]
        response = STYLES[style].write(answer_of(task))
        yield {"prompt": prompt, "response": response, "question": task.question, "task_id": task.task_id}


def answer_of(task: Task) -> str:
    """Its first answer; of steps to be ordered, an order that meets every constraint: step2->step0->step1"""
    return task.answers[0] if task.answers else "->".join(in_order(task.record, task.task_id))


def in_order(record: Mapping[str, Any], name: str) -> list[str]:
    """Of steps that may come next, the one with the lowest number does. Raises BadInput for a circle."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(record["steps"])
    graph.add_edges_from(record["constraints"])
    try:
        return list(networkx.lexicographical_topological_sort(graph, key=lambda step: (len(step), step)))
    except networkx.NetworkXUnfeasible as error:
        raise BadInput("the constraints of its steps go round in a circle", where=name) from error


def single_steps(name: str, path: Path) -> Iterator[Row]:
    """Of each task of a file; `parent` is the task_id that an evaluation gives it. Raises BadInput."""
    for record in open_records(str(path)):
        task = recognise(record).read(record)
        for number, row in enumerate(STEPWISE[name](task.record), start=1):
            yield {"id": f"{record.task_id}#{number}", **row, "parent": task.task_id}


def _strategyqa(fields: Fields) -> Iterator[Row]:
    """Its sub-questions that need no earlier answer (#1); an answer is right where the facts have it."""
    facts = list(fields.get("facts") or ())
    for question in fields.get("decomposition") or () if facts else ():
        if "#" not in question:
            yield {"question": question, "answers": facts, "facts": facts}


def _crosswords(fields: Fields) -> Iterator[Row]:
    """Its constraints with the right words in the blanks: all of them are true."""
    for edge in fields["filled"]:
        yield {"question": edge, "answers": ["true"]}


def _proscript(fields: Fields) -> Iterator[Row]:
    """Its constraints one by one, in the right order: the answer is yes."""
    goal, steps = fields["goal"], fields["steps"]
    for before, after in fields["constraints"]:
        earlier, later = steps[before], steps[after]
        question = f"{goal}: {earlier} before {later}"
        yield {"question": question, "answers": ["yes"], "target": goal, "earlier": earlier, "later": later}


STEPWISE: dict[str, Callable[[Fields], Iterator[Row]]] = {
    "strategyqa": _strategyqa,
    "knowledge_crosswords": _crosswords,
    "proscript": _proscript,
}
