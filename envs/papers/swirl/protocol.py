"""SWiRL (section 2.3, appendices A and E): `<search_query>` or `<math_exp>`, then `<answer>`.

A tool's answer is a separate user turn, `QUERY -> RESULT`, the query on one line. Limits: 5 queries for
question answering, 10 for mathematics.

| message | what happens | source |
|---|---|---|
| an answer | the episode ends, answered | section 2.3 |
| a call | the first one is executed | section 2.3; which of several is open: ours |
| a call and an answer | the answer counts, `Answer.with_call` is set | the prompt forbids it; ours |
| neither | the episode ends, malformed | open in the paper; ours |
| an empty call | `-> error: empty query` (`expression`), costs a turn | ours |
| the same call again | executed and flagged | the prompt forbids it; ours |
| a call over the limit | not executed: the model must answer now | section 2.3 ends here; the last chance is ours |
| a call after that | the turn limit ends the episode | section 2.3 |
| the token budget is used up | the episode ends, cut off | - |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from envs.protocols.record import ANSWER_CLOSE, ANSWER_OPEN, Asked, Protocol, one_user_message, parse_tags
from envs.services.retriever.corpus import Document
from rlsys.types import Message

SEARCH_OPEN, SEARCH_CLOSE = "<search_query>", "</search_query>"
MATH_OPEN, MATH_CLOSE = "<math_exp>", "</math_exp>"
# The sentences around the tags are ours.
INSTRUCTION = (
    "Answer the question below in a few words. If a search would help, write one search query enclosed by "
    "<search_query> and </search_query>. You may make up to {calls} queries, one after the other, and each result will "
    "be shown as QUERY -> RESULT. Do not make the same query twice. When you know enough, write your answer enclosed "
    "by <answer> and </answer>. Write either a query or an answer, never both."
)
BARE_INSTRUCTION = "Answer the question below in a few words, enclosed by <answer> and </answer>."
MATH_INSTRUCTION = "Calculate with <math_exp>48 / 2</math_exp>, then finish with <answer>24</answer>."
BARE_MATH_INSTRUCTION = "Work it out step by step, then finish with <answer>24</answer>."
OVER_LIMIT = "No more queries are allowed. Write the answer now, enclosed by <answer> and </answer>."


def tool_reply(query: str, result: str, *, max_query: int = 512) -> str:
    """SWiRL's form of a tool's answer: `48 / 2 -> 24.0`. A longer query is cut, so that the context cannot double, and
    stands on one line: what it says on a second one would look like a result."""
    return f"{_cut_query(' '.join(query.split()), max_query)} -> {result}"


def result_of(query: str, reply: str) -> str | None:
    """The tool's own words of a `tool_reply`; None for anything else. Of older files too, whose queries have lines."""
    for echo in (tool_reply(query, ""), f"{_cut_query(query, 512)} -> "):
        if reply.startswith(echo):
            return reply.removeprefix(echo)
    return None


def _cut_query(query: str, most: int) -> str:
    return query if len(query) <= most else query[:most] + "..."


def _prompt(inputs: Asked) -> tuple[Message, ...]:
    question = f"The question is: {inputs.question}" if inputs.instruction else inputs.question
    return one_user_message(replace(inputs, question=question))


def _show(documents: Sequence[Document]) -> str:
    """The article's text without its title, as in appendix E."""
    return "\n".join(document.text or document.title for document in documents) or "nothing found"


SWIRL = Protocol(
    name="swirl",
    tags=(SEARCH_OPEN, SEARCH_CLOSE, ANSWER_OPEN, ANSWER_CLOSE),
    stop=(SEARCH_CLOSE, ANSWER_CLOSE),
    instruction=INSTRUCTION,
    bare_instruction=BARE_INSTRUCTION,
    prompt=_prompt,
    parse=lambda text: parse_tags(text, SEARCH_OPEN, SEARCH_CLOSE),
    write_call=lambda query: f"{SEARCH_OPEN}{query}{SEARCH_CLOSE}",
    reply=lambda call, result: Message(role="user", content=tool_reply(call, result)),
    calls=5,
    blank="error: empty query",
    over_limit=Message(role="user", content=OVER_LIMIT),
    topk=1,
    show=_show,
)
SWIRL_MATH = replace(
    SWIRL,
    name="swirl_math",
    tags=(MATH_OPEN, MATH_CLOSE, ANSWER_OPEN, ANSWER_CLOSE),
    stop=(MATH_CLOSE, ANSWER_CLOSE),
    instruction=MATH_INSTRUCTION,
    bare_instruction=BARE_MATH_INSTRUCTION,
    prompt=one_user_message,
    parse=lambda text: parse_tags(text, MATH_OPEN, MATH_CLOSE),
    write_call=lambda expression: f"{MATH_OPEN}{expression}{MATH_CLOSE}",
    calls=10,
    blank="error: empty expression",
    topk=None,
)
