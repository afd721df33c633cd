"""The module of an agent, and how it and its clients learn where the policy is."""

import asyncio
import gc
import importlib
import inspect
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from types import FunctionType
from typing import Any

MODEL = {"OPENAI_DEFAULT_MODEL": "policy"}  # else the Agents SDK asks for what its default model alone takes
NOWHERE = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "none"}  # while a module is imported

ANSWER = {  # to a request before the first episode
    "id": "", "object": "chat.completion", "created": 0, "model": "policy",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": ""}}],
    "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
}  # fmt: skip


def import_function(path: str) -> tuple[Any, list[Any]]:
    """The agent, and the SDK's clients that its modules have made while they were imported: most scripts make theirs
    there. Each fork gives them its address and key."""
    os.environ |= NOWHERE | MODEL
    place, _, name = path.rpartition(".")
    function = getattr(importlib.import_module(place), name)
    if not callable(function):
        raise TypeError(f"{path} is no function")
    sdk: Any = sys.modules.get("openai")
    kinds = tuple(getattr(sdk, name) for name in ("OpenAI", "AsyncOpenAI") if hasattr(sdk, name))
    made = [thing for thing in gc.get_objects() if kinds and issubclass(type(thing), kinds)]
    for kind in kinds:  # saves each fork 15 of 40 ms
        with suppress(Exception):  # an SDK that is made otherwise is slower, not refused
            warm_up(kind)
    return function, [client for client in made if _asks_nowhere(client)]


def warm_up(kind: Any) -> None:
    """Ask once, without a network: with its first request, a client of this kind imports half of the SDK and builds
    its types. Nothing is asked where the user's module has put a tracer around it, whose thread no fork would have."""
    http = sys.modules[type(kind().base_url).__module__.partition(".")[0]]  # httpx, or what the SDK uses in its place
    transport = http.MockTransport(lambda request: http.Response(200, json=ANSWER))
    web = http.AsyncClient if kind.__name__ == "AsyncOpenAI" else http.Client
    completions = kind(http_client=web(transport=transport)).chat.completions
    create = type(completions).create
    if not isinstance(create, FunctionType) or "openai" not in Path(create.__code__.co_filename).parts:
        return
    level = logging.root.manager.disable
    logging.disable()  # the SDK's HTTP library tells of each request
    try:
        asked = completions.create(model="policy", messages=[{"role": "user", "content": ""}])
        if inspect.isawaitable(asked):
            loop = asyncio.new_event_loop()  # `asyncio.run` would leave none to the agents, or none of the module's own
            loop.run_until_complete(settle(asked))
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()
    finally:
        logging.disable(level)
    "127.0.0.1".encode("idna")  # as a lookup of the policy's address does: imported then


async def settle(answer: Any) -> Any:
    return await answer


def _asks_nowhere(client: Any) -> bool:
    with suppress(Exception):  # of one that was not made whole
        return str(client.base_url).rstrip("/") == NOWHERE["OPENAI_BASE_URL"]
    return False


def say_address(base_url: str, api_key: str, clients: list[Any]) -> None:
    os.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key, **MODEL}
    for client in clients:
        client.base_url, client.api_key = base_url, api_key
