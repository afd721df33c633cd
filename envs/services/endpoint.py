"""A chat model: what it is asked and says, and one at an OpenAI-compatible address, which judges and teachers ask.

One attempt: deadlines and retries are the guard's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from envs.services.json_client import JsonClient
from rlsys.types import Message

BROKEN_OFF = ("abort", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked, and how the answer is sampled."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    seed: int = 0  # 0 sends none: not every server knows it, and a greedy answer needs none
    top_p: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What it said."""

    text: str
    thought: str = ""  # where the server sends it apart from the answer
    truncated: bool = False  # at `max_tokens`


class Chat(Protocol):
    """A model that answers one question."""

    model: str  # enters the key of a cache, as `where` does: servers call different models by one name
    where: str  # its address; "" in this process
    own: bool  # it runs in this process: where it does not answer, a restart may help

    @property
    def failed(self) -> bool:
        """Whether it is known that only a restart of this process helps."""
        ...

    async def complete(self, question: Question) -> Choice:
        """Raises ToolRefused for a prompt that it cannot take, ToolBusy, or any error of the way there."""
        ...

    async def close(self) -> None: ...


class Endpoint:
    """For one event loop; the session opens with the first question."""

    own = failed = False

    def __init__(self, url: str, model: str, key: str | None, **options: Any) -> None:
        """options: of `JsonClient`."""
        self.model, self.where = model, url.rstrip("/")
        self._client = JsonClient(url, key, **options)

    async def complete(self, question: Question) -> Choice:
        """Raises what `JsonClient.post` does, and ConnectionError for an answer that the server broke off."""
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": each.role, "content": each.content} for each in question.messages],
            "max_tokens": question.max_tokens,
            "temperature": question.temperature,
        }
        asked |= {"top_p": question.top_p} if question.top_p != 1 else {}
        asked |= {"seed": question.seed} if question.seed else {}
        return read_choice(await self._client.post("/chat/completions", asked))

    async def close(self) -> None:
        await self._client.close()


def read_choice(answer: Any) -> Choice:
    """The first choice; without text where the model gave none. Half a surrogate pair, which is no text, becomes `?`.

    Raises ConnectionError for an answer that the server broke off, ValueError for anything else.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and first.get("finish_reason") in BROKEN_OFF:
        raise ConnectionError("the endpoint broke off its answer")  # half a judgement is none
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content", "") if isinstance(message, dict) else 0
    if not isinstance(first, dict) or not isinstance(message, dict) or not isinstance(content, str | None):
        raise ValueError('the answer is not {"choices": [{"message": {"content": ".."}}]}')
    thoughts = (message.get(key) for key in ("reasoning_content", "reasoning"))
    thought = next((each for each in thoughts if isinstance(each, str) and each), "")
    text, thought = (each.encode("utf-8", "replace").decode() for each in (content or "", thought))
    return Choice(text=text, thought=thought, truncated=first.get("finish_reason") == "length")
