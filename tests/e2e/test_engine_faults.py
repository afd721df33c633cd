"""What the engine does when vLLM does not answer: with a vLLM that hangs, fails or will not die, and no process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

import actors.engine
from actors.engine import Engine
from actors.specs import IDLE, EngineFailed
from rlsys.system.weight_folder import WeightManifest
from tests.makers.made import engine_spec

VERSION = WeightManifest(version=1)


class Resources:
    """What vLLM's client holds: calling it closes its sockets."""

    ctx = SimpleNamespace(term=lambda: None)

    def __call__(self) -> None: ...


class HangingLLM:
    """Never pauses, and fails in its own way when it is told to give up."""

    def __init__(self) -> None:
        self.output_processor = SimpleNamespace(propagate_error=lambda error: None)
        self.engine_core = SimpleNamespace(resources=Resources())

    async def pause_generation(self, *, mode: str, clear_cache: bool) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("the connection is closed")

    def shutdown(self, *, timeout: float) -> None: ...


def make(llm: HangingLLM, processes: list[Any] | None = None) -> Engine:
    return Engine(engine_spec(), llm, processes or [], SimpleNamespace(latest=IDLE))  # type: ignore[arg-type]


def run(work: Coroutine[Any, Any, Any]) -> list[str]:
    """Run it and return what the event loop complained of."""
    complaints: list[str] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context["message"]))
        await work
        await asyncio.sleep(0)  # for what was cancelled to end

    asyncio.run(watched())
    gc.collect()
    return complaints


def test_a_cancelled_load_ends_the_engine_since_nobody_would_resume_it() -> None:
    async def cancelled() -> None:
        engine = make(HangingLLM())
        load = asyncio.create_task(engine.load(VERSION))
        for _ in range(3):  # until the call hangs
            await asyncio.sleep(0)
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        with pytest.raises(EngineFailed, match="version 1 was not loaded whole"):
            await engine.load(VERSION)

    assert run(cancelled()) == []


def test_a_call_that_fails_after_the_death_of_the_engine_core_is_not_left_unread() -> None:
    async def scenario() -> None:
        read_end, write_end = os.pipe()
        engine = make(HangingLLM(), [SimpleNamespace(sentinel=read_end)])
        load = asyncio.create_task(engine.load(VERSION))
        for _ in range(3):  # until the call hangs
            await asyncio.sleep(0)
        os.close(write_end)  # as the death of a process ends its sentinel
        with pytest.raises(EngineFailed, match="the EngineCore died"):
            await load
        os.close(read_end)

    assert run(scenario()) == []


def test_stop_does_not_wait_for_ever_for_a_process_that_survives_sigkill(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(actors.engine, "KILL_DEADLINE_S", 0.01)
    waited: list[float | None] = []

    async def stopped() -> None:
        read_end, write_end = os.pipe()
        stuck = SimpleNamespace(pid=7, sentinel=read_end, kill=lambda: None, join=waited.append, is_alive=lambda: True)
        make(HangingLLM(), [stuck]).stop()
        os.close(read_end)
        os.close(write_end)

    with caplog.at_level(logging.WARNING, "rlsys.engine"):
        assert run(stopped()) == []
    assert waited == [0.01]
    assert "the EngineCore 7 is there" in caplog.text
