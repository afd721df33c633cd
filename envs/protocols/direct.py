"""The direct answer, ReSearch's naive generation and ICRL's first baseline: no search, no thought.

The answer has ReSearch's form in all baselines, so that its reward reads them (`reward: {name: research}`).

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered | - |
| anything else | the episode ends, malformed | ours |
"""

from __future__ import annotations

from envs.protocols.record import Asked, Protocol
from envs.protocols.research import write_boxed
from envs.protocols.scan import ANSWER_CLOSE, ANSWER_OPEN, parse_answer
from rlsys.types import Message

BOXED_ANSWER = (
    "Write the answer as <answer> The final answer is \\[ \\boxed{answer here} \\] </answer>, with nothing but the "
    "answer itself, a few words, in the box."
)


def asked_with(asked: Asked, ending: str = "") -> tuple[Message, ...]:
    """One user message: the instruction, the question, and what stands after it; a blank line between them."""
    content = "\n\n".join(part for part in (asked.instruction, f"Question: {asked.question}") if part)
    return (Message(role="user", content=content + ending, inline=asked.raw),)


_INSTRUCTION = f"Answer the question from what you know, without explaining anything. {BOXED_ANSWER}"

DIRECT = Protocol(
    name="direct",
    tags=(ANSWER_OPEN, ANSWER_CLOSE),
    stop=(ANSWER_CLOSE,),
    instruction=_INSTRUCTION,
    base_instruction=_INSTRUCTION,
    prompt=asked_with,
    parse=parse_answer,
    write_answer=write_boxed,
    topk=0,
)
