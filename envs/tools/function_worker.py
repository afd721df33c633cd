"""The process in which a person's function runs: python function_worker.py JSON, with {"path": [..], "function": ".."}.

A line with an id and arguments comes in; one with the id and a "result" or an "error", a text, goes out. What the
function prints goes to the standard error.
"""

import asyncio
import dataclasses
import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Awaitable
from typing import Any

MAX_ERROR = 500  # characters
NO_TEXT = re.compile(r" at 0x[0-9a-fA-F]+>$")  # how an object is written that no one has given words


def main() -> None:
    settings = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    sys.path[:] = settings["path"]
    module, _, name = settings["function"].rpartition(".")
    function = getattr(importlib.import_module(module), name)

    def answer(**line: str) -> None:
        answers.write(json.dumps(line, ensure_ascii=False) + "\n")
        answers.flush()

    answer(ready="")
    # One event loop for all calls: a client that the module keeps open belongs to the loop that it was first used in.
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                result = function(**request["arguments"])
                if inspect.isawaitable(result):
                    result = runner.run(_await(result))
                result = result.decode("utf-8", "replace") if isinstance(result, bytes) else result
                text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=plain)
            except Exception as error:  # what a function raises is its answer
                answer(id=request["id"], error=f"{type(error).__name__}: {error}"[:MAX_ERROR])
            else:
                answer(id=request["id"], result=text[: settings["most"]])


def plain(value: Any) -> Any:
    """What JSON has no form for. Raises TypeError for an object that says nothing but its place in memory."""
    if hasattr(value, "tolist"):  # of NumPy and torch
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    if NO_TEXT.search(text):
        raise TypeError(f"the tool returned a {type(value).__name__}, which has no text")
    return text


async def _await(result: Awaitable[Any]) -> Any:
    """What it gives. Tasks that it has left are cancelled: they would go on in the middle of another call."""
    try:
        return await result
    finally:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


if __name__ == "__main__":
    main()
