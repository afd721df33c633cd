"""Options of a reward's config that the rest of a run acts on. A config without one of them has nothing to say there.

A reward of somebody else's takes part by having an attribute of the same name.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from envs.rewards.overlong import Overlong
from envs.services.judge.config import JudgeConfig


@runtime_checkable
class Judged(Protocol):
    @property
    def judge(self) -> JudgeConfig: ...


@runtime_checkable
class Streamed(Protocol):
    @property
    def token_streams(self) -> bool: ...


def judge_of(config: Any) -> JudgeConfig | None:
    """Who judges for this reward; None for one that asks nobody."""
    return config.judge if isinstance(config, Judged) and isinstance(config.judge, JudgeConfig) else None


def has_token_streams(config: Any) -> bool:
    """Whether rewards come with streams of single tokens, which have discounts of their own."""
    return isinstance(config, Streamed) and bool(config.token_streams)


def length_limit(config: Any) -> int | None:
    """The tokens from which on a response gets the whole punishment for its length; None where none is given."""
    return config.max_length if isinstance(config, Overlong) and config.overlong_buffer is not None else None
