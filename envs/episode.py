"""The kinds of episode: a protocol with a tool, tools called in the model's own format, and one message."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from envs.base import Step
from envs.protocols import Answer, Call, Malformed, Protocol
from envs.tools.result import Result as Result
from envs.tools.result import ToolError as ToolError
from rlsys.summaries import CALLS, VALID
from rlsys.types import EpisodeEnd, Message, ToolCall, ToolOffer

MOST_LOGGED = 400  # calls in a final state, whose size is limited
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
        turn = read_turn(self._protocol, text, turns_left=turns_left)
        if not isinstance(turn, Call):
            return turn
        repeated = turn.text in self._calls
        self._calls.add(turn.text)
        result = self._tool(turn.text) if turn.text else ToolError(self._protocol.blank)
        if isinstance(result, Awaitable):
            result = await result
        metrics = {CALLS: 1.0, VALID: float(isinstance(result, str))}
        reply = self._protocol.reply(turn.text, result if isinstance(result, str) else result.text)
        return Step(reply=reply, repeated=repeated, max_tokens=self._protocol.max_reply_tokens, metrics=metrics)


class CallsEpisode:
    """Tools in the model's own format: the renderer reads the calls of a message, and each gets a message in answer.

    | message | what happens |
    |---|---|
    | calls | they are carried out at once, all together; a message of the tool for each, in their order |
    | a call that cannot be read, of an unknown tool, with other arguments | its error in the place of a result |
    | more than `max_calls` calls | one error for all that are over the limit |
    | calls in the last message | not carried out: the turn limit ends the episode |
    | no call, and `answered` says so | the episode ends, answered |
    | neither | the episode ends, malformed |

    `run` gives a call's result and may raise ToolFailed. `show` makes the message of a result.
    """

    stop_strings: Sequence[str] = ()  # the model ends its turn itself

    def __init__(
        self,
        prompt: tuple[Message, ...],
        offer: ToolOffer,
        run: Callable[[ToolCall], Awaitable[Result]],
        show: Callable[[ToolCall, str], Message],
        answered: Callable[[str], bool],
        *,
        max_calls: int,
        max_reply_tokens: int | None = None,
    ) -> None:
        self.offer = offer
        self._prompt, self._run, self._show, self._answered = prompt, run, show, answered
        self._max_calls, self._max_reply_tokens = max_calls, max_reply_tokens
        self._made: set[str] = set()
        self._log: list[dict[str, Any]] = []

    def first_messages(self) -> tuple[Message, ...]:
        return self._prompt

    def final_state(self) -> Mapping[str, Any]:
        """For a reward: {"calls": [{"name": "search", "ok": true}]}, the first ones in their order. A name that no tool
        has is "": the policy may have written anything."""
        return {"calls": self._log[:MOST_LOGGED]} if self._log else {}

    async def step(self, text: str, *, turns_left: int, calls: tuple[ToolCall, ...] = ()) -> Step:
        if not calls:
            return Step(end=EpisodeEnd.ANSWERED if self._answered(text) else EpisodeEnd.MALFORMED)
        if turns_left <= 0:
            return Step(end=EpisodeEnd.TURN_LIMIT)
        allowed_calls = calls[: self._max_calls]
        results = await asyncio.gather(*map(self._run, allowed_calls), return_exceptions=True)
        replies: list[Message] = []
        repeated = False
        metrics = Counter({CALLS: float(len(calls)), VALID: 0.0, "several_calls": float(len(calls) > 1)})
        for call, result in zip(allowed_calls, results, strict=True):
            if isinstance(result, BaseException):
                raise result
            succeeded = isinstance(result, str)
            replies.append(self._show(call, result if isinstance(result, str) else result.text))
            metrics[VALID] += succeeded
            metrics[f"calls_{call.name or 'unread'}" if succeeded else "failed_calls"] += 1
            is_offered = call.name in _names_of(self.offer.schemas)
            self._log.append({"name": call.name if is_offered else "", "ok": succeeded})
            if not call.problem:
                key = f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
                repeated = repeated or key in self._made
                self._made.add(key)
        if len(calls) > len(allowed_calls):
            error = f"error: {len(calls)} calls in one message; those after the first {self._max_calls} were not made"
            replies.append(self._show(calls[self._max_calls], error))
        return Step(reply=tuple(replies), repeated=repeated, max_tokens=self._max_reply_tokens, metrics=dict(metrics))


@lru_cache(64)
def _names_of(schemas: tuple[str, ...]) -> frozenset[str]:
    return frozenset(json.loads(schema)["function"]["name"] for schema in schemas)


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
