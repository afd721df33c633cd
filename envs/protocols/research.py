"""ReSearch (section 2.2 and the authors' branch `re-search`): `<search>`, `<result>`, `\\boxed` inside `<answer>`.

Generation stops only after `</search>` or at the end of the model's turn. The result stands inline:
` <result>\\n{documents}\\n</result>`. There is no limit but the token budget (8192, results included).

| message | what happens | source |
|---|---|---|
| ends in `</search>` | what stands after its last `<search>` is searched | repository |
| an answer and `</search>` | searched: generation did not stop at the answer | repository |
| `</search>` without `<search>`, an empty query | the result is `nothing to search` | repository's evaluation |
| ended by the model, with an answer | the episode ends, answered | repository |
| ended by the model, without one | the episode ends, malformed | repository (the reward is 0 then) |
| the same call again | executed and flagged | repository; the flag is ours |
| the token budget is used up | the episode ends, cut off | repository (the reward is 0 then) |
"""

from __future__ import annotations

from envs.protocols.record import Answer, Call, Dialect, Malformed, Parsed
from envs.protocols.scan import last_between
from rlsys.types import Message

SEARCH_OPEN, SEARCH_CLOSE = "<search>", "</search>"


def _parse(text: str) -> Parsed:
    if SEARCH_CLOSE in text:
        return Call(last_between(text, SEARCH_OPEN, SEARCH_CLOSE) or "")
    given = last_between(text, "<answer>", "</answer>")
    return Malformed() if given is None else Answer(given)


def _write_answer(text: str) -> str:
    return f"<answer> The final answer is \\[ \\boxed{{{text}}} \\] </answer>"


def _reply(_: str, result: str) -> Message:
    return Message(role="tool", content=f" <result>\n{result}\n</result>", inline=True)


RESEARCH = Dialect(
    name="research",
    tags=("<think>", "</think>", SEARCH_OPEN, SEARCH_CLOSE, "<result>", "</result>", "<answer>", "</answer>"),
    stop=(SEARCH_CLOSE,),
    parse=_parse,
    write_call=lambda query: f"{SEARCH_OPEN} {query} {SEARCH_CLOSE}",
    write_answer=_write_answer,
    reply=_reply,
    calls=None,
    blank="nothing to search",
    thinks=True,
)
