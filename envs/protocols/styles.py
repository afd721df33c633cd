"""How an answer to a question is written in one message: what is asked for, and what counts as having answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from envs.protocols.record import ANSWER_CLOSE, ANSWER_OPEN, last_answer, write_answer
from envs.text.choice import find_final_letter, find_named
from envs.text.words import last_boxed, normalize_answer, without_thought
from rlsys.types import Task

BOX_OPEN, BOX_CLOSE = "\\boxed{", "}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    instruction: str  # the default; a config may give another
    stop: tuple[str, ...] = ()  # empty: the model ends its message itself
    tags: tuple[str, ...] = ()  # one token each, where a tokenizer is built
    answered: Callable[[str, Task], bool]
    write: Callable[[str], str]


def _names_an_option(text: str, task: Task) -> bool:
    text, letters = without_thought(text), options(task)
    answer_text = last_answer(text)
    return (
        find_final_letter(text, letters)[0] if answer_text is None else find_named(answer_text, letters)
    ) is not None


STYLES: Mapping[str, Style] = {
    "boxed": Style(
        instruction=f"Think step by step and put the final answer within {BOX_OPEN}{BOX_CLOSE}.",
        tags=(BOX_OPEN, BOX_CLOSE),
        answered=lambda text, _: bool(last_boxed(text)),
        write=lambda text: f"{BOX_OPEN}{text}{BOX_CLOSE}",
    ),
    "answer_tag": Style(
        instruction=f"Think step by step, then finish with {ANSWER_OPEN}the answer{ANSWER_CLOSE}.",
        stop=(ANSWER_CLOSE,),
        tags=(ANSWER_OPEN, ANSWER_CLOSE),
        answered=lambda text, _: last_answer(without_thought(text)) is not None,
        write=write_answer,
    ),
    "choice": Style(
        instruction="Think step by step. The last sentence names one letter: the answer is X.",
        answered=_names_an_option,
        write=lambda text: f"The answer is {text}.",
    ),
    "yes_no": Style(
        instruction=f"Think step by step, then finish with {write_answer('yes')} or {write_answer('no')}.",
        stop=(ANSWER_CLOSE,),
        tags=(ANSWER_OPEN, ANSWER_CLOSE),
        answered=lambda text, _: normalize_answer(last_answer(without_thought(text)) or "") in ("yes", "no"),
        write=write_answer,
    ),
    "free": Style(instruction="Think step by step.", answered=lambda text, _: bool(text.strip()), write=str),
}


def options(task: Task) -> dict[str, str]:
    """Letters with their texts; empty for a task that is no multiple choice."""
    choices = task.record.get("options")
    return {str(letter): str(text) for letter, text in choices.items()} if isinstance(choices, Mapping) else {}
