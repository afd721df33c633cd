"""What runs code of a model's: in a loop of its own, and skipped where the host forbids a sandbox."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from envs.services.guard import ToolFailed

T = TypeVar("T")


def run_closing(make: Callable[[], Any], plan: Callable[[Any], Awaitable[T]]) -> T:
    """The plan with what `make` opens: a sandbox lives in one event loop."""

    async def run() -> T:
        opened = make()
        try:
            return await plan(opened)
        except ToolFailed as failed:
            if "docs/sandbox.md" in failed.failure.detail:
                pytest.skip(failed.failure.detail)
            raise
        finally:
            await opened.close()

    return asyncio.run(run())
