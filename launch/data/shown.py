"""Prompts with their right answers, for an sft stage: as the `questions` world asks, in a set's style of answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import networkx

from envs.protocols.styles import STYLES
from envs.tasks.formats import read_source
from envs.worlds.questions import QuestionsConfig, QuestionsWorld
from launch.data.records import PublicSet, Row
from rlsys.errors import BadInput
from rlsys.types import Task


def shown_rows(path: Path, kind: PublicSet) -> Iterator[Row]:
    """`{"prompt": [{"role": "user", ..}], "response": "..", ..}` of each task of a file. Raises BadInput."""
    style = kind.style
    world = QuestionsWorld(QuestionsConfig(data=str(path), style=style, prompt=kind.prompt))  # type: ignore[arg-type]
    for task in read_source(str(path)):
        prompt = [{"role": each.role, "content": each.content} for each in world.env(task).first_messages()]
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
        raise BadInput(f"{name}: the constraints of its steps go round in a circle") from error
