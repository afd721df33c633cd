"""ReSearch (arXiv 2503.19470, equation 2): F1 of the boxed answer, and 0.1 for form when it is 0.

`docs/rewards/research.md` has the constants and what differs between paper and repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from envs.papers.research.protocol import RESULT
from envs.rewards import WHOLE
from envs.rewards.findings import Finding, Span, SumOfFindings, make_finding
from envs.rewards.qa import best_f1
from envs.rewards.transcript import (
    Piece,
    answer_key,
    count_tag,
    first_span,
    last_span_between,
    model_pieces,
    text_of_span,
)
from envs.text.words import last_boxed_span, unbox
from rlsys.types import Transcript

FORMAT_REWARD = 0.1


@dataclass(frozen=True, kw_only=True)
class ResearchRewardConfig:
    name: str = "research"
    format_gate: bool = True
    """Whether a response with a broken format, or cut off, gets 0. true: as in the authors' code. false: as in equation
    2, where F1 comes first."""
    form_alone: bool = False
    """Whether the answer is left out of account: 0.1 for the right form, whatever it says. A control: what rises under
    it was not taught by the outcome."""


class ResearchReward(SumOfFindings):
    """`f1` + `format`, only one of which is not 0.

    "Paris, France" in the box of a well-formed response, to the answer Paris: Reward(value=0.667, parts={"f1": 0.667,
    "format": 0.0}); "London": Reward(value=0.1, parts={"f1": 0.0, "format": 0.1}).
    """

    parts = ("f1", "format")
    solved_by: ClassVar[Mapping[str, float]] = {"f1": WHOLE}
    inline = RESULT

    def __init__(self, config: ResearchRewardConfig) -> None:
        self._gate, self._form_alone = config.format_gate, config.form_alone

    def given(self, transcript: Transcript) -> str:
        """What stands in the last box of the last answer."""
        pieces = model_pieces(transcript)
        span = _find_boxed(pieces)
        return "" if span is None else unbox(text_of_span(pieces, span))

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        golds = answer_key(transcript.task)
        pieces = model_pieces(transcript)
        text = self.given(transcript)
        broken = list(_broken_form(transcript, pieces))
        if transcript.truncated and self._gate:
            broken.append(Finding(part="format", rule="cut off: no end of sequence"))
        span = _find_boxed(pieces)
        score = 0.0 if self._form_alone else best_f1(text, golds, style="hotpotqa")
        if score > 0:
            counted = not (broken and self._gate)
            rule = "F1 of the boxed answer" if counted else f"F1 of {score:.4g} not counted: the form is broken"
            return (make_finding("f1", rule, score if counted else 0.0, transcript.messages, span), *broken)
        if broken:
            return tuple(broken)
        rule = "right form, whatever it says" if self._form_alone else "right form, F1 of 0"
        return (make_finding("format", rule, FORMAT_REWARD, transcript.messages, span),)


def _find_boxed(pieces: list[Piece]) -> Span | None:
    """The content of the last box of the last answer."""
    answer = last_span_between(pieces, "<answer>", "</answer>")
    if answer is None:
        return None
    box = last_boxed_span(text_of_span(pieces, answer))
    if box is None:
        return None
    return Span(message=answer.message, start=answer.start + box[0], end=answer.start + box[1])


def _broken_form(transcript: Transcript, pieces: list[Piece]) -> Iterator[Finding]:
    """Each rule of the authors' format check that is broken; only what the model wrote is looked at."""

    def broken(rule: str, span: Span | None = None) -> Finding:
        return make_finding("format", rule, 0.0, transcript.messages, span)

    thinks, thoughts = count_tag(pieces, "<think>"), count_tag(pieces, "</think>")
    if thinks != thoughts:
        where = first_span(pieces, "<think>") or first_span(pieces, "</think>")
        yield broken(f"{thinks} <think> and {thoughts} </think>: expected as many", where)
    elif thinks == 0:
        yield broken("no <think>...</think>")
    for piece in pieces:
        start = piece.text.find("<search>")
        if start < 0:
            continue
        span = Span(message=piece.message, start=start, end=start + len("<search>"))
        end = piece.text.find("</search>", start)
        next_start = piece.text.find("<search>", end)
        if end < 0:
            yield broken("<search> without </search>", span)
        elif next_start >= 0 or not _was_answered(transcript, piece.message):
            yield broken("<search>...</search> without a result after it", span)
    opened, closed = count_tag(pieces, "<answer>"), count_tag(pieces, "</answer>")
    answer = last_span_between(pieces, "<answer>", "</answer>")
    if opened != 1 or closed != 1:
        rule = f"{opened} <answer> and {closed} </answer>: expected one of each"
        yield broken(rule, first_span(pieces, "<answer>") or first_span(pieces, "</answer>"))
    elif answer is None:
        yield broken("</answer> before <answer>", first_span(pieces, "</answer>"))
    elif _find_boxed(pieces) is None or "\\boxed{" not in text_of_span(pieces, answer):
        yield broken("no closed \\boxed{} in the answer", answer)


def _was_answered(transcript: Transcript, message: int) -> bool:
    """Whether the environment spoke next."""
    following = transcript.messages[message + 1 : message + 2]
    return bool(following) and following[0].role != "assistant"
