"""A scored transcript as a person reads it: who wrote what, each rule that fired, on which text, and the sum."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from envs.rewards.findings import Finding, Span
from rlsys.types import Failure, Message, Reward, TokenStream, Transcript
from rlsys.untrusted import visible

WIDTH = 96  # characters of a message or an excerpt
STATE = 1000  # of the environment's final state
CONTEXT = 24  # of a message, before and after the text that a rule fired on
BOLD, DIM, RED, GREEN, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[0m"


def explanation(
    what: str, transcript: Transcript, findings: Sequence[Finding], reward: Reward, *, color: bool
) -> Iterator[str]:
    def paint(style: str, text: str) -> str:
        return f"{style}{text}{PLAIN}" if color else text

    """`what`: stands before its reward, "line 7: "."""
    yield paint(BOLD, f"{what}reward {_number(reward.value)}")
    yield "messages, as the reward reads them" + (" (cut off at the end)" if transcript.truncated else "")
    for number, message in enumerate(transcript.messages, start=1):
        yield f"  {number:>3} {message.role:<9} {paint(DIM, _short(message.content))}"
    if transcript.state is not None:
        state = json.dumps(transcript.state, ensure_ascii=False)
        yield f"state {visible(state[:STATE])}" + (" ..." if len(state) > STATE else "")
    yield "rules that fired" if findings else "rules: this reward does not tell them"
    for finding in findings:
        style = GREEN if finding.value > 0 else RED if finding.value < 0 else ""
        value = paint(style, f"{_signed(finding.value):>10}") if style else f"{_signed(finding.value):>10}"
        yield f"  {value}  {finding.part:<14} {visible(finding.rule)}"
        if finding.span is not None:
            before, text, after = _excerpt(transcript.messages, finding.span)
            marked = paint(BOLD, text) if color else f"«{text}»"
            place = f"message {finding.span.message + 1}, characters {finding.span.start}-{finding.span.end}"
            yield f"{'':<14}{place}: {paint(DIM, before)}{marked}{paint(DIM, after)}"
    for stream in reward.streams:
        yield from _stream(stream)
    parts = " + ".join(f"{name} {_number(value)}" for name, value in reward.parts.items())
    yield paint(BOLD, f"{parts} = {_number(reward.value)}")


def trace_of(failure: Failure) -> list[str]:
    """The calls in a person's own code that it came from, line by line: maybe from a file that somebody else wrote."""
    return [visible(line) for line in str(failure.trace).split("\n")] if failure.trace else []


def _stream(stream: TokenStream) -> Iterator[str]:
    """A reward per token, beside the value: its stretches of equal tokens."""
    hit = sum(value != 0 for value in stream.values)
    total = _number(sum(stream.values))
    yield (
        f"per token, not in the sum: {stream.name}, {hit} of {len(stream.values)} tokens, "
        f"together {total}, discount {stream.discount:g}"
    )
    start = 0
    for end in range(1, len(stream.values) + 1):
        if end == len(stream.values) or stream.values[end] != stream.values[start]:
            if stream.values[start]:
                yield f"  {_signed(stream.values[start]):>10}  tokens {start}-{end}"
            start = end


def _excerpt(messages: Sequence[Message], span: Span) -> tuple[str, str, str]:
    content = messages[span.message].content
    before = content[max(0, span.start - CONTEXT) : span.start]
    after = content[span.end : span.end + CONTEXT]
    text = content[span.start : span.end] if span.end - span.start <= WIDTH else ""
    if not text and span.end > span.start:
        text = f"{content[span.start : span.start + WIDTH // 2]} ... {content[span.end - WIDTH // 2 : span.end]}"
    return visible(before), visible(text), visible(after)


def _short(text: str) -> str:
    if len(text) <= WIDTH:
        return visible(text)
    return visible(f"{text[: WIDTH // 2]} ... {text[-WIDTH // 2 :]}")


def _signed(value: float) -> str:
    return f"{value:+.6g}" if value else "0"


def _number(value: float) -> str:
    return f"{value:.6g}"
