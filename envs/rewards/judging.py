"""How a reward that is a pure function gets verdicts that take a judge.

`judging` names what to ask, `judged` has it answered and fills `Transcript.judgements`, or `Transcript.correct` where
one question about the answer was asked; the reward is called on that. Judgements that came with the transcript stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.parse import answer_of
from envs.services.judge.request import Asks, Judged, JudgeRequest
from rlsys.rollout import EpisodeBroken
from rlsys.types import Failure, FailureKind, Transcript

RETRY_SEED = 1
SHOWN = 200  # characters of an answer without a verdict, in its failure


@runtime_checkable
class NeedsJudging(Protocol):
    """A reward that may ask a judge first."""

    judge: JudgeConfig
    always_judged: bool  # no score without a judge; false where the rules can do without one

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """One question for each of the model's messages, or one about its answer; none where nothing is open."""
        ...


async def judged(reward: Any, transcript: Transcript, find: Callable[[JudgeConfig], Asks]) -> Transcript:
    """The transcript with the verdicts that `reward` asks for, or as it is.

    Raises EpisodeBroken: of kind infra or timeout when the judge is out, data for a prompt that it refuses and for an
    answer without a verdict where that is to fail. Never a zero for the judge's own fault.
    """
    if not isinstance(reward, NeedsJudging) or not reward.judge.given:
        return transcript
    requests = reward.judging(transcript)
    if not requests:
        return transcript
    judge = find(reward.judge)
    asking = [asyncio.create_task(settled(judge, request, reward.judge.unparsable)) for request in requests]
    try:
        answers = await asyncio.gather(*asking)
    finally:
        for task in asking:  # one failed: nobody waits for the others
            task.cancel()
    if KINDS[requests[0].kind].judges == "answer":
        verdict = answers[0].verdict
        return replace(transcript, correct=verdict is not None and bool(verdict.accepted))
    # Not what it thought on the way: a GOOD there is no verdict.
    return replace(transcript, judgements=tuple(answer_of(answer.text) for answer in answers))


async def settled(judge: Asks, request: JudgeRequest, unparsable: str | None) -> Judged:
    """The judge's answer, under a rule for one without a verdict (None: the kind's own). Raises EpisodeBroken."""
    rule = unparsable or KINDS[request.kind].unparsable
    answer = await judge.ask(request)
    if answer.verdict is None and rule == "retry":
        answer = await judge.ask(request, seed=RETRY_SEED)
    if answer.verdict is None and rule != "wrong":
        detail = f"{request.kind}: an answer without a verdict: {answer.text[-SHOWN:]!r}"
        raise EpisodeBroken(Failure(kind=FailureKind.DATA, where="judge", detail=detail))
    return answer
