"""What a judge is asked, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from envs.services.stats import ToolStats


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """JudgeRequest(kind="outcome_math", fields={"question": "2 + 3?", "answers": "5", "answer": "five"})"""

    kind: str  # of envs.services.judge.kinds.KINDS
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict(value="GOOD", accepted=True). `parts` are the tagged texts of action prompting."""

    value: str
    accepted: bool | None = None  # whether it speaks for what was judged; None where it says nothing of the kind
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Judged(verdict=Verdict(value="BAD", accepted=False), text="A repeated query. BAD", cached=False, seconds=1)"""

    verdict: Verdict | None  # None: the text holds no verdict
    text: str
    cached: bool
    seconds: float


class Asks(Protocol):
    """A judge: `envs.services.judge.judge.Judge` or, over HTTP, `envs.services.judge.client.JudgeClient`."""

    async def ask(self, request: JudgeRequest, seed: int = 0) -> Judged:
        """Seed 0 is greedy, any other one samples. Raises ToolFailed when the judge is out, BadRequest."""
        ...

    def stats(self) -> ToolStats: ...

    async def close(self) -> None: ...
