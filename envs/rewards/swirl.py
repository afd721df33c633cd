"""SWiRL (arXiv 2504.04736): a judge's verdict on every step, and the filters of section 3.

`docs/rewards/swirl.md` has the constants and what the paper leaves open.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

from envs.rewards import WHOLE
from envs.rewards.findings import Finding, Span, SumOfFindings, found
from envs.rewards.transcript import written
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import JudgeRequest
from envs.text.words import step_verdict
from rlsys.errors import BadInput
from rlsys.types import Transcript

_SPEAKER = {"assistant": "my message"}

Filter = Literal["none", "process", "outcome", "both"]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class SwirlRewardConfig:
    name: str = "swirl"
    aggregate: Literal["mean", "last", "all"] = "mean"
    """Of the steps' 0 or 1: their mean, the last step's (what a sub-trajectory is trained on), or 1 if all are GOOD."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Who judges transcripts that come without judgements."""


class SwirlReward(SumOfFindings):
    """`process`, from `transcript.judgements`: one text of the judge for each message of the model.

    GOOD, BAD, GOOD: Reward(value=0.667, parts={"process": 0.667}).
    """

    parts = ("process",)
    solved_by: ClassVar[Mapping[str, float]] = {"process": WHOLE}

    always_judged = True

    def __init__(self, config: SwirlRewardConfig) -> None:
        self._aggregate = config.aggregate
        self.judge = config.judge

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """One question for each message of the model, with the conversation up to it; none where they are answered."""
        if transcript.judgements is not None:
            return ()
        said = [f"[{_SPEAKER.get(each.role, 'result')}]\n{each.content}" for each in transcript.messages]
        question = transcript.task.question
        talks = ("\n\n".join(said[: piece.message + 1]) for piece in written(transcript))
        return tuple(
            JudgeRequest(kind="process", fields={"question": question, "conversation": talk}) for talk in talks
        )

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        judgements = transcript.judgements
        pieces = written(transcript)
        where, each = f"task {transcript.task.task_id}", "one for each message of the model"
        if not judgements:
            raise BadInput(f"{where}: no judgements, expected {each}")
        if len(pieces) > 1 and len(judgements) != len(pieces):  # one text may hold several steps
            raise BadInput(f"{where}: {len(judgements)} judgements, expected {len(pieces)}: {each}")
        weights = self._weights(step_rewards(judgements))
        findings = []
        for step, (judgement, weight) in enumerate(zip(judgements, weights, strict=True)):
            piece = pieces[step] if len(pieces) == len(judgements) else None
            span = Span(message=piece.message, start=0, end=len(piece.text)) if piece is not None else None
            rule = f"step {step + 1}: {step_verdict(judgement) or 'the judge said neither GOOD nor BAD'}"
            findings.append(found("process", rule, weight, transcript.messages, span))
        return tuple(findings)

    def _weights(self, rewards: tuple[float, ...]) -> list[float]:
        """What each step adds to the trajectory's value."""
        if self._aggregate == "last":
            return [0.0] * (len(rewards) - 1) + [rewards[-1]]
        counted = 1.0 if self._aggregate == "mean" or all(rewards) else 0.0
        return [counted * reward / len(rewards) for reward in rewards]


def step_rewards(judgements: Sequence[str]) -> tuple[float, ...]:
    """GOOD is 1, BAD and a text without a verdict 0: the reward of each action by itself."""
    return tuple(float(step_verdict(judgement) == "GOOD") for judgement in judgements)


def kept(strategy: Filter, *, judgements: Sequence[str], right: bool) -> bool:
    """For the capability "the four SWiRL sets", which no stage offers yet: whether a trajectory passes.

    process asks for GOOD on every step, outcome for the right answer.
    """
    sound = bool(judgements) and all(step_rewards(judgements))
    return (strategy in ("none", "outcome") or sound) and (strategy in ("none", "process") or right)


def equalised(sets: Mapping[str, Sequence[T]], *, seed: int) -> dict[str, list[T]]:
    """For the capability "the four SWiRL sets", which no stage offers yet: as many of each set as the smallest has.

    Drawn at random and left in order: the paper compares equal numbers.
    """
    size = min(map(len, sets.values()), default=0)
    drawn: dict[str, list[T]] = {}
    for name, members in sets.items():
        chosen = random.Random(f"{seed} {name}").sample(range(len(members)), size)
        drawn[name] = [members[index] for index in sorted(chosen)]
    return drawn
