"""O2-Searcher (arXiv 2505.16582 and the authors' repository): several `<query>` in a `<search>`, answered by learnings.

The authors generate without a stop string and cut the text after the first `</search>`, else after the first
`</answer>`; here generation stops at either tag. They add a user's turn without ending the model's; here the chat
template's marks do both. Learnings are the passages, as of their closed-ended questions; for open-ended ones they have
another model condense web pages. The last passages of a query that found too few are not filled up with blanks.

| message | what happens | source |
|---|---|---|
| the first complete pair is `<search>` | each `<query>` in it is searched, see `reply` | repository |
| more than five queries | the first five | the prompt asks for one to five; ours |
| a `<search>` without a `<query>` | learnings that are empty | repository |
| the first complete pair is `<answer>` | the episode ends, answered | repository |
| no complete pair | the prescribed text as a user turn; costs a turn | repository |
| the same in the last message | the episode ends, malformed | repository |
| a search in the fifth message | not executed: the turn limit ends the episode | repository: 4 turns and one more |
| the same call again | executed and flagged | repository; the flag is ours |
| the retriever is down | a typed failure, or empty learnings (if configured so) | repository: `Invalid search.` |
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.protocols.record import (
    ANSWER_CLOSE,
    ANSWER_OPEN,
    Asked,
    Call,
    Parsed,
    Protocol,
    first_between,
    parse_first,
)
from rlsys.types import Message

SEARCH_OPEN, SEARCH_CLOSE = "<search>", "</search>"
QUERY_OPEN, QUERY_CLOSE = "<query>", "</query>"
MAX_QUERIES = 5
# Word for word: policies were trained with it.
INVALID_ACTION = (
    "The response you attempted before is invalid. If you plan to execute actions like SEARCH, you need to enclose the "
    "SEARCH queries within the <search> and </search> tags. Furthermore, the required queries for the SEARCH action "
    "should be placed between the <query> and </query> tags. Moreover, if you wish to present the final output for the "
    "initial query, you must wrap the result within the <answer> and </answer> tags.\n"
)
# The sentences around the tags are ours.
INSTRUCTION = (
    "You research questions. Whenever you learn something new, reason about it inside <think> and </think>. If you "
    "lack some knowledge, search with one to five different queries, written as <search>\n<query>QUERY</query>\n"
    "<query>QUERY</query>\n</search>: what is found stands between <learnings> and </learnings>. You can search as "
    "often as you need. At the end write the answer inside <answer> and </answer>."
)
BARE_INSTRUCTION = "Reason inside <think> and </think>. At the end write the answer inside <answer> and </answer>."


def queries(call: str) -> Sequence[str]:
    """What stands in the query tags of a call: the first five that are not empty."""
    query_texts: list[str] = []
    for piece in call.split(QUERY_CLOSE)[:-1]:
        query = first_between(piece + QUERY_CLOSE, QUERY_OPEN, QUERY_CLOSE)
        if query and len(query_texts) < MAX_QUERIES:
            query_texts.append(query)
    return query_texts


def _parse(text: str) -> Parsed:
    parsed = parse_first(text, SEARCH_OPEN, SEARCH_CLOSE)
    return Call("") if isinstance(parsed, Call) and not queries(parsed.text) else parsed


def _prompt(inputs: Asked) -> tuple[Message, ...]:
    system = (Message(role="system", content=inputs.instruction),) if inputs.instruction else ()
    return (*system, Message(role="user", content=f"Initial query: {inputs.question}"))


O2_SEARCHER = Protocol(
    name="o2_searcher",
    tags=(
        *("<think>", "</think>", SEARCH_OPEN, SEARCH_CLOSE, QUERY_OPEN, QUERY_CLOSE),
        *("<learnings>", "</learnings>", ANSWER_OPEN, ANSWER_CLOSE),
    ),
    stop=(SEARCH_CLOSE, ANSWER_CLOSE),
    instruction=INSTRUCTION,
    bare_instruction=BARE_INSTRUCTION,
    prompt=_prompt,
    parse=_parse,
    write_call=lambda query: f"{SEARCH_OPEN}\n{QUERY_OPEN}{query}{QUERY_CLOSE}\n{SEARCH_CLOSE}",
    write_answer=lambda text: f"{ANSWER_OPEN} {text} {ANSWER_CLOSE}",
    reply=lambda _, text: Message(role="user", content=f"Search learnings: <learnings>{text.strip()}</learnings>.\n"),
    calls=4,
    malformed=Message(role="user", content=INVALID_ACTION),
    thinks=True,
    topk=3,
    show=lambda documents: " ".join(document.contents for document in documents),
    queries=queries,
)
