"""Chain of thought (arXiv 2201.11903), asked for in words alone as in arXiv 2205.11916. No search.

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered | - |
| anything else | the episode ends, malformed | ours |
"""

from __future__ import annotations

from dataclasses import replace

from envs.protocols.direct import BOXED_ANSWER, DIRECT, asked_with

STEP_BY_STEP = "\nLet's think step by step."  # word for word: arXiv 2205.11916
_INSTRUCTION = (
    "Answer the question from what you know. Reason inside <think> and </think> first, one step after the other. "
    + BOXED_ANSWER
)

COT = replace(
    DIRECT,
    name="cot",
    tags=("<think>", "</think>", *DIRECT.tags),
    instruction=_INSTRUCTION,
    base_instruction=_INSTRUCTION,
    prompt=lambda asked: asked_with(asked, STEP_BY_STEP),
    thinks=True,
)
