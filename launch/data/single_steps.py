"""The single steps of tasks that take several (arXiv 2506.00845, section 5.2 and appendix E): a question each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envs.tasks.files import located
from envs.tasks.formats import recognise
from launch.data.records import Row

Fields = Mapping[str, Any]


def single_steps(name: str, path: Path) -> Iterator[Row]:
    """Of each task of a file; `parent` is the task_id that an evaluation gives it. Raises BadInput."""
    for record in located(str(path)):
        task = recognise(record).read(record)
        for number, row in enumerate(STEPWISE[name](task.record), start=1):
            yield {"id": f"{record.task_id}#{number}", **row, "parent": task.task_id}


def _strategyqa(fields: Fields) -> Iterator[Row]:
    """Its sub-questions that need no earlier answer (#1); an answer is right where the facts have it."""
    facts = list(fields.get("facts") or ())
    for asked in fields.get("decomposition") or () if facts else ():
        if "#" not in asked:
            yield {"question": asked, "answers": facts, "facts": facts}


def _crosswords(fields: Fields) -> Iterator[Row]:
    """Its constraints with the right words in the blanks: all of them are true."""
    for edge in fields["filled"]:
        yield {"question": edge, "answers": ["true"]}


def _proscript(fields: Fields) -> Iterator[Row]:
    """Its constraints one by one, told in the right order: the answer is yes."""
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
