"""What a judge is asked and what it says, and the guard through which it is asked."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from envs.services.guard import Guard, ToolFailed
from envs.services.judge.config import JudgeConfig
from envs.services.stats import ToolStats
from rlsys.errors import RunFailed
from rlsys.types import FailureKind

T = TypeVar("T")


RULED = "The message is longer than"  # how a judgement begins that the length of a message decides


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRequest:
    """JudgeRequest(kind="outcome_math", fields={"question": "2 + 3?", "answers": "5", "answer": "five"})"""

    kind: str  # of envs.services.judge.kinds.KINDS
    fields: Mapping[str, str]
    unwritten: Mapping[str, str] = field(
        default_factory=dict
    )  # fields without what a policy wrote; else they are empty
    ruled: str = ""  # a judgement by rule: no judge is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict(value="GOOD", accepted=True). `parts` are the tagged texts of action prompting."""

    value: str
    accepted: bool | None = None  # whether it speaks for what was judged; None where it says nothing of the kind
    parts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Judged(verdict=Verdict(value="BAD", accepted=False), text="A repeated query. BAD", cached=False, seconds=1)"""

    verdict: Verdict | None  # None: the text holds no verdict, or is cut
    text: str
    cached: bool
    cut: bool = False  # at its limit of tokens: what was weighed so far is no verdict
    first: bool = False  # the first verdict of the text counts, not the last
    seconds: float = 0.0


class AskableJudge(ABC):
    """A judge, in this process or over HTTP (`envs.services.judge.judge`), for one event loop."""

    def __init__(self, config: JudgeConfig) -> None:
        self.config = config
        self._guard: Guard[Any, Any] = Guard(
            "judge",
            self._call,
            replace(config, cache_size=0),
            outage_s=config.outage_s,
            spacing_s=config.spacing_s,
        )
        self._asked = self._cached = self._unparsable = self._cut = 0

    async def ask(self, request: JudgeRequest, seed: int = 0) -> Judged:
        """Seed 0 is greedy, any other one samples. Raises ToolFailed when the judge is out, BadRequest."""
        started = time.monotonic()
        self._asked += 1
        judged = await self._judged(request, seed)
        self._cached += judged.cached
        self._cut += judged.cut
        self._unparsable += judged.verdict is None and not judged.cut
        return replace(judged, seconds=time.monotonic() - started)

    def stats(self) -> ToolStats:
        """With what the guard does not see: the cache in front of it, and, as errors, answers without a verdict."""
        stats = self._guard.stats()
        counts = {"unparsable": self._unparsable, "cut": self._cut}
        errors = dict(stats.errors) | {name: count for name, count in counts.items() if count}
        return replace(stats, calls=self._asked, cache_hits=self._cached, errors=errors)

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _judged(self, request: JudgeRequest, seed: int) -> Judged:
        """Asked through `_guard`, unless the answer is known."""

    @abstractmethod
    async def _call(self, query: Any) -> Any:
        """One attempt to answer what `_judged` asks."""


async def ask_each(
    judge: AskableJudge,
    items: Sequence[T],
    ask: Callable[[T], Awaitable[None]],
    at_once: int,
    show: Callable[[str, int, int], None],
    subject: str,
) -> list[T]:
    """`ask` about each item, so many at a time, then close the judge. Returns those whose question it refused.

    Raises RunFailed where the judge is out: what it has said is in its cache.
    """
    waiting, done, refused = iter(items), 0, []

    async def work() -> None:
        nonlocal done
        for item in waiting:
            try:
                await ask(item)
            except ToolFailed as failed:
                if failed.failure.kind is not FailureKind.DATA:
                    raise
                refused.append(item)  # too long for the model
            done += 1
            show(subject, done, len(items))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(items))):
                group.create_task(work())
    except* ToolFailed as failures:
        so_far = f"{done} of {len(items)} {subject}: the same command continues from there"
        raise RunFailed(f"{failures.exceptions[0]}; {so_far}") from failures
    finally:
        await judge.close()
    return refused
