"""The two kinds of episode: a protocol with a tool, and one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from envs.base import Step
from envs.protocols import Call, Protocol
from envs.protocols.turns import read_turn
from rlsys.types import EpisodeEnd, Message


class ToolEpisode:
    """Call, result, call, result, answer: what happens to each message is the table of the protocol's file.

    `tool` gives the text that a call is answered with, at once or awaited. It is not asked about an empty call, and may
    raise ToolFailed.
    """

    def __init__(
        self, prompt: tuple[Message, ...], protocol: Protocol, tool: Callable[[str], Awaitable[str] | str]
    ) -> None:
        self.stop_strings: Sequence[str] = protocol.stop
        self._prompt, self._protocol, self._tool = prompt, protocol, tool
        self._calls: set[str] = set()

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        read = read_turn(self._protocol, text, turns_left=turns_left)
        if not isinstance(read, Call):
            return read
        repeated = read.text in self._calls
        self._calls.add(read.text)
        result = self._tool(read.text) if read.text else self._protocol.blank
        result = result if isinstance(result, str) else await result
        reply = self._protocol.reply(read.text, result)
        return Step(reply=reply, repeated=repeated, max_tokens=self._protocol.max_reply_tokens)


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
