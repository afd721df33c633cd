"""Baselines that answer from what the model knows, without a search: at once, or after a chain of thought.

direct is ReSearch's naive generation and ICRL's first baseline. cot is chain of thought (arXiv 2201.11903), asked for
in words alone as in arXiv 2205.11916. The answer has ReSearch's form in all baselines, so that its reward reads them
(`reward: {name: research}`).

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered | - |
| anything else | the episode ends, malformed | ours |
"""

from __future__ import annotations

from dataclasses import replace

from envs.protocols.record import ANSWER_CLOSE, ANSWER_OPEN, Asked, Protocol, parse_answer, write_boxed
from rlsys.types import Message

BOXED_ANSWER = (
    "Write the answer as <answer> The final answer is \\[ \\boxed{answer here} \\] </answer>, with nothing but the "
    "answer itself, a few words, in the box."
)
STEP_BY_STEP = "\nLet's think step by step."  # word for word: arXiv 2205.11916
_AT_ONCE = f"Answer the question from what you know, without explaining anything. {BOXED_ANSWER}"
_THINKING = (
    "Answer the question from what you know. Reason inside <think> and </think> first, one step after the other. "
    + BOXED_ANSWER
)


def ask_with(inputs: Asked, ending: str = "") -> tuple[Message, ...]:
    """One user message: the instruction, the question, and what stands after it; a blank line between them."""
    content = "\n\n".join(part for part in (inputs.instruction, f"Question: {inputs.question}") if part)
    return (Message(role="user", content=content + ending, inline=inputs.raw),)


DIRECT = Protocol(
    name="direct",
    tags=(ANSWER_OPEN, ANSWER_CLOSE),
    stop=(ANSWER_CLOSE,),
    instruction=_AT_ONCE,
    base_instruction=_AT_ONCE,
    prompt=ask_with,
    parse=parse_answer,
    write_answer=write_boxed,
    topk=0,
)
COT = replace(
    DIRECT,
    name="cot",
    tags=("<think>", "</think>", *DIRECT.tags),
    instruction=_THINKING,
    base_instruction=_THINKING,
    prompt=lambda inputs: ask_with(inputs, STEP_BY_STEP),
    thinks=True,
)
