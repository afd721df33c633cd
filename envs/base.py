"""The environment contract.

A `World` makes tasks and, for each, single-use `Env` objects. Both live in message space: they know nothing of
Ray, vLLM or tokens. One environment is one file here, one line in `envs.WORLDS`, and a YAML under `configs/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard

from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, Message, Task

if TYPE_CHECKING:
    from envs.services.stats import ToolStats


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What the world says to one model message: a reply to go on from, or how the episode ended."""

    reply: Message | None = None
    end: EpisodeEnd | None = None  # exactly one of the two is set
    repeated: bool = False  # the same call was made before in this episode
    max_tokens: int | None = None  # the reply is cut to this many tokens
    metrics: Mapping[str, float] = field(default_factory=dict)  # {"errors": 1}: summed, `env/errors` of the row


class Env(Protocol):
    """One episode. Create it, run it, discard it."""

    stop_strings: Sequence[str]  # the engine stops after any of these; the text keeps them

    def first_messages(self) -> tuple[Message, ...]: ...

    async def step(self, text: str, *, turns_left: int) -> Step:
        """Answer the model's message `text`. `turns_left` is how many more messages the policy may write."""
        ...


class World(Protocol):
    """The tasks of an environment and the way to play them. Built from its config alone, in any process."""

    max_turns: int  # model messages per episode

    def tasks(self, split: str) -> Sequence[Task]:
        """`train`, `held_out` (disjoint from train, same in every run of a seed) or `all`. Raises BadInput."""
        ...

    def env(self, task: Task) -> Env: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A worked episode for supervised training: the prompt, then assistant and environment messages in turn."""

    task: Task
    messages: tuple[Message, ...]


class Demonstrator(Protocol):
    """A world that can also show how its tasks are solved, well or badly. Needed by `sft` stages only."""

    def demonstration(self, task: Task, seed: int) -> Demonstration: ...


def demonstrated(world: Any) -> tuple[list[Task], list[str]]:
    """The training tasks of a Demonstrator that have a demonstration, and for each of the others why not."""
    tasks: list[Task] = []
    left_out: list[str] = []
    for task in world.tasks("train"):
        try:
            world.demonstration(task, 0)
            tasks.append(task)
        except BadInput as error:
            left_out.append(str(error))
    return tasks, left_out


class Service(Protocol):
    """A running server. Its actor asks whether it lives, and stops it."""

    url: str

    def stop(self) -> object: ...


class Served(Protocol):
    """A world whose tool is a server: shared by all rollout workers, kept alive by the driver."""

    service: str  # names the server: worlds with the same name share one; "" when the config names a running one

    def start_service(self, *, host: str, port: int, token: str) -> Service:
        """Start the server and return when it answers. Called in a process of its own."""
        ...

    def connect(self, url: str, token: str) -> None:
        """Where the episodes of this process find the server."""
        ...


def is_served(world: object) -> TypeGuard[Served]:
    return bool(getattr(world, "service", ""))


class Tooled(Protocol):
    """A world whose episodes call tools that hold processes or connections."""

    def tool_stats(self) -> Mapping[str, ToolStats]:
        """By tool, counted since this world was made in this process."""
        ...

    async def check(self) -> None:
        """Try, before a run starts, that the tools can be had on this machine. Raises BadInput."""
        ...

    async def close(self) -> None:
        """End processes and connections; the world is not used again."""
        ...


def is_tooled(world: object) -> TypeGuard[Tooled]:
    return hasattr(world, "tool_stats")


class TextSource(Protocol):
    """A world whose text can train a tokenizer. Needed only where a policy is built from nothing."""

    tags: Sequence[str]  # of its dialect: each becomes one token

    def texts(self, limit: int) -> Iterator[str]: ...
