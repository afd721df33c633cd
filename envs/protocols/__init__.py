"""The protocols that policies are taught: one file each, with the table of its endings in the docstring."""

from __future__ import annotations

from collections.abc import Mapping

from envs.protocols.graph_rl import GRAPH_RL
from envs.protocols.icrl import ICRL
from envs.protocols.record import Answer, Asked, Call, Inline, Malformed, Parsed, Protocol
from envs.protocols.research import RESEARCH
from envs.protocols.retool import RETOOL
from envs.protocols.scan import first_between, last_between
from envs.protocols.swirl import (
    ANSWER_CLOSE,
    ANSWER_OPEN,
    MATH_CLOSE,
    MATH_OPEN,
    SWIRL,
    SWIRL_MATH,
    answer,
    math_call,
    one_answer,
    parse_tags,
    tool_reply,
    write_answer,
    write_math_call,
)

__all__ = [
    "ANSWER_CLOSE",
    "ANSWER_OPEN",
    "MATH_CLOSE",
    "MATH_OPEN",
    "PROTOCOLS",
    "Answer",
    "Asked",
    "Call",
    "Inline",
    "Malformed",
    "Parsed",
    "Protocol",
    "answer",
    "first_between",
    "last_between",
    "math_call",
    "one_answer",
    "parse_tags",
    "tool_reply",
    "write_answer",
    "write_math_call",
]

PROTOCOLS: Mapping[str, Protocol] = {
    "swirl": SWIRL,
    "swirl_math": SWIRL_MATH,
    "research": RESEARCH,
    "icrl": ICRL,
    "retool": RETOOL,
    "graph_rl": GRAPH_RL,
}
