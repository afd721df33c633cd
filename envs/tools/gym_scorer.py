"""reasoning-gym's scorers, which run in the sandbox only: some of them execute what they are given.

What an answer can cause is its own score of zero: a scorer that raises, hangs or fills the memory on it. An answer is
text that a policy wrote, so nothing of it is looked at in this process but whether it is the task's own answer and
whether it is within the family's grammar.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cachetools import LRUCache

from envs.problems.procedural.entries import FOLDER, find_library
from envs.problems.procedural.families import FAMILIES, compare
from envs.services.stats import ToolStats
from envs.tools.python_tool import PythonTool
from envs.tools.sandbox import Outcome, SandboxConfig
from rlsys.seeds import hash_order

MODULE = "gym_program"
MAX_ANSWER = 8192  # characters; the longest answers of the library have about 2000
REMEMBERED = 4096  # scores: siblings of one group often give the same answer


class How(StrEnum):
    """How a score was found."""

    COMPARED = "compared"  # with the task's own answer: equal to it, or the family has no other scorer
    SCORER = "scorer"  # what the family's scorer gave
    GRAMMAR = "grammar"  # 0: text that this family's scorer must not see
    UNSCORABLE = "unscorable"  # 0: the scorer raised, hung or used too much memory on it


@dataclass(frozen=True, slots=True)
class Scored:
    value: float  # 0 to 1
    how: How


class GymScorer:
    """One per world and event loop, as `PythonTool`, whose failures it raises. Making it starts nothing."""

    def __init__(self, config: SandboxConfig, *, needed: bool = True) -> None:
        """needed: whether any task has a scorer; `check` tries the sandbox only then."""
        self._needed = needed
        self._python = PythonTool(replace(config, preload=[*config.preload, MODULE]), (FOLDER, find_library()))
        self._known: LRUCache[bytes, Scored] = LRUCache(REMEMBERED)
        self._unscorable = 0

    async def score(self, request: Mapping[str, Any], answer: str) -> Scored:
        """request: family, level and options of the task, and its `entry`. Raises ToolFailed without a sandbox."""
        family, gold = FAMILIES[request["family"]], request["entry"]["answer"]
        if answer == gold or family.compares:
            return Scored(compare(answer, gold), How.COMPARED)
        if len(answer) > MAX_ANSWER or (family.grammar is not None and not family.grammar.fullmatch(answer)):
            return Scored(0.0, How.GRAMMAR)
        question = json.dumps({**request, "answer": answer})
        place = hash_order(question)
        scored = self._known.get(place)
        if scored is None:
            scored = await self._run(question)
            if scored.how is How.SCORER:  # a limit that it met may be that of a busy machine: the next time it is tried
                self._known[place] = scored
        return scored

    def stats(self) -> Mapping[str, ToolStats]:
        python = self._python.stats()["python"]
        return {"scorer": replace(python, errors={**python.errors, How.UNSCORABLE: self._unscorable})}

    async def check(self) -> None:
        if self._needed:
            await self._python.check()

    async def close(self) -> None:
        await self._python.close()

    async def _run(self, question: str) -> Scored:
        # The question is a literal of ASCII JSON: nothing in it is code.
        execution = await self._python.run(f"import json, {MODULE}\n{MODULE}.score(json.loads({question!r}))")
        value = _parse_score(execution.text) if execution.outcome is Outcome.OK else None
        if value is None:
            self._unscorable += 1
            return Scored(0.0, How.UNSCORABLE)
        return Scored(value, How.SCORER)


def _parse_score(text: str) -> float | None:
    """From 0 to 1; None for what is no score."""
    try:
        value = float(text)
    except ValueError:
        return None
    return min(max(value, 0.0), 1.0) if math.isfinite(value) else None
