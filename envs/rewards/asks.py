"""What a reward that is a pure function asks others for: a grader in a separate process, a judge.

`grading` and `judging` name what is open, `resolve_requests` has it answered and fills `Transcript.correct`, or
`Transcript.judgements` where a judge was asked about every message, and `Transcript.scores` where functions are
awaited; the reward is called on that. Judgements that came with the transcript stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from envs.services.guard import ToolFailed
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.parse import without_reasoning
from envs.services.judge.request import AskableJudge, Judged, JudgeRequest
from rlsys.rollout import EpisodeBroken
from rlsys.types import Failure, FailureKind, Transcript

RETRY_SEED = 1
CUT_OFF = "[cut off]"  # stands for an answer that was cut: rewards read a judgement's text again
SHOWN = 200  # characters of an answer without a verdict, in its failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """Is `given` one of `golds`? Grading(given="\\frac{2}{4}", golds=("0.5",))"""

    given: str
    golds: tuple[str, ...]


@runtime_checkable
class NeedsGrading(Protocol):
    """A reward that may ask for a verdict first."""

    def grading(self, transcript: Transcript) -> Grading | None: ...


@runtime_checkable
class NeedsJudging(Protocol):
    """A reward that may ask a judge first."""

    judge: JudgeConfig
    always_judged: bool  # no score without a judge; false where the rules can do without one

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """One question for each of the model's messages, and one about its answer; none where nothing is open."""
        ...


@runtime_checkable
class NeedsAwaiting(Protocol):
    """A reward with functions that are awaited first."""

    waits: bool  # whether it has any

    async def scores(self, transcript: Transcript) -> Mapping[str, float | None]: ...


class Grades(Protocol):
    """The part of `envs.rewards.maths.grader.Grader` that is needed here."""

    async def grade_any(self, given: str, golds: Sequence[str]) -> bool: ...


def needs_awaiting(reward: Any, transcript: Transcript) -> bool:
    """Whether something has to be awaited first: a judge, a grader, a function."""
    if isinstance(reward, NeedsAwaiting) and reward.waits:
        return True
    if isinstance(reward, NeedsJudging) and reward.judge.given and reward.judging(transcript):
        return True
    return isinstance(reward, NeedsGrading) and reward.grading(transcript) is not None


async def resolve_requests(
    reward: Any, transcript: Transcript, grader: Grades, find_judge: Callable[[JudgeConfig], AskableJudge]
) -> Transcript:
    """The transcript with what the reward asks others for, or as it is.

    Raises what the grader raises, and EpisodeBroken: of kind infra or timeout when the judge is out, data for a prompt
    that it refuses whatever the policy wrote, and for an answer without a verdict where that is to fail. Never a zero
    for the judge's own fault.
    """
    if isinstance(reward, NeedsAwaiting) and reward.waits:
        transcript = replace(transcript, scores=await reward.scores(transcript))
    requests = reward.judging(transcript) if isinstance(reward, NeedsJudging) and reward.judge.given else ()
    if requests:
        transcript = await _apply_verdicts(find_judge(reward.judge), requests, reward.judge.unparsable, transcript)
    grading = reward.grading(transcript) if isinstance(reward, NeedsGrading) else None
    if grading is None:
        return transcript
    return replace(transcript, correct=await grader.grade_any(grading.given, grading.golds))


async def _apply_verdicts(
    judge: AskableJudge, requests: Sequence[JudgeRequest], unparsable: str | None, transcript: Transcript
) -> Transcript:
    asking = [asyncio.create_task(ask_for_verdict(judge, request, unparsable)) for request in requests]
    try:
        answers = await asyncio.gather(*asking)
    finally:
        for task in asking:  # one failed: the results of the others are not needed
            task.cancel()
    correct, steps = transcript.correct, []
    for request, answer in zip(requests, answers, strict=True):
        if KINDS[request.kind].judges == "answer":
            correct = answer.verdict is not None and bool(answer.verdict.accepted)
        else:
            # Not what it thought on the way: a GOOD there is no verdict.
            steps.append(without_reasoning(answer.text) if not answer.cut else CUT_OFF)
    return replace(transcript, correct=correct, judgements=tuple(steps) or transcript.judgements)


async def ask_for_verdict(judge: AskableJudge, request: JudgeRequest, unparsable: str | None) -> Judged:
    """The judge's answer, under a rule for one without a verdict (None: the kind's own). Raises EpisodeBroken.

    A prompt that it refuses for what the policy wrote speaks against the policy: no length of an answer is a way out.
    """
    kind = KINDS[request.kind]
    if request.ruled:
        return Judged(verdict=kind.read(request.ruled), text=request.ruled, cached=False)
    rule = unparsable or kind.unparsable
    try:
        answer = await judge.ask(request)
    except ToolFailed as failed:
        if failed.failure.kind is not FailureKind.DATA or not await _accepts_without_policy_text(judge, request):
            raise
        return Judged(verdict=kind.read(kind.against), text=kind.against, cached=False)
    if answer.verdict is None and rule == "retry":
        answer = await judge.ask(request, seed=RETRY_SEED)
    if answer.verdict is None and rule != "wrong":
        flaw = "cut at its limit of tokens (judge.max_tokens)" if answer.cut else "without a verdict"
        detail = f"{request.kind}: an answer {flaw}: {answer.text[-SHOWN:]!r}"
        raise EpisodeBroken(Failure(kind=FailureKind.DATA, where="judge", detail=detail))
    return answer


async def _accepts_without_policy_text(judge: AskableJudge, request: JudgeRequest) -> bool:
    """Whether the judge takes the question without what the policy wrote. Raises ToolFailed where it is out."""
    written = [name for name, field in KINDS[request.kind].fields.items() if field.hostile]
    fields = dict(request.fields) | {name: request.unwritten.get(name, "") for name in written}
    if fields == dict(request.fields):
        return False
    try:
        await judge.ask(JudgeRequest(kind=request.kind, fields=fields))
    except ToolFailed as failed:
        if failed.failure.kind is FailureKind.DATA:
            return False
        raise
    return True
