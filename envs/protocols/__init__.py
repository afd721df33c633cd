"""The protocols that policies are taught: one file for each paper, with tables of the endings in the docstring."""

from __future__ import annotations

from collections.abc import Mapping

from envs.protocols.direct import COT, DIRECT
from envs.protocols.graph_rl import GRAPH_RL
from envs.protocols.icrl import ICRL
from envs.protocols.o2_searcher import O2_SEARCHER
from envs.protocols.record import Answer, Asked, Call, Inline, Malformed, Parsed, Protocol, parse_tags
from envs.protocols.research import RESEARCH
from envs.protocols.retool import RETOOL
from envs.protocols.retrieval import IRCOT, ITER_RETGEN, RAG
from envs.protocols.swirl import SWIRL, SWIRL_MATH

__all__ = ["PROTOCOLS", "Answer", "Asked", "Call", "Inline", "Malformed", "Parsed", "Protocol", "parse_tags"]

PROTOCOLS: Mapping[str, Protocol] = {
    "swirl": SWIRL,
    "swirl_math": SWIRL_MATH,
    "research": RESEARCH,
    "icrl": ICRL,
    "retool": RETOOL,
    "graph_rl": GRAPH_RL,
    "direct": DIRECT,
    "cot": COT,
    "rag": RAG,
    "iter_retgen": ITER_RETGEN,
    "ircot": IRCOT,
    "o2_searcher": O2_SEARCHER,
}
