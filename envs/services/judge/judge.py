"""A judge: a request becomes a prompt, the prompt an answer (cached, shared, waited for), the answer a verdict.

All of it in this process, or by `rlsys serve judge`, which has the model, the prompts and the cache.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from envs.services.endpoint import Chat, Choice, Endpoint, Question
from envs.services.json_client import JsonClient
from envs.services.judge.cache import Cache
from envs.services.judge.config import JudgeConfig
from envs.services.judge.kinds import KINDS
from envs.services.judge.request import Asks, Judged, JudgeRequest
from envs.services.judge.templates import Prompts, check
from envs.services.secrets import read_secret
from rlsys.errors import BadInput
from rlsys.types import Message


class Judge(Asks):
    """Owns its `chat`."""

    def __init__(self, chat: Chat, config: JudgeConfig) -> None:
        """Raises BadInput for prompts or a cache file that cannot be used."""
        super().__init__(config)
        self._chat = chat
        self._prompts = Prompts(config.prompts)
        self._cache = Cache(config.cache_size, config.cache_file)
        self.verdicts: Counter[str] = Counter()  # "kind value"; the value is "unparsable" without one, or "cut"

    @property
    def model(self) -> str:
        return self._chat.model

    @property
    def broken(self) -> bool:
        """Whether a restart of this process may help: a model of its own answers nobody."""
        return self._chat.own and self.stats().breaker_open

    async def close(self) -> None:
        await self._cache.close()
        await self._chat.close()

    async def _judged(self, request: JudgeRequest, seed: int) -> Judged:
        """Samples at `retry_temperature`. An answer that was cut is not kept: another limit may let it end."""
        prompt = self._prompts.render(request)
        kind = KINDS[request.kind]
        max_tokens = self._config.max_tokens or kind.max_tokens
        temperature = self._config.retry_temperature if seed else 0.0
        asked = [self._chat.where, self._chat.model, request.kind, prompt, max_tokens, temperature, seed]
        key = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        text, cut = await self._cache.get(key), False
        known = text is not None
        if text is None:
            messages = (Message(role="user", content=prompt),)
            question = Question(messages=messages, max_tokens=max_tokens, temperature=temperature, seed=seed)
            choice: Choice = await self._guard(question)
            text, cut = choice.text, choice.truncated
            if not cut:
                await self._cache.put(key, text)
        first = self._prompts.first_counts(request.kind)
        verdict = kind.read(text, first=first) if not cut else None
        free = not kind.values  # an answer of its own words
        value = "cut" if cut else "unparsable" if verdict is None else "read" if free else verdict.value
        self.verdicts[f"{request.kind} {value}"] += 1
        return Judged(verdict=verdict, text=text, cached=known, cut=cut, first=first)

    async def _call(self, question: Question) -> Choice:
        return await self._chat.complete(question)


class JudgeClient(Asks):
    """Waits for a service that is being restarted, like a `Judge` for its model."""

    def __init__(self, url: str, token: str | None, config: JudgeConfig, *, proxy: bool = True) -> None:
        """`proxy`: whether the machine's is used to get there."""
        super().__init__(config)
        self._proxy = proxy
        self._clients: list[JsonClient] = []  # the last one is asked
        self.connect(url, token)

    def connect(self, url: str, token: str | None) -> None:
        """Ask there from now on, those who wait for an answer too."""
        self._clients.append(JsonClient(url, token, proxy=self._proxy))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _judged(self, request: JudgeRequest, seed: int) -> Judged:
        check(request)
        body = {"kind": request.kind, "fields": dict(request.fields), "seed": seed}
        judged: Judged = await self._guard(json.dumps(body, sort_keys=True))
        return judged

    async def _call(self, body: str) -> Judged:
        asked = json.loads(body)
        return read_answer(asked["kind"], await self._clients[-1].post("/judge", asked))


def read_answer(kind: str, answer: Any) -> Judged:
    """The verdict is read again from the judge's text, so that client and service cannot disagree."""
    text = answer.get("text") if isinstance(answer, Mapping) else None
    if not isinstance(text, str):
        raise ValueError('the service\'s answer has no "text"')
    cached, cut, first = (bool(answer.get(name)) for name in ("cached", "cut", "first"))
    verdict = KINDS[kind].read(text, first=first) if not cut else None
    return Judged(verdict=verdict, text=text, cached=cached, cut=cut, first=first)


def open_judge(config: JudgeConfig) -> Asks:
    """The judge at `config.endpoint` or `config.service`. Raises BadInput without one, or without its key."""
    key = read_secret("judge.key_env", config.key_env)
    if config.service is not None:
        return JudgeClient(config.service, key, config)
    if config.endpoint is None or config.model is None:
        raise BadInput(where="judge", expected="judge.endpoint and judge.model, or judge.service")
    return Judge(Endpoint(config.endpoint, config.model, key), config)
