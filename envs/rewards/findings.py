"""What a reward found, rule by rule: the reward is the sum of its findings, so the explanation is the computation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from envs.protocols import Inline
from rlsys.types import Message, Reward, Transcript

EXCERPT = 80  # characters of a finding's text that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Characters `start:end` of `transcript.messages[message].content`."""

    message: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One rule that fired and what it adds: Finding(part="format", rule="no <search> tag", value=-0.02).

    `text` is the beginning of what the rule fired on; `span` is None where it fired on something absent.
    """

    part: str
    rule: str
    value: float = 0.0
    span: Span | None = None
    text: str = ""


def make_finding(part: str, rule: str, value: float, messages: Sequence[Message], span: Span | None) -> Finding:
    """A finding with the text of its span filled in."""
    text = "" if span is None else messages[span.message].content[span.start : min(span.end, span.start + EXCERPT)]
    return Finding(part=part, rule=rule, value=value, span=span, text=text)


def total(findings: Iterable[Finding], parts: Sequence[str]) -> Reward:
    """The reward that the findings add up to. Every name in `parts` is there, with 0 where nothing was found."""
    values: dict[str, list[float]] = {part: [] for part in parts}
    for finding in findings:
        values[finding.part].append(finding.value)
    summed = {part: math.fsum(each) for part, each in values.items()}
    return Reward(value=sum(summed.values()), parts=summed)


class SumOfFindings:
    """A reward. Calling it, and `findings`, raise BadInput for a task or a transcript that lacks what they look at."""

    parts: tuple[str, ...]
    inline: Inline | None = None  # where the environment's text stands inside a response

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        raise NotImplementedError

    def __call__(self, transcript: Transcript) -> Reward:
        return total(self.findings(transcript), self.parts)
