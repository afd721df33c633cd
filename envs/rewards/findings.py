"""What a reward found, rule by rule: the reward is the sum of its findings, so the explanation is the computation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from envs.protocols import Inline
from rlsys.types import Finding as Finding
from rlsys.types import Message, Reward, Transcript
from rlsys.types import Span as Span

MOST = 256  # findings that stay with a reward: a rule of a user's own may fire on every word
EXCERPT = 80  # characters of a finding's text that are kept


@runtime_checkable
class Explains(Protocol):
    """A reward that can say why. All of ours can; one from elsewhere need not."""

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]: ...


def make_finding(part: str, rule: str, value: float, messages: Sequence[Message], span: Span | None) -> Finding:
    """A finding with the text of its span filled in."""
    text = "" if span is None else messages[span.message].content[span.start : min(span.end, span.start + EXCERPT)]
    return Finding(part=part, rule=rule, value=value, span=span, text=text)


def sum_findings(findings: Iterable[Finding], parts: Sequence[str]) -> Reward:
    """The reward that the findings add up to. Every name in `parts` is there, with 0 where nothing was found."""
    values: dict[str, list[float]] = {part: [] for part in parts}
    for finding in findings:
        values[finding.part].append(finding.value)
    summed = {part: math.fsum(part_values) for part, part_values in values.items()}
    return Reward(value=sum(summed.values()), parts=summed)


class SumOfFindings:
    """A reward. Calling it, and `findings`, raise BadInput for a task or a transcript that lacks what they look at."""

    parts: tuple[str, ...]
    inline: Inline | None = None  # where the environment's text stands inside a response

    def findings(self, transcript: Transcript) -> tuple[Finding, ...]:
        raise NotImplementedError

    def __call__(self, transcript: Transcript) -> Reward:
        return sum_findings(self.findings(transcript), self.parts)


def score_and_explain(reward: Any, transcript: Transcript) -> Reward:
    """The reward with its findings, where it has any; a SumOfFindings computes them only once.

    Raises what the reward raises. Findings of a user's own that raise, or are none, are left out.
    """
    if isinstance(reward, SumOfFindings) and type(reward).__call__ is SumOfFindings.__call__:
        findings = reward.findings(transcript)
        return replace(sum_findings(findings, reward.parts), findings=findings[:MOST])
    scored: Reward = reward(transcript)
    if scored.findings or not isinstance(reward, Explains):
        return scored
    try:
        explained = tuple(
            _plain_fields(entry) for entry in reward.findings(transcript)[:MOST] if isinstance(entry, Finding)
        )
    except Exception:  # a fault boundary: the reward is there, and only its explanation is not
        return scored
    return replace(scored, findings=explained)


def _plain_fields(finding: Finding) -> Finding:
    """With fields that a file can hold. Raises whatever they raise if they are something else."""
    value, span = float(finding.value), finding.span
    if not math.isfinite(value):
        raise ValueError(f"{finding.rule}: {value}")
    if span is not None:
        span = Span(message=int(span.message), start=int(span.start), end=int(span.end))
    return Finding(part=str(finding.part), rule=str(finding.rule), value=value, span=span, text=str(finding.text))
