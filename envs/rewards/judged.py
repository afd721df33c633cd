"""A judge's verdict on the answer: ReSearch's "LLM as judge" and SWiRL's outcome judges, for training and evaluation.

`docs/rewards/judged.md` has what is asked, and of what.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from envs.rewards import RIGHT
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.transcript import Piece, answer_key, answer_pieces, last_span_between, text_of_span
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import JudgeRequest
from envs.tasks.conversation import full_question
from envs.text.words import last_boxed_span, unbox
from rlsys.errors import BadInput
from rlsys.types import Task, Transcript


@dataclass(frozen=True, kw_only=True)
class JudgedRewardConfig:
    name: str = "judged"
    kind: Literal["research", "outcome_search", "outcome_math"] = "research"
    """Prompt that the judge is asked with: ReSearch's, or SWiRL's for search or mathematics (docs/judge.md)."""
    answer: Literal["tag", "boxed", "message"] = "tag"
    """Part of the response that is judged: the last answer tag, the last box, or the whole last message of the
    model."""
    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Judge of the answers."""


class JudgedReward(SumOfFindings):
    """`judge`: 1.0 where the judge accepts the answer. A missing answer is wrong, and the judge is not asked."""

    parts = ("judge",)
    solved_by: ClassVar[Mapping[str, float]] = {"judge": RIGHT}

    always_judged = True

    def __init__(self, config: JudgedRewardConfig) -> None:
        self._config = config
        self.judge = config.judge

    def given(self, transcript: Transcript) -> str:
        pieces = answer_pieces(transcript)
        span = self._span(pieces)
        if span is None:
            return ""
        text = text_of_span(pieces, span)
        return unbox(text) if self._config.answer == "boxed" else text.strip()

    def judging(self, transcript: Transcript) -> tuple[JudgeRequest, ...]:
        """One question, about the answer; none where it was answered, or there is nothing to ask about."""
        text = self.given(transcript)
        if transcript.correct is not None or not text:
            return ()
        return (request_about_answer(self._config.kind, transcript.task, text),)

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        span, text = self._span(answer_pieces(transcript)), self.given(transcript)
        if text and transcript.correct is None:
            raise BadInput(
                "no verdict on the answer", where=f"task {transcript.task.task_id}", expected="one of a judge"
            )
        right = bool(text) and bool(transcript.correct)
        rule = "no answer" if not text else f"the judge {'accepts' if right else 'refuses'} it"
        return (make_finding("judge", rule, float(right), transcript.messages, span),)

    def _span(self, pieces: list[Piece]) -> Span | None:
        if self._config.answer == "tag":
            return last_span_between(pieces, "<answer>", "</answer>")
        for piece in reversed(pieces):
            if self._config.answer == "message":
                return Span(message=piece.message, start=0, end=len(piece.text))
            box = last_boxed_span(piece.text)
            if box is not None:
                return Span(message=piece.message, start=box[0], end=box[1])
        return None


def request_about_answer(kind: str, task: Task, answer: str) -> JudgeRequest:
    """Raises BadInput for a task without an answer key."""
    golds = answer_key(task)
    key = golds[0] if len(golds) == 1 else json.dumps(golds, ensure_ascii=False)
    return JudgeRequest(kind=kind, fields={"question": full_question(task), "answers": key, "answer": answer})
