"""The environment contract.

A `World` makes tasks and, for each, single-use `Env` objects. Both live in message space: they know nothing of
Ray, vLLM or tokens. One environment is one file in `envs/worlds`, one line in `envs.WORLDS`, and a YAML under
`configs/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from envs.tasks.splits import Split
from rlsys.errors import BadInput
from rlsys.rollout import Env as Env
from rlsys.state import HasState as HasState
from rlsys.types import Message, Task
from rlsys.types import Step as Step

if TYPE_CHECKING:
    from envs.services.stats import ToolStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A worked episode for supervised training: the prompt, then assistant and environment messages in turn."""

    task: Task
    messages: tuple[Message, ...]
    env: Env | None = None  # whose episode it is, where that is not `World.env(task)`


class Service(Protocol):
    """A running server. Its actor asks whether it lives, and stops it."""

    @property
    def url(self) -> str: ...
    def stop(self) -> object: ...


class Tool(Protocol):
    """What a world's episodes call, where it holds processes or connections."""

    def stats(self) -> Mapping[str, ToolStats]: ...

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class World:
    """The tasks of an environment and the way to play them. Built from its config alone, in any process.

    Making it raises BadInput when a source of its config is missing or holds a record that cannot be used. It has
    `split` and `env`. Those who only play are given each episode's task: there the tasks of `split` are not read.
    Everything below them is optional: the methods here say no, or do nothing.
    """

    split: Split  # set by `__init__`, mostly with `envs.tasks.splits.split_tasks`
    max_turns: int = 1  # model messages per episode
    reply_s: float = 30.0  # that the answer to one of them may take, with its tools
    own_prompts: bool = False  # what plays decides what is asked, as an agent does: `env(task)` does not show it
    tags: Sequence[str] = ()  # each becomes one token where a tokenizer is trained
    write_answer: Callable[[str], str] = str  # as a model would write one, where `texts` has no demonstration to show
    service: str = ""  # names the server to start: worlds with the same name share one; "" for none
    service_gpus: int = 0  # that it takes for itself where there are any; without, it sees none
    service_threads: int | None = 1  # its CPUs; None: as many as an engine has, 1 on a CPU and 8 on GPUs
    tool: Tool | None = None  # tool_stats, check and close are about it

    def tasks(self, split: str) -> Sequence[Task]:
        """`train`, `held_out` (disjoint from train, same in every run of a seed) or `all`. Raises BadInput."""
        return self.split.tasks(split)

    def env(self, task: Task) -> Env:
        raise NotImplementedError(f"{type(self).__name__} has no env(task)")

    async def open_env(self, task: Task) -> Env:
        """The episode that is played: `env(task)`, or one whose first messages need something awaited first."""
        env = self.env(task)
        if hasattr(env, "begin"):
            raise TypeError(f"{type(env).__name__}.begin() is never called: await in {type(self).__name__}.open_env")
        return env

    def level(self, task: Task) -> str:
        """How hard a task is, in a word or two, for `curriculum.name`; "all" where nothing tells."""
        return "all"

    def demonstration(self, task: Task, seed: int) -> Demonstration:
        """How the task is solved, well or badly, for `sft` stages. Raises BadInput for a task that cannot be shown."""
        raise BadInput(f"{type(self).__name__} has no demonstrations", where=task.task_id)

    def texts(self, limit: int) -> Iterator[str]:
        """At most `limit` texts of the training tasks, for the tokenizer of a policy that is built from nothing."""
        return islice((text for task in self.tasks("train") for text in self.texts_of(task)), limit)

    def texts_of(self, task: Task) -> list[str]:
        """The messages of its demonstration; of a task without one the prompt, and what `answers_of` gives."""
        try:
            return [message.content for message in self.demonstration(task, 0).messages]
        except BadInput:  # still a task to train on
            return [*(message.content for message in self.env(task).first_messages()), *self.answers_of(task)]

    def answers_of(self, task: Task) -> Sequence[str]:
        """The task's answers as a model would write them."""
        return [self.write_answer(answer) for answer in task.answers]

    def prepare(self) -> None:
        """Find out what prompts take from elsewhere, such as the tools of a server. May block. Raises BadInput."""

    def check_service(self) -> None:
        """Try, where the server is going to run, that what it reads is there. Raises BadInput."""

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        """Start the server that `service` names and return when it answers. Called in a separate process."""
        raise NotImplementedError(f"{type(self).__name__} names the server {self.service!r} and cannot start it")

    def connect(self, url: str, token: str) -> None:
        """Where the episodes of this process find the server."""

    def tool_stats(self) -> Mapping[str, ToolStats]:
        """By tool, counted since this world was made in this process."""
        return self.tool.stats() if self.tool is not None else {}

    async def check(self) -> None:
        """Try, before a run starts, that the tools can be had on this machine. Raises BadInput."""
        if self.tool is not None:
            await self.tool.check()

    async def close(self) -> None:
        """End the processes and connections of the tools; the world is not used again."""
        if self.tool is not None:
            await self.tool.close()


def find_demonstrable(world: World) -> tuple[list[Task], list[str]]:
    """The training tasks that have a demonstration, and for each of the others why it has none."""
    tasks: list[Task] = []
    left_out: list[str] = []
    world.prepare()  # a server that is not there is no task's fault, and is waited for once
    for task in world.tasks("train"):
        try:
            world.demonstration(task, 0)
            tasks.append(task)
        except BadInput as error:
            left_out.append(str(error))
    return tasks, left_out
