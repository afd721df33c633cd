"""A user message from a file: `{question}` and other slots, which are fields of a task's record.

Shipped files lie beside this module, in `prompts/`, by paper: `graph_rl/strategyqa`. A comment at the top of a file,
`<!-- where it is from -->`, is no part of the message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlsys.errors import BadInput, nearest
from rlsys.types import Task

FOLDER = Path(__file__).with_name("prompts")
_SLOT = re.compile(r"\{([a-z_]+)\}")
_COMMENT = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)


def strip_comment(text: str) -> str:
    return _COMMENT.sub("", text, count=1).strip()


class Prompt:
    """`Prompt("graph_rl/strategyqa").fill(task)`; the name of a shipped file, or a path of one's own."""

    def __init__(self, name: str) -> None:
        """Raises BadInput for a file that cannot be read or has no slot."""
        shipped = FOLDER / f"{name}.md"
        path = shipped if shipped.is_file() else Path(name)
        try:
            self._text = strip_comment(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            known = sorted(str(each.relative_to(FOLDER).with_suffix("")) for each in FOLDER.rglob("*.md"))
            raise BadInput(
                f"no file and no shipped prompt{nearest(name, known)}", key="env.prompt", found=name
            ) from error
        self.name, self.slots = name, frozenset(_SLOT.findall(self._text))
        if not self.slots:
            raise BadInput("no {question} and no other field of a task in it", key="env.prompt", found=name)

    def fill(self, task: Task, **more: str) -> str:
        """`more` are slots that are no fields. Raises BadInput for a field that the task lacks."""
        fields: dict[str, Any] = {**task.record, "question": task.question, **more}
        missing = sorted(slot for slot in self.slots if fields.get(slot) is None)
        if missing:
            raise BadInput(
                f"no field {missing[0]!r}, which env.prompt={self.name!r} shows", where=f"task {task.task_id}"
            )
        return _SLOT.sub(lambda slot: _shown(fields[slot[1]]), self._text)


def _shown(value: Any) -> str:
    """A list is told with commas, an object as `key: value; key: value`."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {each}" for key, each in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)
