"""A model behind an OpenAI-compatible endpoint: POST /chat/completions, one user message, one answer."""

from __future__ import annotations

import json
import os
from typing import Any, Protocol

import aiohttp

from envs.services.address import is_loopback
from envs.services.guard import ToolBusy, ToolRefused
from envs.services.retriever.client import BUSY, RETRIED, retry_after
from rlsys.errors import BadInput

MAX_BYTES = 4_000_000  # of an answer


class Chat(Protocol):
    """A model that answers one prompt. One attempt: deadlines and retries are the caller's."""

    model: str  # enters the cache's key
    own: bool  # it runs in this process: where it does not answer, a restart may help

    async def complete(self, prompt: str, *, max_tokens: int, temperature: float, seed: int) -> str:
        """Raises ToolRefused for a prompt that it cannot take, ToolBusy, or any error of the way there."""
        ...

    async def close(self) -> None: ...


class Poster:
    """JSON in, JSON out, to one server. The key travels in a header and stands in no error text."""

    def __init__(self, url: str, key: str | None) -> None:
        self._url = url.rstrip("/")
        self._key = key
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Poster({self._url!r})"

    async def post(self, path: str, content: Any) -> Any:
        """Raises ToolRefused, ToolBusy, ConnectionError, or ValueError for what is no JSON."""
        body = bytearray()
        try:
            async with self._open().post(self._url + path, json=content, allow_redirects=False) as response:
                async for chunk in response.content.iter_chunked(65_536):
                    body += chunk
                    if len(body) > MAX_BYTES:
                        raise ValueError(f"{self._url}: an answer of more than {MAX_BYTES} bytes")
                status, headers = response.status, response.headers
        except aiohttp.ClientError as error:
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"{self._url}: no answer") from None
            # aiohttp's own errors carry the request with its headers.
            raise ConnectionError(f"{self._url}: {type(error).__name__}") from None
        if status in BUSY:
            raise ToolBusy(f"{self._url} answered {status}", retry_after(headers))
        if status in (401, 403):
            raise ConnectionError(f"{self._url} answered {status}: is the key valid?")
        if 400 <= status < 500 and status not in RETRIED:
            raise ToolRefused(f"{self._url} answered {status}: {self._shown(body)}")
        if status != 200:
            raise ConnectionError(f"{self._url} answered {status}")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError(f"{self._url}: the answer is no JSON") from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _shown(self, body: bytes | bytearray) -> str:
        text = " ".join(body[:4096].decode("utf-8", "replace").split())
        return (text.replace(self._key, "***") if self._key else text)[:300]

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
            # A proxy of the machine is for the web, not for loopback. Deadlines are the guard's.
            self._session = aiohttp.ClientSession(
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
                trust_env=not is_loopback(self._url),
            )
        return self._session


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


def read_key(name: str | None) -> str | None:
    """The key in the environment variable `name`. Raises BadInput, never with the key's text."""
    if name is None:
        return None
    key = os.environ.get(name, "").strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        state = "is not set" if name not in os.environ else "is empty or holds what no key has"
        raise BadInput(f"judge.key_env={name!r}: the environment variable {state}")
    return key
