"""What happens to a message before any tool is called: the part of an environment's step that all dialects share."""

from __future__ import annotations

from envs.base import Step
from envs.protocols.record import Answer, Call, Dialect, Malformed
from rlsys.types import EpisodeEnd

UNLIMITED = 1_000_000  # messages: each has a token at least, so the token budget ends the episode long before


def max_turns(dialect: Dialect, turns: int | None) -> int:
    """Messages per episode: `turns`, or as null the dialect's calls and one to answer; one more where it warns."""
    if turns is None:
        turns = UNLIMITED if dialect.calls is None else dialect.calls + 1
    return turns + (dialect.over_limit is not None)


def settle(dialect: Dialect, text: str, *, turns_left: int) -> Step | Call:
    """The call to execute, or the Step of a message that needs none. `turns_left` counts from `max_turns` above.

    answer -> ANSWERED. Malformed -> the dialect's text while turns are left, else MALFORMED. A call without turns left
    -> TURN_LIMIT; where the dialect warns, the call before that gets the warning instead of a result.
    """
    parsed = dialect.parse(text)
    if isinstance(parsed, Answer):
        return Step(end=EpisodeEnd.ANSWERED)
    if isinstance(parsed, Malformed):
        if dialect.malformed is None or turns_left <= 0:
            return Step(end=EpisodeEnd.MALFORMED)
        return Step(reply=dialect.malformed, max_tokens=dialect.max_reply_tokens)
    if turns_left <= 0:
        return Step(end=EpisodeEnd.TURN_LIMIT)
    if dialect.over_limit is not None and turns_left == 1:
        return Step(reply=dialect.over_limit)
    return parsed
