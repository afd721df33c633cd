"""The judge: a request becomes a prompt, the prompt an answer (cached, shared, waited for), the answer a verdict."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from dataclasses import dataclass

from envs.services.judge.cache import Cache
from envs.services.judge.client import JudgeClient
from envs.services.judge.config import JudgeConfig
from envs.services.judge.endpoint import Chat, EndpointChat
from envs.services.judge.kinds import KINDS
from envs.services.judge.patience import Patient
from envs.services.judge.request import Asks, Judged, JudgeRequest
from envs.services.judge.templates import Prompts
from envs.services.secrets import read_secret
from envs.services.stats import ToolStats
from rlsys.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    prompt: str
    max_tokens: int
    temperature: float
    seed: int
    key: str  # of all of it, the kind and the model


class Judge:
    """`await judge.ask(request)`, for one event loop. Owns its `chat`."""

    def __init__(self, chat: Chat, config: JudgeConfig) -> None:
        """Raises BadInput for prompts or a cache file that cannot be used."""
        self._chat = chat
        self._config = config
        self._prompts = Prompts(config.prompts)
        self._cache = Cache(config.cache_size, config.cache_file)
        self._patient: Patient[_Question, str] = Patient(self._complete, config, key=lambda question: question.key)
        self.verdicts: Counter[str] = Counter()  # "kind value"; the value is "unparsable" without one
        self._asked = self._cached = 0

    @property
    def model(self) -> str:
        return self._chat.model

    @property
    def broken(self) -> bool:
        """Whether a restart of this process may help: a model of its own answers nobody."""
        return self._chat.own and self._patient.out

    async def ask(self, request: JudgeRequest, seed: int = 0) -> Judged:
        """Seed 0 is greedy; another one samples, at `retry_temperature`. Raises BadRequest and ToolFailed."""
        started = time.monotonic()
        question = self._question(request, seed)
        self._asked += 1
        known = await self._cache.get(question.key)
        if known is None:
            text = await self._patient(question)
            await self._cache.put(question.key, text)
        else:
            self._cached += 1
            text = known
        verdict = KINDS[request.kind].read(text)
        free = verdict is not None and not KINDS[request.kind].values  # an answer of its own words
        value = "unparsable" if verdict is None else "read" if free else verdict.value
        self.verdicts[f"{request.kind} {value}"] += 1
        return Judged(verdict=verdict, text=text, cached=known is not None, seconds=time.monotonic() - started)

    def stats(self) -> ToolStats:
        """Answers without a verdict are among the errors, as `unparsable`."""
        unparsable = sum(count for name, count in self.verdicts.items() if name.endswith(" unparsable"))
        return self._patient.stats(calls=self._asked, cached=self._cached, unparsable=unparsable)

    async def close(self) -> None:
        await self._cache.close()
        await self._chat.close()

    def _question(self, request: JudgeRequest, seed: int) -> _Question:
        prompt = self._prompts.render(request)
        max_tokens = self._config.max_tokens or KINDS[request.kind].max_tokens
        temperature = self._config.retry_temperature if seed else 0.0
        content = json.dumps([self._chat.model, request.kind, prompt, max_tokens, temperature, seed])
        key = hashlib.sha256(content.encode()).hexdigest()
        return _Question(prompt=prompt, max_tokens=max_tokens, temperature=temperature, seed=seed, key=key)

    async def _complete(self, question: _Question) -> str:
        return await self._chat.complete(
            question.prompt, max_tokens=question.max_tokens, temperature=question.temperature, seed=question.seed
        )


def open_judge(config: JudgeConfig) -> Asks:
    """The judge at `config.endpoint` or `config.service`. Raises BadInput without one, or without its key."""
    key = read_secret("judge.key_env", config.key_env)
    if config.service is not None:
        return JudgeClient(config.service, key, config)
    if config.endpoint is None or config.model is None:
        raise BadInput("judge: expected judge.endpoint and judge.model, or judge.service")
    return Judge(EndpointChat(config.endpoint, config.model, key), config)
