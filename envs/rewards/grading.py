"""How a reward that is a pure function gets a verdict that takes a process pool.

`grading` names what is open, `graded` has it decided and fills `Transcript.correct`, and the reward is called on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from rlsys.types import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Is `given` one of `golds`? Grading(given="\\frac{2}{4}", golds=("0.5",))"""

    given: str
    golds: tuple[str, ...]


@runtime_checkable
class NeedsGrading(Protocol):
    """A reward that may ask for a verdict first."""

    def grading(self, transcript: Transcript) -> Grading | None: ...


class Grades(Protocol):
    """The part of `envs.rewards.maths.grader.Grader` that is needed here."""

    async def grade_any(self, given: str, golds: Sequence[str]) -> bool: ...


async def graded(reward: Any, transcript: Transcript, grader: Grades) -> Transcript:
    """The transcript with the verdict that `reward` asks for, or as it is. Raises what the grader raises."""
    asked = reward.grading(transcript) if isinstance(reward, NeedsGrading) else None
    if asked is None:
        return transcript
    return replace(transcript, correct=await grader.grade_any(asked.given, asked.golds))
