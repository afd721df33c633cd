"""A trained model behind OpenAI's chat completions and responses, with its template, its tools and its ends.

It answers what `env.name=agent` answers (`envs/agents/app.py`), and samples as it is asked to.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cachetools import LRUCache
from starlette.applications import Starlette

from actors.alone import START_S
from actors.engine import Engine
from actors.renderer import ChatRenderer
from actors.specs import EngineFailed, EngineSpec, PromptTooLong
from envs.agents.app import MAX_BODY, make_chat_app
from envs.agents.chat import ChatAnswer, ChatRequest, Refused, history_key, make_chat_answer, split_history
from envs.services.http import HttpService
from rlsys.errors import BadInput
from rlsys.rendering import sampled_report
from rlsys.rollout import TurnRequest
from rlsys.types import Completion, Ints, Message, TurnStop

ENTRY_BYTES = 2000  # of one without its tokens and texts
REMEMBERED = 256 << 20  # bytes of conversations that may go on


@dataclass(frozen=True, slots=True)
class SampledReply:
    context: Ints
    completion: Completion
    messages: tuple[Message, ...]  # up to and with the completion

    @property
    def nbytes(self) -> int:
        texts = sum(len(message.content) for message in self.messages)
        return self.context.nbytes + self.completion.token_ids.nbytes + 2 * texts + ENTRY_BYTES


class PolicyChat:
    """vLLM in this process."""

    overrides = False

    def __init__(self, engine: Engine, renderer: ChatRenderer, model: str, token: str | None) -> None:
        self.model, self._engine, self._renderer = model, engine, renderer
        self._token = None if token is None else token.encode()
        self._numbers = itertools.count()
        self._replies: LRUCache[Any, SampledReply] = LRUCache(REMEMBERED, lambda reply: reply.nbytes)

    @property
    def failed(self) -> bool:
        return self._engine.failure is not None

    def admit(self, key: str) -> None:
        if self._token is not None and not hmac.compare_digest(key.encode(errors="replace"), self._token):
            raise Refused(401, "a bearer token is needed")

    def note_refused(self, key: str) -> None:
        pass

    async def answer(self, key: str, request: ChatRequest) -> list[ChatAnswer]:
        ids, messages = self._context(request)
        seed = int(request.sampling.get("seed", secrets.randbits(31)))
        answers = (self._answer(ids, messages, request, seed + at) for at in range(request.choices))
        return list(await asyncio.gather(*answers))

    def _context(self, request: ChatRequest) -> tuple[Ints, tuple[Message, ...]]:
        """Its tokens, and the messages that they are: behind those that were sampled where the history was answered
        here, as an episode goes on. What a stop string has ended lacks it in the history."""
        offer, (history, replies) = request.settings.offer, split_history(request.messages)
        reply = self._replies.get(history_key(history, offer))
        try:
            if reply is None:
                return np.asarray(self._renderer.prompt_ids(request.messages, offer), np.int32), request.messages
            continued = self._renderer.extend(reply.context, reply.completion, reply.messages, replies, None, offer)
        except BadInput as error:
            raise Refused(400, str(error)) from error
        return continued.context_ids, (*reply.messages, *continued.replies)

    async def _answer(self, ids: Ints, messages: tuple[Message, ...], request: ChatRequest, seed: int) -> ChatAnswer:
        settings, spec = request.settings, self._engine.spec
        offer = settings.offer
        asked = TurnRequest(
            max_tokens=settings.max_tokens or spec.max_model_len,
            temperature=request.sampling.get("temperature", 1.0),
            top_p=request.sampling.get("top_p", 1.0),
            seed=seed % 2**31,
            stop=settings.stop,
            offer=offer,
        )
        try:
            completion = await self._engine.generate(ids, asked, f"policy-{next(self._numbers)}")
        except PromptTooLong as error:
            raise Refused(400, str(error)) from error
        except EngineFailed as error:
            raise Refused(503, f"the engine is gone: {error}") from error
        if completion.stop is TurnStop.ABORT:
            raise Refused(503, "the engine aborted the request")
        calls = self._renderer.read_calls(completion.text, offer) if offer is not None else ()
        numbered = [replace(call, call_id=f"{secrets.randbelow(10**9):09d}") for call in calls]
        sampled = sampled_report(completion, len(ids), self._renderer if settings.logprobs else None)
        answer = make_chat_answer(completion.text, numbered, settings, sampled)
        reply = SampledReply(ids, completion, (*messages, Message(role="assistant", content=completion.text)))
        self._replies[history_key((*request.messages, answer.message), offer)] = reply
        return answer


def make_policy_service(
    spec: EngineSpec,
    name: str,
    *,
    template_args: Mapping[str, Any],
    host: str,
    port: int,
    token: str | None,
    arrive_s: float,
) -> HttpService:
    """The service, its port taken, not started; the model is opened in its own event loop. Raises BadInput."""
    renderer = ChatRenderer(spec.model_path).under(template_args).usable()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Starlette]:
        engine = await Engine.start(spec)
        try:
            yield make_chat_app(PolicyChat(engine, renderer, name, token))
        finally:
            engine.stop()

    waits = {"arrive_s": arrive_s, "stop_s": 30.0, "start_s": START_S}
    return HttpService("policy", opened, host=host, port=port, max_body_bytes=MAX_BODY, **waits)
