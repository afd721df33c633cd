"""The module of an agent, and how it and its clients learn where the policy is."""

import gc
import importlib
import os
import sys
from contextlib import suppress
from typing import Any

MODEL = {"OPENAI_DEFAULT_MODEL": "policy"}  # else the Agents SDK asks for what its default model alone takes
NOWHERE = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "none"}  # while a module is imported


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
    for kind in kinds:  # the SDK imports half of itself with its first client: every fork would again, for 50 ms
        with suppress(Exception):
            _ = kind().chat.completions
    made = [thing for thing in gc.get_objects() if kinds and issubclass(type(thing), kinds)]
    return function, [client for client in made if _asks_nowhere(client)]


def _asks_nowhere(client: Any) -> bool:
    with suppress(Exception):  # of one that was not made whole
        return str(client.base_url).rstrip("/") == NOWHERE["OPENAI_BASE_URL"]
    return False


def say_address(base_url: str, api_key: str, clients: list[Any]) -> None:
    os.environ |= {"OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key, **MODEL}
    for client in clients:
        client.base_url, client.api_key = base_url, api_key
