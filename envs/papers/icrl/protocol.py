"""ICRL (section 2.2 and the authors' repository, in Search-R1's protocol): `<search>`, `<information>`, `<answer>`.

The authors generate without a stop string, cut the text after the first `</search>`, else after the first `</answer>`,
and tokenise what is left again. Here generation stops at either tag and nothing is tokenised twice: the action is the
same, but for a stray `</answer>` before a search, which is malformed here. A text that was not stopped (a file's) is
cut as theirs.

| message | what happens | source |
|---|---|---|
| the first complete pair is `<answer>` | the episode ends, answered | repository |
| the first complete pair is `<search>` | searched; the documents stand inline, see `reply` | repository |
| an answer, then a search | the answer counts, `Answer.with_call` is set | repository; the flag is ours |
| several searches | the first is executed | repository |
| no complete pair | the prescribed text, inline and masked; costs a turn | repository |
| the same in the last message | the episode ends, malformed | repository |
| an empty query, a search that failed (if configured so) | an empty information block | repository |
| a search in the seventh message | not executed: the turn limit ends the episode | repository: 6 turns and one more |
| an observation over 500 tokens | cut to 500, closing tag included | repository |
| the same call again | executed and flagged | repository; the flag is ours |
| the token budget is used up | the episode ends, cut off | - |
"""

from __future__ import annotations

from collections.abc import Sequence

from envs.protocols.record import ANSWER_CLOSE, ANSWER_OPEN, Asked, Inline, Protocol, parse_first
from envs.services.retriever.corpus import Document
from envs.tasks.prompts import show_examples
from rlsys.types import Message

SEARCH_OPEN, SEARCH_CLOSE = "<search>", "</search>"
# Word for word: policies were trained with it.
INVALID_ACTION = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. "
    "If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.\n"
)
INFORMATION = Inline(opening="<information>", closing="</information>", notices=(INVALID_ACTION,))
# The sentences around the tags are ours.
INSTRUCTION = (
    "Solve the problem step by step. Whenever you learn something new, reason about it inside <think> and </think>. If "
    "you lack some knowledge, call a search engine with <search> query </search>: the best results will stand between "
    "<information> and </information>. You can search as often as you want. At the end write the answer alone inside "
    "<answer> and </answer>, for example <answer> Beijing </answer>."
)
BARE_INSTRUCTION = (
    "Solve the problem step by step and reason about it inside <think> and </think>. At the end write the answer alone "
    "inside <answer> and </answer>, for example <answer> Beijing </answer>."
)


def _prompt(inputs: Asked) -> tuple[Message, ...]:
    question = inputs.question if inputs.question.endswith("?") else f"{inputs.question}?"
    return show_examples(inputs.instruction, inputs.examples, question, label="Problem: ", raw=inputs.raw)


def _show(documents: Sequence[Document]) -> str:
    lines = []
    for number, document in enumerate(documents, start=1):
        title, _, text = document.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return "".join(lines)


ICRL = Protocol(
    name="icrl",
    tags=(
        *("<think>", "</think>", SEARCH_OPEN, SEARCH_CLOSE),
        *("<information>", "</information>", ANSWER_OPEN, ANSWER_CLOSE),
    ),
    stop=(SEARCH_CLOSE, ANSWER_CLOSE),
    instruction=INSTRUCTION,
    base_instruction=INSTRUCTION,
    bare_instruction=BARE_INSTRUCTION,
    shows_examples=True,
    prompt=_prompt,
    parse=lambda text: parse_first(text, SEARCH_OPEN, SEARCH_CLOSE),
    write_call=lambda query: f"{SEARCH_OPEN} {query} {SEARCH_CLOSE}",
    write_answer=lambda text: f"{ANSWER_OPEN} {text} {ANSWER_CLOSE}",
    reply=lambda _, text: Message(
        role="tool", content=f"\n\n<information>{text.strip()}</information>\n\n", inline=True
    ),
    inline=INFORMATION,
    calls=6,
    malformed=Message(role="tool", content=INVALID_ACTION, inline=True),
    max_reply_tokens=500,
    thinks=True,
    topk=3,
    show=_show,
)
