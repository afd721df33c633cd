"""What a protocol is, the table of them, and those that several papers use, with the endings in the docstring.

A protocol of one paper is `protocol.py` of its folder in `envs/papers`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envs.protocols.record import Answer, Asked, Call, Inline, Malformed, Parsed, Protocol, parse_tags
from rlsys.choices import Table, load

__all__ = ["PLACES", "PROTOCOLS", "Answer", "Asked", "Call", "Inline", "Malformed", "Parsed", "Protocol", "parse_tags"]

PLACES: Table = {
    "swirl": "envs.papers.swirl.protocol.SWIRL",
    "swirl_math": "envs.papers.swirl.protocol.SWIRL_MATH",
    "research": "envs.papers.research.protocol.RESEARCH",
    "icrl": "envs.papers.icrl.protocol.ICRL",
    "retool": "envs.protocols.retool.RETOOL",
    "graph_rl": "envs.papers.graph_rl.protocol.GRAPH_RL",
    "direct": "envs.protocols.direct.DIRECT",
    "cot": "envs.protocols.direct.COT",
    "rag": "envs.protocols.retrieval.RAG",
    "iter_retgen": "envs.protocols.retrieval.ITER_RETGEN",
    "ircot": "envs.protocols.retrieval.IRCOT",
    "o2_searcher": "envs.protocols.o2_searcher.O2_SEARCHER",
}


class Protocols(Mapping[str, Protocol]):
    """Those of PLACES, imported when they are looked at: a paper's protocol imports what is shared in this folder."""

    def __getitem__(self, name: str) -> Protocol:
        protocol: Protocol = load(PLACES[name])
        return protocol

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


PROTOCOLS = Protocols()
