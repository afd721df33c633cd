"""Questions with solutions to tasks with short answers, and the tasks that a model solved (Long CoT, section 4).

A language model takes the short answer out of each solution (prompt kind `extract`). Where it leaves the box empty, the
question has none, and is dropped. Two answers of a teacher to each question then say whether that answer is worth
something: a question of which neither agrees with it is dropped too.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.services.judge.request import AskableJudge, JudgeRequest, ask_each
from envs.tasks.conversation import full_question, turns_before
from envs.tasks.files import read_jsonl
from envs.tasks.formats import read_source
from launch.data.records import Progress
from rlsys.errors import BadInput
from rlsys.files import replace_file
from rlsys.jsonl import json_line
from rlsys.types import Message, Task

SOLUTIONS = ("solution", "response", "answer")  # fields of a record that may hold one, the best first


@dataclass(slots=True)
class Extracted:
    """What became of the questions."""

    rows: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by place in the source
    dropped: Counter[str] = field(default_factory=Counter)  # empty_box | no_box | refused

    def describe(self, total: int) -> str:
        why = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(self.dropped.items()))
        return f"{len(self.rows):,} of {total:,} questions have a short answer" + (f" ({why})" if why else "")


def extract(
    source: str, output: Path, open_judge: Callable[[], Awaitable[AskableJudge]], at_once: int, show: Progress
) -> str:
    """Write `{"question", "answers": [short], "solution"}` for each question that has a short answer, in their order.

    Returns what became of them, in one line. Raises BadInput for a source that cannot be read, RunFailed where the
    model is out: what it has said is in its cache.
    """
    tasks = read_source(source)
    extracted = asyncio.run(_extract_answers(tasks, open_judge, at_once, show))
    replace_file(output, b"".join(json_line(extracted.rows[place]) for place in sorted(extracted.rows)))
    return extracted.describe(len(tasks))


async def _extract_answers(
    tasks: Sequence[Task], open_judge: Callable[[], Awaitable[AskableJudge]], at_once: int, show: Progress
) -> Extracted:
    extracted, judge = Extracted(), await open_judge()

    async def ask(item: tuple[int, Task]) -> None:
        place, task = item
        solution = solution_of(task)
        request = JudgeRequest(kind="extract", fields={"problem": full_question(task), "solution": solution})
        verdict = (await judge.ask(request)).verdict
        if verdict is None:
            extracted.dropped["no_box"] += 1
        elif not verdict.value.strip():
            extracted.dropped["empty_box"] += 1
        else:
            answers = [verdict.value.strip()]
            extracted.rows[place] = {"question": task.question, "answers": answers, "solution": solution} | earlier(
                task
            )

    refused = await ask_each(judge, list(enumerate(tasks)), ask, at_once, show, "extracted")
    extracted.dropped += Counter(refused=len(refused))
    return extracted


def earlier(task: Task) -> dict[str, Any]:
    """The conversation that ends in the question, for a row that has one."""
    turns = turns_before(task, shown=True)
    messages = (*turns, Message(role="user", content=task.question))
    return {"prompt": [{"role": message.role, "content": message.content} for message in messages]} if turns else {}


def solution_of(task: Task) -> str:
    """The worked solution of a record, or its answers."""
    texts = (task.record.get(key) for key in SOLUTIONS)
    return next((text for text in texts if isinstance(text, str) and text.strip()), " or ".join(task.answers))


def write_solved(path: str, output: Path) -> tuple[int, int]:
    """Write the tasks of the trajectories in `path`, each once, in their order: what `rlsys generate --keep correct`
    kept was solved. Returns (tasks, trajectories). Raises BadInput for a file that is not generate's.
    """
    tasks: dict[str, bytes] = {}
    count = 0
    for task in _tasks(path):
        count += 1
        tasks.setdefault(json.dumps([task["task_id"], task["question"]]), json_line(task))
    replace_file(output, b"".join(tasks.values()))
    return len(tasks), count


def _tasks(path: str) -> Iterator[dict[str, Any]]:
    for number, record in read_jsonl(path):
        task = record.get("task")
        if not isinstance(task, dict) or not {"task_id", "question", "answers"} <= task.keys():
            raise BadInput(
                'no "task"', where=f"{path} line {number}", expected="trajectories that rlsys generate has kept"
            )
        yield task
