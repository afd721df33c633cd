"""Baselines with passages for the question in the first prompt: `envs.worlds.search` searches it (`PROMPTED`).

RAG: naive retrieval-augmented generation (ReSearch, section 3.1): one search with the question, then the answer.

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered | - |
| anything else | the episode ends, malformed | ours |
| the retriever is down | a typed failure before the first message | ours |

Iter-RetGen (arXiv 2305.15294): search, answer, search with the answer, answer again; three times, as in FlashRAG. Each
prompt holds the question and the passages of the last search alone: the policy sees neither its earlier answers nor
their passages. The environment searches, with the question and what the policy said last.

| message | what happens | source |
|---|---|---|
| any but the last | the question and its text, without tags, are searched; a new prompt | section 3 |
| the last, an answer | the episode ends, answered | section 3 |
| the last, anything else | the episode ends, malformed | ours |
| the retriever is down | a typed failure | ours |

IRCoT (arXiv 2212.10509): each sentence of the reasoning is a query, and its passages come before the next sentence. The
authors cut the policy's text after a sentence and look for "answer is"; here a sentence stands in `<think>` tags and
the answer in its own, so that a full stop in a name ends nothing.

| message | what happens | source |
|---|---|---|
| a sentence in tags | searched; its passages are a user turn | section 3 |
| an answer | the episode ends, answered | section 3 |
| neither | the episode ends, malformed | ours |
| an empty sentence | `nothing to search` | ours |
| the same sentence again | executed and flagged | ours |
| a ninth sentence | not executed: the model must answer now | section 3: 8 at most; the request is ours |
| a sentence after that | the turn limit ends the episode | ours |
| the retriever is down | a typed failure | ours |
"""

from __future__ import annotations

from dataclasses import replace

from envs.protocols.direct import BOXED_ANSWER, COT, DIRECT, ask_with
from envs.protocols.record import ANSWER_CLOSE, ANSWER_OPEN, Protocol, parse_tags, show_contents, write_boxed
from envs.text.words import THOUGHT_CLOSE, THOUGHT_OPEN
from rlsys.types import Message

OVER_LIMIT = "No more passages. Write the answer now, enclosed by <answer> and </answer>."
_AT_ONCE = f"Answer the question with the help of the passages, without explaining anything. {BOXED_ANSWER}"
_THINKING = (
    "Answer the question with the help of the passages. Reason inside <think> and </think> first, one step after the "
    f"other. {BOXED_ANSWER}"
)

RAG = replace(
    DIRECT,
    name="rag",
    instruction=_AT_ONCE,
    base_instruction=_AT_ONCE,
    topk=5,
    show=show_contents,
)
ITER_RETGEN = replace(
    COT,
    name="iter_retgen",
    instruction=_THINKING,
    base_instruction=_THINKING,
    calls=2,
    topk=5,
    show=show_contents,
)
IRCOT = Protocol(
    name="ircot",
    tags=(THOUGHT_OPEN, THOUGHT_CLOSE, ANSWER_OPEN, ANSWER_CLOSE),
    stop=(THOUGHT_CLOSE, ANSWER_CLOSE),
    instruction=(
        "Answer the question step by step with the help of the passages. Write one sentence of your reasoning at a "
        "time, inside <think> and </think>, and stop: more passages for this sentence will follow. When you know the "
        f"answer, write it in the place of a sentence. {BOXED_ANSWER}"
    ),
    prompt=ask_with,
    parse=lambda text: parse_tags(text, THOUGHT_OPEN, THOUGHT_CLOSE),
    write_call=lambda sentence: f"{THOUGHT_OPEN} {sentence} {THOUGHT_CLOSE}",
    write_answer=write_boxed,
    reply=lambda _, text: Message(role="user", content=text),
    calls=8,
    blank="nothing to search",
    over_limit=Message(role="user", content=OVER_LIMIT),
    topk=5,
    show=show_contents,
)

PROMPTED = (RAG.name, ITER_RETGEN.name, IRCOT.name)  # protocols whose first prompt shows passages for the question
