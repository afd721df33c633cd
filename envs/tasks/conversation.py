"""Rows that hold a prompt or a conversation, as TRL's data sets do: "prompt" and "completion", or "messages".

The question is the last message of the user. What stands before it, such as a system text, worked examples and earlier
turns, is played before it: `turns_before`.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from envs.tasks.files import Located, number_text, text_field
from envs.text.words import last_boxed
from rlsys.errors import BadInput
from rlsys.message_keys import refuse_other_keys, refuse_packed
from rlsys.types import Message, Task

ROLES = ("system", "user", "assistant", "tool")
ANSWERS = ("answers", "answer", "ground_truth", "solution")  # the first that a row has
CONTEXTS = ("context", "passage")  # that a reader is given; what a searcher is to find comes in lists
FEW_WORDS = 3  # of a context that is a name, such as that of a field
SHORT = 5  # words: "St. Louis" and "J. K. Rowling" are no sentences
FINAL = "#### "  # of GSM8K: the result stands behind it


def read_messages(value: object, where: str, key: str) -> tuple[Message, ...]:
    """`[{"role": "user", "content": "2 + 3?"}]`, contents as texts or as lists of text parts.

    Raises BadInput for anything else, such as pictures and calls of tools.
    """
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise BadInput(where=where, key=f'"{key}"', expected='a list such as [{"role": "user", "content": "2 + 3?"}]')
    return tuple(_read_message(message, where, f"{key}[{index}]") for index, message in enumerate(value))


def _read_message(value: object, where: str, key: str) -> Message:
    if not isinstance(value, Mapping) or value.get("role") not in ROLES:
        role = value.get("role") if isinstance(value, Mapping) else value
        raise BadInput(where=where, key=f'"{key}.role"', found=str(role)[:40], expected=f"one of {', '.join(ROLES)}")
    refuse_other_keys(value, f"{where}: {key}")
    for name in ("tool_calls", "calls"):
        if value.get(name):
            raise BadInput("calls of tools in a prompt are not read", where=where, key=f'"{key}.{name}"')
    if value.get("inline"):
        raise BadInput(where=where, key=f'"{key}.inline"', found="true", expected="a prompt that is one text")
    content = value.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        content = "".join(read_text_part(part, where, f"{key}.content") for part in content)
    return Message(
        role=str(value["role"]),
        content=text_field({"content": content}, "content", where, blank=True),
        tool=str(value.get("tool") or value.get("name") or ""),
        call_id=str(value.get("call_id") or value.get("tool_call_id") or ""),
    )


def read_text_part(value: object, where: str, key: str) -> str:
    if isinstance(value, Mapping) and value.get("type") == "text" and isinstance(value.get("text"), str):
        extras = [field for name, field in value.items() if name not in ("type", "text", "cache_control") and field]
        if not extras:  # such as a picture
            return str(value["text"])
    raise BadInput("a part of it is no text", where=where, key=f'"{key}"', expected='{"type": "text", "text": ".."}')


def prompt_row(record: Located) -> Task:
    """TRL's "prompt", a text or messages. The question is the text, or the last message of the user.

    The answers are of the first of ANSWERS that is there; a row without one has none: its reward reads other columns.
    """
    fields = record.lower
    return record.task(
        prompt_question(record, fields.get("prompt"), "prompt"), _answer_key(fields), {"prompt": fields["prompt"]}
    )


def conversation(record: Located) -> Task:
    """TRL's "messages": the last message of the assistant is the completion, all before it the prompt.

    Messages that end with one of the user are a prompt alone.
    """
    fields = record.lower
    messages: Any = fields.get("messages")
    roles = [message.role for message in read_messages(messages, record.where, "messages")]
    if roles[-1] == "user":
        return record.task(
            prompt_question(record, messages, "messages"), _answer_key(fields), {"prompt": list(messages)}
        )
    if "assistant" not in roles[1:]:
        raise BadInput("no message of the assistant after a prompt", where=record.where, key='"messages"')
    last = len(roles) - 1 - roles[::-1].index("assistant")
    more = {"prompt": list(messages[:last]), "completion": list(messages[last : last + 1])}
    return record.task(prompt_question(record, messages[:last], "messages"), _answer_key(fields), more)


def prompt_question(record: Located, prompt: Any, key: str) -> str:
    """What a prompt asks. Raises BadInput for one without a message of the user, or without a word in it."""
    if isinstance(prompt, str):
        refuse_packed(prompt, record.where, key)
        return record.value_text(prompt, key)
    questions = [message.content for message in read_messages(prompt, record.where, key) if message.role == "user"]
    if not questions or not questions[-1].strip():
        raise BadInput("holds no question", where=record.where, key=f'"{key}"')
    return questions[-1].strip()


def turns_before(task: Task, *, shown: bool = False) -> tuple[Message, ...]:
    """What the conversation of a task's row has before the question; () for a row without one.

    The conversation is "prompt", where that is a list of messages, else "messages". shown: what follows the question in
    "messages" is a demonstration. Raises BadInput for what cannot be read, and where something follows the question.
    """
    before, after = _turns_around_question(task)
    if after and not (shown and _messages_of_column(task, "messages")):
        problem = f"ends in a message of the {after[-1].role}"
        raise BadInput(problem, where=task.task_id, key='"prompt"', expected="the question of the user at its end")
    return tuple(turn for turn in before if turn.role != "system" or turn.content.strip())  # an empty one is none


def _turns_around_question(task: Task) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """(before, after) in the prompt. Of "messages" all that follows is an answer."""
    prompt = _messages_of_column(task, "prompt")
    if not prompt:
        messages = _messages_of_column(task, "messages")
        before = messages[: max(0, question_index(messages, task.question))]
        return read_messages(before, task.task_id, "messages") if before else (), ()
    turns = read_messages(prompt, task.task_id, "prompt")
    at = max((at for at, turn in enumerate(turns) if turn.role == "user"), default=len(turns))
    return turns[:at], turns[at + 1 :]


def _messages_of_column(task: Task, key: str) -> Sequence[Any]:
    """The messages of a column, and () where it holds something else."""
    value = next((value for name, value in task.record.items() if name.casefold() == key), None)
    listed = isinstance(value, list | tuple) and all(isinstance(turn, Mapping) and "role" in turn for turn in value)
    return value if isinstance(value, list | tuple) and listed else ()


def question_index(messages: Sequence[Mapping[str, Any]], question: str) -> int:
    """Where a conversation asks a task's question: the last message of the user that is it, else the first that holds
    it, else the last one before the assistant's first (-1 where there is none)."""
    texts = [str(message.get("content")).strip() if message.get("role") == "user" else None for message in messages]
    for at in range(len(texts) - 1, -1, -1):
        if texts[at] == question:
            return at
    for at, text in enumerate(texts):
        if text is not None and question in text:
            return at
    roles = [message.get("role") for message in messages]
    return (roles.index("assistant") if "assistant" in roles else len(roles)) - 1


def refuse_context(task: Task, slots: Collection[str]) -> None:
    """Raises BadInput for a row with a text to which its question refers, and which stands in no prompt. slots: the
    fields of the record that do."""
    for key in CONTEXTS:
        text = task.record.get(key)
        if not isinstance(text, str) or key in slots or len(text.split()) <= FEW_WORDS or text.lstrip().startswith("["):
            continue
        if text.strip() not in full_question(task):
            expected = f"none, or env.name=questions with an env.prompt that shows {{{key}}}"
            raise BadInput("is in no prompt", where=task.task_id, key=f'"{key}"', expected=expected)


def prepend_turns(turns: Sequence[Message], prompt: Sequence[Message]) -> tuple[Message, ...]:
    """An environment's own prompt behind the turns of a row. Two system texts become one message, the row's first."""
    first, *rest = prompt
    if not turns or first.role != "system":
        return (*turns, *prompt)
    if turns[0].role == "system":
        first = replace(first, content=f"{turns[0].content}\n\n{first.content}")
        turns = turns[1:]
    return (first, *turns, *rest)


def full_question(task: Task) -> str:
    """The question with the conversation around it, in one text: what tells two tasks apart, and what a judge reads."""
    before, after = _turns_around_question(task)
    if not before and not after:
        return task.question
    turns = (*before, Message(role="user", content=task.question), *after)
    return "\n\n".join(f"{turn.role}: {turn.content}" for turn in turns)


def _answer_key(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """What reads as an answer key; () for a column that holds something else, which a reward function may read."""
    key = next((name for name in ANSWERS if fields.get(name) is not None), "")
    value = fields.get(key)
    texts = list(answer_texts(value if isinstance(value, list | tuple) else unpack_texts(value)))
    if key == "solution":
        texts = [last_boxed(text) or ("" if _is_worked_solution(text) else text) for text in texts]
    if key == "answer":
        texts = [text.rpartition(FINAL)[2].strip() for text in texts]
    return tuple(text for text in texts if text)


def unpack_texts(value: object) -> list[Any]:
    """[value], or the texts of a list of texts that was written into a text, as JSON or as Python writes it."""
    if isinstance(value, str) and value.strip().startswith(('["', "['")):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            listed = ast.literal_eval(value.strip())
            if isinstance(listed, list) and listed and all(isinstance(text, str) for text in listed):
                return listed
    return [value]


def _is_worked_solution(solution: str) -> bool:
    """Several lines, or sentences: how an answer was found, and no answer that anything could be equal to."""
    return "\n" in solution or (len(solution.split()) > SHORT and ". " in solution)


def answer_texts(values: Sequence[object]) -> tuple[str, ...]:
    """Texts and numbers as texts; () where one of them is neither, and a reward function may read them."""
    texts = []
    for answer in (value for value in values if value is not None):
        if isinstance(answer, str):
            texts.append(answer.strip())
        elif isinstance(answer, int | float) and not isinstance(answer, bool) and math.isfinite(answer):
            texts.append(number_text(answer))
        else:
            return ()
    return tuple(texts)
