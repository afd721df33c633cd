"""The prompts of a data set, played as they stand, in one message and without a tool: what TRL and verl train on.

    "prompt" of the record      what the model sees
    a list of messages          the list, through the chat template
    a text                      the text, without a template, as in TRL
    none                        the task's question as a user's message

What the model writes is its answer, whatever it is; the reward judges it.
"""

from __future__ import annotations

from dataclasses import dataclass

from envs.base import Demonstration, World
from envs.episode import OneMessage
from envs.tasks.config import TaskConfig
from envs.tasks.conversation import read_messages, refuse_context, turns_before
from envs.tasks.splits import split_tasks
from envs.worlds.questions import find_solution
from rlsys.asked import normalize_messages
from rlsys.errors import BadInput
from rlsys.examples import refuse_echo, require_learnable, split_answer
from rlsys.message_keys import refuse_packed
from rlsys.row_keys import refuse_columns
from rlsys.types import Message, Task


@dataclass(frozen=True, kw_only=True)
class PromptsConfig(TaskConfig):
    name: str = "prompts"
    system: str = ""
    """System message before a prompt of messages that has none. Empty: none."""


class PromptsWorld(World):
    def __init__(self, config: PromptsConfig) -> None:
        if config.data is None:
            raise BadInput(key="env.data", found=None, expected="a file or data set: no prompts are made up")
        self._config = config
        self.split = split_tasks(
            config,
            make=lambda count, held_out: (),
            same=lambda task: normalize_messages(self._prompt(task)),
            what="prompt",
            check=self._prompt,
            asked=lambda task: "\n".join(message.content for message in self._prompt(task)),
        )

    def env(self, task: Task) -> OneMessage:
        return OneMessage(self._prompt(task), (), lambda text: True)

    def _prompt(self, task: Task) -> tuple[Message, ...]:
        prompt = task.record.get("prompt")
        if isinstance(prompt, str):
            refuse_packed(prompt, task.task_id, "prompt")
            if self._config.system:
                without = '"": a prompt that is a text has no message before it'
                raise BadInput(where=task.task_id, key="env.system", found=self._config.system[:40], expected=without)
            return (Message(role="user", content=prompt, inline=True),)
        if prompt is None:
            refuse_context(task, ())
            messages = (*turns_before(task), Message(role="user", content=task.question))
        else:
            messages = read_messages(prompt, task.task_id, "prompt")
        if messages[-1].role == "assistant":
            raise BadInput("ends in a message of the assistant", where=task.task_id, key='"prompt"')
        adds_system = self._config.system and messages[0].role != "system"
        return (Message(role="system", content=self._config.system), *messages) if adds_system else messages

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """The record's "completion", a text or messages, else its worked solution. A completion may repeat its prompt.

        Raises BadInput without one, and for one that cannot be learned.
        """
        refuse_columns(task.record, task.task_id, taught=True)
        prompt, completion = self._prompt(task), task.record.get("completion")
        if isinstance(completion, str):
            replies: tuple[Message, ...] = (Message(role="assistant", content=completion),)
        elif completion is not None:
            replies = read_messages(completion, task.task_id, "completion")
        else:
            replies = (Message(role="assistant", content=find_solution(task)),)
        refuse_echo(task.record.get("prompt", task.question), completion, task.task_id)
        full_prompt, replies = split_answer(prompt, replies, task.task_id)
        if full_prompt != prompt:
            raise BadInput("a completion that begins with another prompt", where=task.task_id, key='"completion"')
        require_learnable(replies, task.task_id)
        return Demonstration(task=task, messages=(*prompt, *replies))
