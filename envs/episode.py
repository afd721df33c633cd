"""The two kinds of episode: a protocol with a tool, and one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.base import Step
from envs.protocols import Answer, Call, Malformed, Protocol
from rlsys.tool_use import CALLS, VALID
from rlsys.types import EpisodeEnd, Message

UNLIMITED = 1_000_000  # messages: each has a token at least, so the token budget ends the episode long before


def max_turns(protocol: Protocol, turns: int | None) -> int:
    """Messages per episode: `turns`, or as null the protocol's calls and one to answer; one more where it warns."""
    if turns is None:
        turns = UNLIMITED if protocol.calls is None else protocol.calls + 1
    return turns + (protocol.over_limit is not None)


def read_turn(protocol: Protocol, text: str, *, turns_left: int) -> Step | Call:
    """The call to execute, or the Step of a message that needs none. `turns_left` counts from `max_turns` above.

    answer -> ANSWERED. Malformed -> the protocol's text while turns are left, else MALFORMED. A call without turns left
    -> TURN_LIMIT; where the protocol warns, the call before that gets the warning instead of a result.
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
class Refused:
    """A tool's answer to a call that it could not carry out: what the model reads. The call is no valid one."""

    text: str


Result = str | Refused


class ToolEpisode:
    """Call, result, call, result, answer: what happens to each message is the table of the protocol's file.

    `tool` gives the text that a call is answered with, or Refused, at once or awaited. It is not asked about an empty
    call, and may raise ToolFailed. `state` says where the tool stands, for a reward that looks at more than the text.
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
        called = self._tool(read.text) if read.text else Refused(self._protocol.blank)
        result = await called if isinstance(called, Awaitable) else called
        counted = {CALLS: 1.0, VALID: float(isinstance(result, str))}
        reply = self._protocol.reply(read.text, result if isinstance(result, str) else result.text)
        return Step(reply=reply, repeated=repeated, max_tokens=self._protocol.max_reply_tokens, metrics=counted)


class OneMessage:
    """The model's first message ends the episode: ANSWERED where `answered` says so, else MALFORMED."""

    def __init__(self, prompt: tuple[Message, ...], stop: Sequence[str], answered: Callable[[str], bool]) -> None:
        self.stop_strings = stop
        self._prompt, self._answered = prompt, answered

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        return Step(end=EpisodeEnd.ANSWERED if self._answered(text) else EpisodeEnd.MALFORMED)


def worked(protocol: Protocol, turns: Iterable[tuple[str, str]], answer: str) -> tuple[Message, ...]:
    """What follows the prompt in an episode of these calls with their results: [("48 / 2", "24.0")], "24"."""
    said: list[Message] = []
    for call, result in turns:
        said += [Message(role="assistant", content=protocol.write_call(call)), protocol.reply(call, result)]
    return (*said, Message(role="assistant", content=protocol.write_answer(answer)))
