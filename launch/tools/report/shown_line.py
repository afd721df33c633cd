"""A trajectory as its line in a file has it: what a terminal shows of it, and nothing raised by what is missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.run_dir.lenient import decode_lenient

NOTHING = object()  # that an agent returned


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTask:
    task_id: Any = None
    question: str | None = None
    answers: tuple[Any, ...] = ()
    answer: Any = None

    def describe_answers(self) -> str:
        """The right ones, where the task has some."""
        answers = [answer for answer in self.answers or (self.answer,) if answer is not None]
        return " | ".join(answer if isinstance(answer, str) else json.dumps(answer) for answer in answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    role: str = ""
    content: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTurn:
    """What the model said at once: its number, with what it began, and which one it continues."""

    number: int | None = None
    begins: str | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFailure:
    kind: Any = None
    where: Any = None
    detail: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFinding:
    """What a rule of the reward found in a message, from one of its characters to another."""

    message: int | None = None
    start: int | None = None
    end: int | None = None
    rule: Any = None
    value: Any = None
    text: str | None = None

    @property
    def span(self) -> tuple[int, int]:
        return (0, 0) if self.start is None or self.end is None else (self.start, self.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownAgent:
    """What an agent left behind, in the state of an episode of one."""

    exit: Any = None
    returned: Any = NOTHING
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine:
    """A trajectory, as far as its line has it: it may be of an earlier or a later version."""

    task: ShownTask = ShownTask()
    failure: ShownFailure | None = None
    reward: Any = None
    correct: Any = None
    advantage: Any = None
    num_tokens: Any = None
    end: Any = None
    truncated: Any = None
    worker: Any = None
    parts: Mapping[str, Any] = field(default_factory=dict)
    prompt: tuple[ShownMessage, ...] = ()
    messages: tuple[ShownMessage, ...] = ()
    turns: tuple[ShownTurn, ...] = ()
    judgements: tuple[Any, ...] = ()
    findings: tuple[ShownFinding, ...] = ()
    token_ids: tuple[Any, ...] = ()  # of each turn
    token_advantages: tuple[Any, ...] = ()
    state: Mapping[str, Any] = field(default_factory=dict)

    @property
    def agent(self) -> ShownAgent | None:
        return decode_lenient(ShownAgent, self.state) if self.state.keys() >= {"exit", "conversations"} else None


def read_line(content: Mapping[str, Any]) -> ShownLine:
    return decode_lenient(ShownLine, content)
