"""What engines are at while they start is shown as it changes, and never in the way of the start."""

from __future__ import annotations

import asyncio
import io

import pytest
from rich.console import Console

from launch.driver.observe.progress import Progress
from launch.driver.run import starting
from launch.driver.run.starting import watch_start


class Pool:
    def __init__(self, *phases: str) -> None:
        self.phases = list(phases)
        self.done = asyncio.Event()

    async def describe_start(self) -> str:
        phase = self.phases.pop(0)
        if not self.phases:
            self.done.set()
        return phase


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LOOK_S", 0.001)


def test_each_phase_is_a_line_of_a_log_once() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, force_terminal=False, width=200, soft_wrap=True))

    async def scenario() -> str:
        pool = Pool("", "importing vLLM", "importing vLLM", "compiling", "")

        async def start() -> str:
            await pool.done.wait()
            return "started"

        progress.begin("waiting for the rollout engines")
        return await watch_start(pool, start(), progress)

    assert asyncio.run(scenario()) == "started"
    assert [line.partition("] ")[2] for line in out.getvalue().splitlines()] == [
        "waiting for the rollout engines",
        "waiting for the rollout engines: importing vLLM",
        "waiting for the rollout engines: compiling",
    ]


def test_what_the_start_raises_is_raised() -> None:
    async def scenario() -> None:
        async def start() -> None:
            raise ValueError("no engine")

        await watch_start(Pool("x", "y"), start(), Progress(Console(file=io.StringIO())))

    with pytest.raises(ValueError, match="no engine"):
        asyncio.run(scenario())
