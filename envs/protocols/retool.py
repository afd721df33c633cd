"""ReTool's protocol for code (ICRL, section 4.3): `<code>`, `<interpreter>`, `\\boxed` inside `<answer>`.

Generation stops only after `</code>` or at the end of the model's turn. The output stands inline, after the `</code>`
that the model wrote: `\\n<interpreter>\\n{output}</interpreter>\\n\\n`. There is no limit but the token budget.

| message | what happens | source |
|---|---|---|
| ends in `</code>` | what stands after its last "```python" is run, up to the closing fence | ReTool |
| no fence before `</code>` | what stands after the last `<code>` is run | ours |
| an answer and `</code>` | run: generation did not stop at the answer | ReTool |
| no code before `</code>` | the output is `None` | ReTool |
| ended by the model, with an answer | the episode ends, answered | ReTool |
| ended by the model, without one | the episode ends, malformed | ours |
| the token budget is used up | the episode ends, cut off | ReTool |
"""

from __future__ import annotations

from envs.protocols.record import Asked, Call, Inline, Parsed, Protocol, parse_answer
from envs.tasks.prompts import show_examples
from rlsys.types import Message

CODE_OPEN, CODE_CLOSE = "<code>", "</code>"
FENCE, FENCE_END = "```python", "```"
INTERPRETER = Inline(opening="<interpreter>", closing="</interpreter>")
INSTRUCTION = (
    "Solve the problem step by step. Where a calculation helps, write Python between <code> and </code>, in a "
    "```python block that prints what you want to know: it is run, and the output is shown between <interpreter> and "
    "</interpreter>. At the end write <answer>\\boxed{the answer}</answer>."
)
BARE_INSTRUCTION = "Solve the problem step by step. At the end write <answer>\\boxed{the answer}</answer>."


def _parse(text: str) -> Parsed:
    before, closing, _ = text.partition(CODE_CLOSE)
    if closing:
        return Call(_extract_code(before))
    return parse_answer(text)


def _extract_code(text: str) -> str:
    """The last block before `</code>`: between fences, else after `<code>`."""
    if FENCE in text:
        return text.rpartition(FENCE)[2].partition(FENCE_END)[0].strip("\n").rstrip()
    return text.rpartition(CODE_OPEN)[2].strip("\n").rstrip() if CODE_OPEN in text else ""


def _prompt(inputs: Asked) -> tuple[Message, ...]:
    """No system message: some chat templates have no such role."""
    return show_examples(inputs.instruction, inputs.examples, inputs.question, raw=inputs.raw)


RETOOL = Protocol(
    name="retool",
    tags=(
        *("<think>", "</think>", CODE_OPEN, CODE_CLOSE),
        *("<interpreter>", "</interpreter>", "<answer>", "</answer>"),
    ),
    stop=(CODE_CLOSE,),
    instruction=INSTRUCTION,
    bare_instruction=BARE_INSTRUCTION,
    shows_examples=True,
    prompt=_prompt,
    parse=_parse,
    write_call=lambda code: f"{CODE_OPEN}\n{FENCE}\n{code}\n{FENCE_END}\n{CODE_CLOSE}",
    write_answer=lambda text: f"<answer>\\boxed{{{text}}}</answer>",
    reply=lambda _, output: Message(role="tool", content=f"\n<interpreter>\n{output}</interpreter>\n\n", inline=True),
    inline=INTERPRETER,
    calls=None,
    blank="None",
    thinks=True,
)
