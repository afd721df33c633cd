"""What an environment knows when an episode is over, handed to the reward together with the text of the transcript."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, runtime_checkable

MAX_STATE = 1 << 16  # characters of its JSON: it stands in every trajectory's line


@runtime_checkable
class HasState(Protocol):
    """An `Env` that tells where it stands: {"position": [2, 3], "at_exit": true}."""

    def final_state(self) -> Mapping[str, Any] | None | Awaitable[Mapping[str, Any] | None]: ...


async def final_state(env: object) -> Mapping[str, Any] | None:
    """The state of an environment as a file has it, so that a reward sees the same in a run and in `rlsys score`.

    None for an environment that gives none, or an empty one. Raises TypeError or ValueError for what is no JSON object.
    """
    answer = env.final_state() if isinstance(env, HasState) else None
    state = await answer if isinstance(answer, Awaitable) else answer  # one played in another process is asked there
    if not state:
        return None
    text = json.dumps(dict(state) if isinstance(state, Mapping) else state, allow_nan=False)
    if len(text) > MAX_STATE:
        raise ValueError(f"final_state() has {len(text)} characters of JSON: expected at most {MAX_STATE}")
    record = json.loads(text)
    if not isinstance(record, dict):
        raise TypeError(f"final_state() is {type(state).__name__}: expected names and values")
    return record
