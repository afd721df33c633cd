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

from envs.protocols.record import Answer, Call, Dialect, Malformed, Parsed
from envs.protocols.scan import last_between
from rlsys.types import Message

CODE_OPEN, CODE_CLOSE = "<code>", "</code>"
FENCE, FENCE_END = "```python", "```"


def _parse(text: str) -> Parsed:
    before, closing, _ = text.partition(CODE_CLOSE)
    if closing:
        return Call(_code(before))
    given = last_between(text, "<answer>", "</answer>")
    return Malformed() if given is None else Answer(given)


def _code(text: str) -> str:
    """The last block before `</code>`: between fences, else after `<code>`."""
    if FENCE in text:
        return text.rpartition(FENCE)[2].partition(FENCE_END)[0].strip("\n").rstrip()
    return text.rpartition(CODE_OPEN)[2].strip("\n").rstrip() if CODE_OPEN in text else ""


def _reply(_: str, result: str) -> Message:
    return Message(role="tool", content=f"\n<interpreter>\n{result}</interpreter>\n\n", inline=True)


RETOOL = Dialect(
    name="retool",
    tags=(
        *("<think>", "</think>", CODE_OPEN, CODE_CLOSE),
        *("<interpreter>", "</interpreter>", "<answer>", "</answer>"),
    ),
    stop=(CODE_CLOSE,),
    parse=_parse,
    write_call=lambda code: f"{CODE_OPEN}\n{FENCE}\n{code}\n{FENCE_END}\n{CODE_CLOSE}",
    write_answer=lambda text: f"<answer>\\boxed{{{text}}}</answer>",
    reply=_reply,
    calls=None,
    blank="None",
    thinks=True,
)
