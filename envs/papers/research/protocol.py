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

from envs.protocols.record import (
    Asked,
    Call,
    Inline,
    Parsed,
    Protocol,
    last_between,
    parse_answer,
    show_contents,
    write_boxed,
)
from envs.tasks.prompts import show_examples
from rlsys.types import Message

SEARCH_OPEN, SEARCH_CLOSE = "<search>", "</search>"
RESULT = Inline(opening="<result>", closing="</result>")
# The sentences around the tags and the example are ours.
_FORMAT = (
    "The reasoning stands in <think> </think> tags and the answer in <answer> </answer> tags; a search query stands in "
    "<search> </search> tags and what was found in <result> </result> tags. For example, <think> This is the "
    "reasoning. </think> <search> search query here </search> <result> search result here </result> <think> This is "
    "the reasoning. </think> <answer> The final answer is \\[ \\boxed{answer here} \\] </answer>. In the last part of "
    "the answer, the final exact answer is enclosed within \\boxed{} with latex format."
)
BASE_INSTRUCTION = (
    "The User asks a question and the Assistant answers it. The Assistant thinks first, and during its thinking it can "
    "use the wikipedia search tool to look up facts. " + _FORMAT
)
INSTRUCTION = (
    "You solve the given question step by step with the help of the wikipedia search tool. Think first, and during "
    "your thinking look up facts with the tool where you need them. " + _FORMAT
)
BARE_INSTRUCTION = (
    "You solve the given question step by step. The reasoning stands in <think> </think> tags and the answer in "
    "<answer> </answer> tags. For example, <think> This is the reasoning. </think> <answer> The final answer is "
    "\\[ \\boxed{answer here} \\] </answer>. In the last part of the answer, the final exact answer is enclosed within "
    "\\boxed{} with latex format."
)


def _parse(text: str) -> Parsed:
    if SEARCH_CLOSE in text:
        return Call(last_between(text, SEARCH_OPEN, SEARCH_CLOSE) or "")
    return parse_answer(text)


def _prompt(inputs: Asked) -> tuple[Message, ...]:
    """One text for a base model, else the instruction as the system's message. Solved problems have ICRL's form."""
    if inputs.raw and (inputs.examples.examples or inputs.examples.layout == "text"):
        return show_examples(inputs.instruction, inputs.examples, inputs.question, raw=True)
    if inputs.raw:
        text = f"{inputs.instruction} User: {inputs.question}. Assistant:".lstrip()
        return (Message(role="user", content=text, inline=True),)
    system = (Message(role="system", content=inputs.instruction),) if inputs.instruction else ()
    return (*system, *show_examples("", inputs.examples, inputs.question))


RESEARCH = Protocol(
    name="research",
    tags=("<think>", "</think>", SEARCH_OPEN, SEARCH_CLOSE, "<result>", "</result>", "<answer>", "</answer>"),
    stop=(SEARCH_CLOSE,),
    instruction=INSTRUCTION,
    base_instruction=BASE_INSTRUCTION,
    bare_instruction=BARE_INSTRUCTION,
    shows_examples=True,
    prompt=_prompt,
    parse=_parse,
    write_call=lambda query: f"{SEARCH_OPEN} {query} {SEARCH_CLOSE}",
    write_answer=write_boxed,
    reply=lambda _, text: Message(role="tool", content=f" <result>\n{text}\n</result>", inline=True),
    inline=RESULT,
    calls=None,
    blank="nothing to search",
    thinks=True,
    topk=5,
    show=show_contents,
)
