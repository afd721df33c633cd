"""The two kinds of episode: a protocol with a tool, and one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.base import Step
from envs.protocols import Answer, Call, Malformed, Protocol
from rlsys.summaries import CALLS, VALID
from rlsys.types import EpisodeEnd, Message

UNLIMITED = 1_000_000  # messages: the token budget ends the episode long before, each message has a token at least


def max_turns(protocol: Protocol, turns: int | None) -> int:
    """Messages of the model per episode: `turns`, or the protocol's calls and one more for the answer where it is None.

    One more is added where the protocol warns at the limit (`over_limit`).
    """
    if turns is None:
        turns = UNLIMITED if protocol.calls is None else protocol.calls + 1
    return turns + (protocol.over_limit is not None)


def read_turn(protocol: Protocol, text: str, *, turns_left: int) -> Step | Call:
    """The call to execute, or the Step of a message without one. `turns_left` counts down from `max_turns`.

    An answer ends the episode as ANSWERED. A malformed message gets the protocol's text for it; without such a text, or
    without turns left, it ends the episode as MALFORMED. A call without turns left ends it as TURN_LIMIT; where the
    protocol warns, the call before that one gets the warning in place of a result.
    """
    parsed = protocol.parse(text)
    if isinstance(parsed, Answer):
        return Step(end=EpisodeEnd.ANSWERED)
    if isinstance(parsed, Malformed):
        if protocol.malformed is None or turns_left <= 0:
            return Step(end=EpisodeEnd.MALFORMED)
        return Step(reply=protocol.malformed, max_tokens=protocol.max_reply_tokens)
    if turns_left <= 0:
        return Step(end=EpisodeEnd.TURN_LIMIT)
    if protocol.over_limit is not None and turns_left == 1:
        return Step(reply=protocol.over_limit)
    return parsed


@dataclass(frozen=True, slots=True)
class ToolError:
    """A tool's answer to a call that it could not carry out: the model reads `text`, the call counts as invalid."""

    text: str


Result = str | ToolError


class ToolEpisode:
    """Call, result, call, result, answer. The table in the protocol's file says what each message leads to.

    `tool` returns the result of a call as a text, or ToolError, directly or as an awaitable; it may raise ToolFailed.
    An empty call does not reach it. `state` returns the tool's state, for a reward that looks at more than the text.
    """

    def __init__(
        self,
        prompt: tuple[Message, ...],
        protocol: Protocol,
        tool: Callable[[str], Awaitable[Result] | Result],
        state: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        self.stop_strings: Sequence[str] = protocol.stop
        self._prompt, self._protocol, self._tool, self._state = prompt, protocol, tool, state
        self._calls: set[str] = set()

    def final_state(self) -> Mapping[str, Any] | None:
        return None if self._state is None else self._state()

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        read = read_turn(self._protocol, text, turns_left=turns_left)
        if not isinstance(read, Call):
            return read
        repeated = read.text in self._calls
        self._calls.add(read.text)
        result = self._tool(read.text) if read.text else ToolError(self._protocol.blank)
        if isinstance(result, Awaitable):
            result = await result
        metrics = {CALLS: 1.0, VALID: float(isinstance(result, str))}
        reply = self._protocol.reply(read.text, result if isinstance(result, str) else result.text)
        return Step(reply=reply, repeated=repeated, max_tokens=self._protocol.max_reply_tokens, metrics=metrics)


class OneMessage:
    """The model's first message ends the episode: ANSWERED where `answered` says so, else MALFORMED."""

    def __init__(self, prompt: tuple[Message, ...], stop: Sequence[str], answered: Callable[[str], bool]) -> None:
        self.stop_strings = stop
        self._prompt, self._answered = prompt, answered

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        return Step(end=EpisodeEnd.ANSWERED if self._answered(text) else EpisodeEnd.MALFORMED)


def write_demonstration(protocol: Protocol, turns: Iterable[tuple[str, str]], answer: str) -> tuple[Message, ...]:
    """A demonstration's messages after the prompt, for calls with their results: [("48 / 2", "24.0")], "24"."""
    messages: list[Message] = []
    for call, result in turns:
        messages += [Message(role="assistant", content=protocol.write_call(call)), protocol.reply(call, result)]
    return (*messages, Message(role="assistant", content=protocol.write_answer(answer)))
