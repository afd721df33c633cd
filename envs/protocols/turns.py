"""What happens to a message before any tool is called: the part of an episode's step that all protocols share."""

from __future__ import annotations

from envs.base import Step
from envs.protocols.record import Answer, Call, Malformed, Protocol
from rlsys.types import EpisodeEnd

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
