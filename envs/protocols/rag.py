"""Naive retrieval-augmented generation (ReSearch, section 3.1): one search with the question, then the answer.

The environment searches before the policy writes anything: the passages stand in the prompt (`envs.worlds.prompted`).

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered | - |
| anything else | the episode ends, malformed | ours |
| the retriever is down | a typed failure before the first message | ours |
"""

from __future__ import annotations

from dataclasses import replace

from envs.protocols.direct import BOXED_ANSWER, DIRECT
from envs.protocols.research import show_contents

_INSTRUCTION = f"Answer the question with the help of the passages, without explaining anything. {BOXED_ANSWER}"

RAG = replace(
    DIRECT,
    name="rag",
    instruction=_INSTRUCTION,
    base_instruction=_INSTRUCTION,
    topk=5,
    show=show_contents,
)
