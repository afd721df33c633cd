"""A reference model in a vLLM engine of its own, which all learner ranks ask: `learner.serve_reference`.

    POST /logprobs     {"sequences": [[12, 5, 9], ..]} -> {"logprobs": [[-0.1, -2.3], ..]}: of each token but the first
    GET /health        {"status": "healthy", "model": ".."}; 503 when the engine is gone, which a restart mends

At temperature 1, and under the weights of the folder alone: nothing is ever published to it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from prometheus_client import CollectorRegistry
from pydantic import BaseModel, FailFast
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response

from actors.alone import START_S, longest_context
from actors.engine import Engine
from actors.specs import EngineFailed, EngineSpec, PromptTooLong, make_engine_spec
from envs.services.app import HttpRefusal, invalid_request, make_app, service_unavailable
from envs.services.http import HttpService
from rlsys.config.engine import EngineConfig
from rlsys.errors import BadInput
from rlsys.system.device import choose, resolve_engine
from rlsys.system.served import REFERENCE_SERVICE

MAX_BODY_BYTES = 64 << 20  # 7 bytes a token: 9 million, and a rank asks for 32,768 at a time
ARRIVE_S, STOP_S = 60.0, 10.0  # for such a body over a slow link; for requests to end, which ranks ask again
RETRY_AFTER_S = 5  # less than an engine takes to start again: the ranks ask until it has

Tokens = Annotated[list[int], FailFast()]


class LogprobsRequest(BaseModel):
    sequences: Annotated[list[Tokens], FailFast()]


@dataclass(frozen=True, kw_only=True)
class ReferenceServiceConfig:
    model: str  # a folder by its whole path, or a hub name
    max_model_len: int  # tokens of the longest sequence
    engine: EngineConfig
    device: Literal["auto", "cpu", "cuda"]
    dtype: Literal["auto", "float32", "bfloat16"]
    fp32_head: bool
    gpus: int
    threads: int | None


def check_reference(config: ReferenceServiceConfig) -> None:
    """Raises BadInput for a model that is not there, or whose context is shorter than the policy's."""
    longest = longest_context(config.model)
    if longest is not None and longest < config.max_model_len:
        raise BadInput(
            f"its context is {longest} tokens, and a sequence may have {config.max_model_len}",
            key="learner.reference",
            found=config.model,
            expected=f"engine.max_model_len={longest} at most",
        )


def start_reference(config: ReferenceServiceConfig, *, host: str, port: int, token: str | None) -> HttpService:
    """Return when it answers. Raises BadInput for a model that cannot be used."""
    check_reference(config)

    # A sequence that fills the model's context is asked about with room for a token after it, which no position is
    # ever computed for.
    os.environ["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"

    @asynccontextmanager
    async def opened() -> AsyncIterator[Starlette]:
        engine = await Engine.start(engine_spec(config))
        try:
            yield make_reference_app(engine, token)
        finally:
            engine.stop()

    service = HttpService(
        REFERENCE_SERVICE,
        opened,
        host=host,
        port=port,
        max_body_bytes=MAX_BODY_BYTES,
        arrive_s=ARRIVE_S,
        stop_s=STOP_S,
        start_s=START_S,
    )
    service.start()
    return service


def engine_spec(config: ReferenceServiceConfig) -> EngineSpec:
    device = choose(config.device, torch.cuda.device_count())
    sized = replace(config.engine, max_model_len=config.max_model_len + 1, tensor_parallel=config.gpus)
    return make_engine_spec(
        resolve_engine(sized if device.gpus_per_actor else replace(sized, tensor_parallel=1), device),
        device,
        model_path=config.model,
        dtype=config.dtype,
        fp32_head=config.fp32_head,
        seed=0,
        threads=config.threads or device.engine_threads,
    )


def make_reference_app(engine: Engine, token: str | None) -> Starlette:
    async def answer(request: LogprobsRequest) -> bytes:
        if not all(request.sequences):
            raise invalid_request("empty", ("sequences",), "a sequence without tokens")
        try:
            logprobs = await asyncio.gather(*map(engine.prompt_logprobs, request.sequences))
        except PromptTooLong as error:
            why = f"a sequence of {error.length} tokens, expected {error.limit} at most"
            raise HttpRefusal(400, why) from error
        except EngineFailed as error:
            raise service_unavailable(str(error), RETRY_AFTER_S) from error
        return json.dumps({"logprobs": logprobs}).encode()

    def health() -> Response:
        status = "unhealthy" if engine.failure is not None else "healthy"
        return JSONResponse({"status": status, "model": engine.spec.model_path}, 503 if engine.failure else 200)

    posts = {"/logprobs": (LogprobsRequest, answer)}
    return make_app(REFERENCE_SERVICE, posts, health, CollectorRegistry(), token=token, max_body_bytes=MAX_BODY_BYTES)
