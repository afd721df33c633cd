"""The process in which a person's function runs: python function_worker.py JSON, with {"path": [..], "function": ".."}.

A line with an id and arguments comes in; one with the id and a "result" or an "error", a text, goes out. What the
function prints goes to the standard error.
"""

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import Awaitable
from typing import Any

MAX_ERROR = 500  # characters


def main() -> None:
    said = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
    os.dup2(2, 1)
    sys.path[:] = said["path"]
    module, _, name = said["function"].rpartition(".")
    function = getattr(importlib.import_module(module), name)

    def answer(**line: str) -> None:
        answers.write(json.dumps(line, ensure_ascii=False) + "\n")
        answers.flush()

    answer(ready="")
    # One event loop for all calls: a client that the module keeps open belongs to the loop that it was first used in.
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                result = function(**asked["arguments"])
                if inspect.isawaitable(result):
                    result = runner.run(_await(result))
                text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
            except Exception as error:  # what a function raises is its answer
                answer(id=asked["id"], error=f"{type(error).__name__}: {error}"[:MAX_ERROR])
            else:
                answer(id=asked["id"], result=text[: said["most"]])


async def _await(result: Awaitable[Any]) -> Any:
    """What it gives. Tasks that it has left are cancelled: they would go on in the middle of another call."""
    try:
        return await result
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


if __name__ == "__main__":
    main()
