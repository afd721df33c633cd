"""How each protocol puts a question and shows what was found. Dialects say the rest.

Tags, examples and everything else that a policy was trained on are the papers'; the sentences around them are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envs.protocols import DIALECTS, Dialect
from envs.services.retriever.documents import Document
from envs.tasks.few_shot import numbered
from rlsys.types import Message

SWIRL_INSTRUCTION = (
    "Answer the question below in a few words. If a search would help, write one search query enclosed by "
    "<search_query> and </search_query>. You may make up to {calls} queries, one after the other, and each result will "
    "be shown as QUERY -> RESULT. Do not make the same query twice. When you know enough, write your answer enclosed "
    "by <answer> and </answer>. Write either a query or an answer, never both."
)
_RESEARCH_FORMAT = (
    "The reasoning stands in <think> </think> tags and the answer in <answer> </answer> tags; a search query stands in "
    "<search> </search> tags and what was found in <result> </result> tags. For example, <think> This is the "
    "reasoning. </think> <search> search query here </search> <result> search result here </result> <think> This is "
    "the reasoning. </think> <answer> The final answer is \\[ \\boxed{answer here} \\] </answer>. In the last part of "
    "the answer, the final exact answer is enclosed within \\boxed{} with latex format."
)
RESEARCH_BASE_INSTRUCTION = (
    "The User asks a question and the Assistant answers it. The Assistant thinks first, and during its thinking it can "
    "use the wikipedia search tool to look up facts. " + _RESEARCH_FORMAT
)
RESEARCH_INSTRUCTION = (
    "You solve the given question step by step with the help of the wikipedia search tool. Think first, and during "
    "your thinking look up facts with the tool where you need them. " + _RESEARCH_FORMAT
)
ICRL_INSTRUCTION = (
    "Solve the problem step by step. Whenever you learn something new, reason about it inside <think> and </think>. If "
    "you lack some knowledge, call a search engine with <search> query </search>: the best results will stand between "
    "<information> and </information>. You can search as often as you want. At the end write the answer alone inside "
    "<answer> and </answer>, for example <answer> Beijing </answer>."
)
ICRL_EXAMPLES = "Here are some examples of solved problems:"
ICRL_AFTER_EXAMPLES = (
    "Now solve the following problem with the ability you just learned from the examples. Remember, DO NOT take the "
    "problem from examples as the problem you need to solve."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a prompt is made of."""

    question: str
    instruction: str
    examples: tuple[str, ...] = ()
    raw: bool = False  # for base models: one text without a chat template


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProtocol:
    dialect: Dialect
    topk: int
    show: Callable[[Sequence[Document]], str]
    prompt: Callable[[Asked], tuple[Message, ...]]
    instruction: str  # with `{calls}` for the number of searches
    base_instruction: str | None = None  # for base models; None where the protocol needs a chat


def show_swirl(documents: Sequence[Document]) -> str:
    """The article's text without its title, as in appendix E."""
    return "\n".join(document.text or document.title for document in documents) or "nothing found"


def show_research(documents: Sequence[Document]) -> str:
    return "\n\n".join(document.contents for document in documents)


def show_icrl(documents: Sequence[Document]) -> str:
    lines = []
    for number, document in enumerate(documents, start=1):
        title, _, text = document.contents.partition("\n")
        lines.append(f"Doc {number}(Title: {title}) {text}\n")
    return "".join(lines)


def _user(content: str, asked: Asked) -> tuple[Message, ...]:
    return (Message(role="user", content=content, inline=asked.raw),)


def prompt_swirl(asked: Asked) -> tuple[Message, ...]:
    if not asked.instruction:
        return _user(asked.question, asked)
    return _user(f"{asked.instruction}\nThe question is: {asked.question}", asked)


def prompt_research(asked: Asked) -> tuple[Message, ...]:
    """One text for a base model, else the instruction as the system's message."""
    if asked.raw:
        return _user(f"{asked.instruction} User: {asked.question}. Assistant:".lstrip(), asked)
    system = (Message(role="system", content=asked.instruction),) if asked.instruction else ()
    return (*system, Message(role="user", content=asked.question))


def prompt_icrl(asked: Asked) -> tuple[Message, ...]:
    """One user message: the instruction, the examples if any, the question; blank lines between."""
    question = asked.question if asked.question.endswith("?") else f"{asked.question}?"
    if not asked.examples:
        parts = [asked.instruction, f"Problem: {question}"]
    else:
        examples = numbered(asked.examples)
        parts = [asked.instruction, ICRL_EXAMPLES, examples, ICRL_AFTER_EXAMPLES, f"Actual Problem: {question}"]
    return _user("\n\n".join(part for part in parts if part), asked)


PROTOCOLS: Mapping[str, SearchProtocol] = {
    "swirl": SearchProtocol(
        dialect=DIALECTS["swirl"], topk=1, show=show_swirl, prompt=prompt_swirl, instruction=SWIRL_INSTRUCTION
    ),
    "research": SearchProtocol(
        dialect=DIALECTS["research"],
        topk=5,
        show=show_research,
        prompt=prompt_research,
        instruction=RESEARCH_INSTRUCTION,
        base_instruction=RESEARCH_BASE_INSTRUCTION,
    ),
    "icrl": SearchProtocol(
        dialect=DIALECTS["icrl"],
        topk=3,
        show=show_icrl,
        prompt=prompt_icrl,
        instruction=ICRL_INSTRUCTION,
        base_instruction=ICRL_INSTRUCTION,
    ),
}
