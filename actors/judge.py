"""A judge with its own vLLM engine, and the service that the driver keeps alive with it."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Literal, Optional

from starlette.applications import Starlette

from actors.alone import START_S, spec_alone
from actors.engine import Engine
from actors.renderer import ChatRenderer
from actors.specs import EngineSpec, PromptTooLong
from envs.services.endpoint import Chat, Choice, Endpoint, Question
from envs.services.guard import ToolRefused
from envs.services.http import HttpService
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import Judge
from envs.services.judge.server import JudgeServerConfig, make_judge_app
from envs.services.secrets import read_secret
from rlsys.config.engine import EngineConfig
from rlsys.errors import BadInput, require, require_bounds
from rlsys.rollout import TurnRequest
from rlsys.types import TurnStop


class EngineChat:
    """vLLM in this process: questions under way share one engine, which batches them token by token."""

    own = True

    def __init__(self, engine: Engine, renderer: ChatRenderer) -> None:
        self.model, self.where = engine.spec.model_path, ""
        self._engine = engine
        self._renderer = renderer
        self._numbers = itertools.count()

    @classmethod
    async def start(cls, spec: EngineSpec) -> EngineChat:
        """Blocks the event loop for the half minute an engine takes. Raises BadInput without a usable tokenizer."""
        renderer = ChatRenderer(spec.model_path).usable()
        return cls(await Engine.start(spec), renderer)

    @property
    def failed(self) -> bool:
        return self._engine.failure is not None

    async def complete(self, question: Question) -> Choice:
        """Raises ToolRefused for a prompt that fills the context."""
        request = TurnRequest(
            max_tokens=question.max_tokens, temperature=question.temperature, top_p=question.top_p, seed=question.seed
        )
        ids = self._renderer.prompt_ids(list(question.messages))
        try:
            completion = await self._engine.generate(ids, request, f"judge-{next(self._numbers)}")
        except PromptTooLong as error:
            raise ToolRefused(str(error)) from error
        if completion.stop is TurnStop.ABORT:
            raise ConnectionError("the engine aborted the request")
        return Choice(text=completion.text, truncated=completion.stop is TurnStop.LENGTH)

    async def close(self) -> None:
        self._engine.stop()


@dataclass(frozen=True, kw_only=True)
class JudgeServiceConfig:
    """The judge service of a run, or of `rlsys serve judge`."""

    judge: JudgeConfig = field(default_factory=JudgeConfig)
    """Configuration of the judge. With `model` alone: vLLM serves it in this process. With `endpoint`: all workers
    share one cache and one rate limit."""
    server: JudgeServerConfig = field(default_factory=JudgeServerConfig)
    engine: EngineConfig = field(
        # Verdicts of 300 tokens on 1,024 episodes take a 7B, at 60 tokens a second each, 160 s of a step of 745.
        default_factory=lambda: EngineConfig(max_model_len=16384, max_num_seqs=32, kv_cache_mb=2048)
    )
    """Configuration of the engine for a judge with `model` alone. A context longer than the model's own is reduced to
    that."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the engine. auto: a GPU if the process that serves has one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number format of the model's weights. auto: float32 on a CPU, bfloat16 on a GPU."""
    threads: Optional[int] = None
    """Number of CPU threads of the engine. null: 1 on a CPU, 8 on GPUs."""

    def __post_init__(self) -> None:
        require(self.judge.service is None, "judge.service", self.judge.service, "null: this is the service")
        require_bounds(self, "judge.", "at least 1, or null", "threads")


def start_judge(config: JudgeServiceConfig, *, host: str, port: int, token: str | None) -> HttpService:
    """Return when it answers. Raises BadInput for a key, prompts, a cache or a model that cannot be used."""
    service = make_service(config, host=host, port=port, token=token)
    service.start()
    return service


def make_service(config: JudgeServiceConfig, *, host: str, port: int, token: str | None) -> HttpService:
    """The service, its port taken, not started; its model is opened in its own event loop. Raises BadInput."""
    judge = config.judge
    if judge.model is None:
        raise BadInput(key="judge.model", expected="a model folder or hub name, or judge.endpoint and its model's name")
    model, endpoint = judge.model, judge.endpoint
    key = read_secret("judge.key_env", judge.key_env)

    if endpoint is None:  # what the engine cannot take at once waits here, where it can still be counted and cancelled
        judge = replace(judge, max_concurrent=config.engine.max_num_seqs)

    @asynccontextmanager
    async def opened() -> AsyncIterator[Starlette]:
        chat: Chat
        if endpoint is not None:
            chat = Endpoint(endpoint, model, key)
        else:
            chat = await EngineChat.start(engine_spec(config, model))
        core = Judge(chat, judge)
        try:
            yield make_judge_app(core, config.server, token)
        finally:
            await core.close()

    waits = {"arrive_s": config.server.arrive_s, "stop_s": min(judge.outage_s, 30.0), "start_s": START_S}
    return HttpService("judge", opened, host=host, port=port, max_body_bytes=config.server.max_body_kb << 10, **waits)


def engine_spec(config: JudgeServiceConfig, model: str) -> EngineSpec:
    return spec_alone(
        config.engine, model, device=config.device, dtype=config.dtype, threads=config.threads, gpus=config.judge.gpus
    )
