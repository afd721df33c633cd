"""A model behind an OpenAI-compatible endpoint: POST /chat/completions, one user message, one answer."""

from __future__ import annotations

from typing import Any, Protocol

from envs.services.poster import Poster


class Chat(Protocol):
    """A model that answers one prompt. One attempt: deadlines and retries are the caller's."""

    model: str  # enters the cache's key
    own: bool  # it runs in this process: where it does not answer, a restart may help

    async def complete(self, prompt: str, *, max_tokens: int, temperature: float, seed: int) -> str:
        """Raises ToolRefused for a prompt that it cannot take, ToolBusy, or any error of the way there."""
        ...

    async def close(self) -> None: ...


class EndpointChat:
    """For one event loop; the session opens with the first question."""

    own = False

    def __init__(self, url: str, model: str, key: str | None) -> None:
        self.model = model
        self._poster = Poster(url, key)

    async def complete(self, prompt: str, *, max_tokens: int, temperature: float, seed: int) -> str:
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": temperature,
        }
        if seed:  # not every server knows it, and a greedy answer needs none
            asked["seed"] = seed
        return read_completion(await self._poster.post("/chat/completions", asked))

    async def close(self) -> None:
        await self._poster.close()


def read_completion(answer: Any) -> str:
    """The text of the first choice; "" where the model gave none.

    Raises ConnectionError for an answer that the server broke off, ValueError for anything else.
    """
    choices = answer.get("choices") if isinstance(answer, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and first.get("finish_reason") in ("abort", "error"):
        raise ConnectionError("the endpoint broke off its answer")  # half a judgement is none
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content", "") if isinstance(message, dict) else 0
    if content is not None and not isinstance(content, str):
        raise ValueError('the answer is not {"choices": [{"message": {"content": ".."}}]}')
    return content or ""
