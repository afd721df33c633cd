"""Iter-RetGen (arXiv 2305.15294): search, answer, search with the answer, answer again; three times, as in FlashRAG.

Each prompt holds the question and the passages of the last search alone: the policy sees neither its earlier answers
nor their passages. The environment searches, with the question and what the policy said last (`envs.worlds.prompted`).

| message | what happens | source |
|---|---|---|
| any but the last | the question and its text, without tags, are searched; a new prompt | section 3 |
| the last, an answer | the episode ends, answered | section 3 |
| the last, anything else | the episode ends, malformed | ours |
| the retriever is down | a typed failure | ours |
"""

from __future__ import annotations

from dataclasses import replace

from envs.protocols.cot import COT, STEP_BY_STEP
from envs.protocols.direct import BOXED_ANSWER, asked_with
from envs.protocols.research import show_contents

_INSTRUCTION = (
    "Answer the question with the help of the passages. Reason inside <think> and </think> first, one step after the "
    f"other. {BOXED_ANSWER}"
)


ITER_RETGEN = replace(
    COT,
    name="iter_retgen",
    instruction=_INSTRUCTION,
    base_instruction=_INSTRUCTION,
    prompt=lambda asked: asked_with(asked, STEP_BY_STEP),
    calls=2,
    topk=5,
    show=show_contents,
)
