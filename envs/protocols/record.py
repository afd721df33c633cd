"""What a protocol is: how a policy writes a call or an answer, and how the environment's words reach it.

Text that a model wrote is hostile: every search for a tag is a pass of `str.find` or `str.rfind`, linear in its length,
and what stands between the tags is kept as it is, stripped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from envs.services.retriever.corpus import Document
from envs.tasks.conversation import prepend_turns
from envs.tasks.prompts import ExampleLayout
from rlsys.errors import require
from rlsys.types import Message

ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"


@dataclass(frozen=True, slots=True)
class Call:
    """Something for the tool: Call("capital of France"). Stripped; empty when the tags hold nothing."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What stands in the answer tag, stripped. `with_call`: the message holds a call too, which is not executed."""

    text: str
    with_call: bool = False


@dataclass(frozen=True, slots=True)
class Malformed:
    """Neither a call nor an answer."""


Parsed = Call | Answer | Malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a prompt is made of."""

    question: str
    instruction: str = ""
    examples: ExampleLayout = ExampleLayout()
    raw: bool = False  # for base models: one text without a chat template
    before: tuple[Message, ...] = ()  # messages of the task's own conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """How the environment's text is found in an episode that was written down as one string."""

    opening: str
    closing: str
    notices: tuple[str, ...] = ()  # whole texts of the environment outside of the tags


def write_answer(text: str) -> str:
    return f"<answer>{text}</answer>"


def write_boxed(text: str) -> str:
    """The answer in ReSearch's form, which its baselines have too."""
    return f"<answer> The final answer is \\[ \\boxed{{{text}}} \\] </answer>"


def show_contents(documents: Sequence[Document]) -> str:
    """Titles and texts, a blank line between passages."""
    return "\n\n".join(document.contents for document in documents)


def _user_turn(_: str, result: str) -> Message:
    return Message(role="user", content=result)


def _no_tool(_: object) -> str:
    raise NotImplementedError("this protocol has no such tool")


def _one_query(call: str) -> Sequence[str]:
    return (call,)


def one_user_message(inputs: Asked) -> tuple[Message, ...]:
    """The instruction, if any, on a line above the question. No system role: some chat templates have none."""
    content = "\n".join(part for part in (inputs.instruction, inputs.question) if part)
    return (Message(role="user", content=content, inline=inputs.raw),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Pure functions and constants. `parse` takes any text, raises nothing and is linear in its length."""

    name: str
    tags: tuple[str, ...]  # each becomes one token where a tokenizer is trained
    stop: tuple[str, ...]  # generation ends after any of these, or at the end of the model's turn
    # what the policy is shown
    instruction: str = ""  # the default; `{calls}` becomes the number of calls
    base_instruction: str | None = None  # for base models; None where the protocol needs a chat
    bare_instruction: str = ""  # the default without the tool; names none
    shows_examples: bool = False  # solved problems may stand in the prompt
    prompt: Callable[[Asked], tuple[Message, ...]] = one_user_message
    # what it writes
    parse: Callable[[str], Parsed]
    write_answer: Callable[[str], str] = write_answer
    write_call: Callable[[str], str] = _no_tool
    thinks: bool = False  # reasoning stands in <think> tags
    # what the environment says
    reply: Callable[[str, str], Message] = _user_turn  # (the call, the tool's result)
    inline: Inline | None = None  # None: what the environment says stands in separate messages
    calls: int | None = 0  # calls per episode; None: as many as the token budget allows
    blank: str = ""  # the result of an empty call, which is not sent to the tool
    malformed: Message | None = None  # said to a malformed message, which costs a turn; None: the episode ends
    over_limit: Message | None = None  # said to the first call over the limit; the next message must answer
    max_reply_tokens: int | None = None  # what the environment says is cut to this
    # where it answers questions, by search or from memory
    topk: int | None = None  # passages per search; 0: nothing is ever searched; None: it is for something else
    show: Callable[[Sequence[Document]], str] = _no_tool
    queries: Callable[[str], Sequence[str]] = _one_query  # of a call

    def first_messages(self, inputs: Asked) -> tuple[Message, ...]:
        return prepend_turns(inputs.before, self.prompt(inputs))


def without_tool(protocol: Protocol) -> Protocol:
    """For `env.tools=false`: the first call is answered as one over the limit is. The tags stay what they are."""
    base = None if protocol.base_instruction is None else protocol.bare_instruction
    return replace(
        protocol, calls=0, instruction=protocol.bare_instruction, base_instruction=base, shows_examples=False
    )


def check_bare(protocol: Protocol, instruction: str | None, examples: int = 0) -> None:
    """Raises BadInput for a prompt that would name the tool that is switched off."""
    written = protocol.write_call("")
    marker = next((tag for tag in protocol.tags if tag in written and tag in (instruction or "")), None)
    require(marker is None, "env.instruction", instruction, f'null, "" or a text without {marker}: env.tools is false')
    require(examples == 0, "env.demonstrations.count", examples, "0: examples use the tool, and env.tools is false")


def first_between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the first `opening` and the next `closing`; None without such a pair."""
    start = text.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = text.find(closing, start)
    return None if end < 0 else text[start:end].strip()


def last_between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the last `closing` with an `opening` before it and the nearest such `opening`."""
    first = text.find(opening)
    end = text.rfind(closing)
    if first < 0 or end < first + len(opening):
        return None
    start = text.rfind(opening, 0, end) + len(opening)
    return text[start:end].strip()


def last_answer(text: str) -> str | None:
    """The last answer of a message; an empty tag is the answer "", no complete tag is None."""
    return last_between(text, ANSWER_OPEN, ANSWER_CLOSE)


def has_one_answer(text: str) -> bool:
    """Whether a message holds exactly one answer tag, opened and closed once, in that order."""
    return text.count(ANSWER_OPEN) == 1 == text.count(ANSWER_CLOSE) and last_answer(text) is not None


def parse_answer(text: str) -> Parsed:
    """The last answer, where there is no call to look for."""
    answer_text = last_answer(text)
    return Malformed() if answer_text is None else Answer(answer_text)


def parse_first(text: str, opening: str, closing: str) -> Parsed:
    """Whichever of a call and an answer is complete first. What stands behind the first `closing`, else behind the
    first `</answer>`, is not looked at: Search-R1, ICRL and O2-Searcher generate first and then cut there."""
    tag = closing if closing in text else ANSWER_CLOSE
    before, closing_tag, _ = text.partition(tag)
    text = before + closing_tag
    call, answer_text = first_between(text, opening, closing), first_between(text, ANSWER_OPEN, ANSWER_CLOSE)
    if answer_text is not None and (call is None or text.find(ANSWER_OPEN) < text.find(opening)):
        return Answer(answer_text, with_call=call is not None)
    return Malformed() if call is None else Call(call)


def parse_tags(text: str, opening: str, closing: str) -> Parsed:
    """The last answer, else the first call between two tags."""
    answer_text, call = last_answer(text), first_between(text, opening, closing)
    if answer_text is not None:
        return Answer(answer_text, with_call=call is not None)
    return Malformed() if call is None else Call(call)
