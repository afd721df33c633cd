"""A person's Python function as a tool: named by its dotted path, called in a process of its own.

    def weather(city: str, days: int = 1) -> str:
        \"\"\"Forecast the weather.

        Args:
            city: Name of the city.
            days: Number of days from now.
        \"\"\"

Name, signature and docstring become the schema that the model sees. The result is a text, or anything that JSON has a
form for. What the function raises is its answer to the model, as an error; a coroutine function is awaited.
"""

from __future__ import annotations

import inspect
import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envs.tools.child_process import CallBroke, ChildProcess, Command
from envs.tools.result import Result, ToolError
from envs.tools.schema import Schema, schema_of
from rlsys.choices import custom_folders, load_custom
from rlsys.errors import BadInput

WORKER = Path(__file__).with_name("function_worker.py")


def read_schema(key: str, path: str, name: str) -> Schema:
    """Of the function at a dotted path. Raises BadInput for what is none, naming the `key` of the configuration."""

    target = load_custom(key, path, kind="module.function")
    if expected := _expected_instead(target):
        raise BadInput(key=key, found=path, expected=expected)
    schema: Schema = load_custom(key, path, lambda function: schema_of(function, name), kind="module.function")
    return schema


def _expected_instead(target: Any) -> str:
    """What should stand in the place of something that is no tool; empty of one that is."""
    if not callable(target):
        return "a function"
    if inspect.isclass(target):
        return "a function; a class would only be made an object of"
    call = inspect.unwrap(target)
    calls = (call, type(call).__call__)
    if any(inspect.isgeneratorfunction(candidate) or inspect.isasyncgenfunction(candidate) for candidate in calls):
        return "a function that returns its result; this one yields"
    return ""


class FunctionPeer:
    """A process that has imported the function."""

    def __init__(self, process: ChildProcess) -> None:
        self.transport = process

    @classmethod
    async def start(cls, path: str, max_reply: int, memory_mb: int, variables: tuple[str, ...]) -> FunctionPeer:
        """Raises CallBroke where the import fails."""
        settings = {"path": [*sys.path, *custom_folders()], "function": path, "most": max_reply + 1}
        words = (sys.executable, str(WORKER), json.dumps(settings))
        process = await ChildProcess.start(Command(words=words, memory_mb=memory_mb, variables=variables))
        try:
            await process.receive()
        except BaseException:
            await process.close()
            raise
        return cls(process)

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        number = secrets.token_hex(8)  # not to be guessed: an earlier call may have written a line for this one
        await self.transport.send({"id": number, "arguments": arguments})
        answer = await self.transport.receive()
        if answer.get("id") != number:
            raise CallBroke("it answered another call")
        if isinstance(answer.get("result"), str):
            return str(answer["result"])
        if isinstance(answer.get("error"), str):
            return ToolError(f"error: {answer['error']}")
        raise CallBroke("it answered with neither a result nor an error")
