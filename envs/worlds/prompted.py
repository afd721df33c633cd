"""Baselines that are prompted with passages: the environment decides what is searched, whatever the policy writes.

RAG searches the question before the first message. IRCoT does too, and then plays on like a protocol with a tool.
Iter-RetGen goes on searching, with the question and the policy's last message, and each time starts a new context.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from envs.base import Env, Step
from envs.episode import ToolEpisode
from envs.protocols import Answer, Asked, Protocol
from envs.protocols.retrieval import IRCOT, ITER_RETGEN, RAG
from rlsys.types import EpisodeEnd, Message

PROMPTED = (RAG.name, ITER_RETGEN.name, IRCOT.name)  # protocols whose first prompt shows passages for the question

Prompt = tuple[Message, ...]
Search = Callable[[str], Awaitable[str]]


def with_passages(asked: Asked, passages: str) -> Asked:
    """The same prompt with passages between instruction and question."""
    return replace(asked, instruction="\n\n".join(part for part in (asked.instruction, passages) if part))


async def open_prompted_episode(protocol: Protocol, asked: Asked, search: Search) -> Env:
    """An episode of a protocol in PROMPTED."""

    async def retrieve(query: str) -> Prompt:
        return protocol.prompt(with_passages(asked, await search(query)))

    prompt = await retrieve(asked.question)
    if protocol.name == ITER_RETGEN.name:
        return IterRetGenEpisode(prompt, protocol, lambda text: retrieve(" ".join(f"{asked.question} {text}".split())))
    return ToolEpisode(prompt, protocol, search)


class IterRetGenEpisode:
    """Each message but the last is searched with the question, and what is found is the prompt of a new context."""

    def __init__(self, prompt: Prompt, protocol: Protocol, search_again: Callable[[str], Awaitable[Prompt]]) -> None:
        self.stop_strings: Sequence[str] = protocol.stop
        self._prompt, self._protocol, self._search_again = prompt, protocol, search_again

    def first_messages(self) -> Prompt:
        return self._prompt

    async def step(self, text: str, *, turns_left: int) -> Step:
        if turns_left <= 0:
            answered = isinstance(self._protocol.parse(text), Answer)
            return Step(end=EpisodeEnd.ANSWERED if answered else EpisodeEnd.MALFORMED)
        for tag in self._protocol.tags:
            text = text.replace(tag, " ")
        (reply,) = await self._search_again(text)
        return Step(reply=reply, reset_context=True)
