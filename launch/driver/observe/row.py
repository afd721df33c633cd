"""One training step as a line of metrics.jsonl, where its seconds went, and for how long the driver did not listen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from launch.driver.observe.phases import PhaseWatch


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of one step: {"wait_rollout": 0.8, "update": 1.2, "other": 0.1} of 2.1."""

    phases: Mapping[str, float]  # add up to `total`
    total: float


class Clock:
    """Seconds by phase, and what none of them covers: the account of a step closes to 100 %."""

    def __init__(self, watch: PhaseWatch | None = None) -> None:
        """watch: sees each phase as it begins and ends."""
        self._watch = watch
        self._started = time.monotonic()
        self._phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        if self._watch is not None:
            self._watch.enter(name)
        try:
            yield
        finally:
            self._phases[name] = self._phases.get(name, 0.0) + time.monotonic() - started
            if self._watch is not None:
                self._watch.leave()

    def close(self) -> StepTime:
        """Of the step that ends now, and a new one begins."""
        now = time.monotonic()
        total = now - self._started
        closed = StepTime(phases=self._phases | {"other": total - sum(self._phases.values())}, total=total)
        self._started, self._phases = now, {}
        return closed


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    stage: str
    step: int  # over all stages
    stage_step: int
    trained: int  # tokens in the loss: the model's own
    packed: int  # tokens that went through the model: prompts and replies too
    time: StepTime
    metrics: dict[str, float]  # what the stage, the learner and the engines measured, by key
    version: int | None = None  # of the weights after the step; None in a stage that publishes none

    def to_json(self) -> dict[str, Any]:
        version = {} if self.version is None else {"version": self.version}
        return {
            "step": self.step,
            "stage": self.stage,
            "stage_step": self.stage_step,
            **version,
            **self.metrics,
            **{f"time/{name}": seconds for name, seconds in self.time.phases.items()},
            "time/step": self.time.total,
            "tokens/trained": self.trained,
            "tokens/packed": self.packed,
            "tokens/trained_per_s": self.trained / self.time.total,
            "tokens/packed_per_s": self.packed / self.time.total,
        }


class EventLoopLag:
    """How long the driver's event loop stood still, at most: every call that it serves has waited for as long."""

    EVERY_S = 0.02  # what is shorter delays no call that anybody would notice

    def __init__(self) -> None:
        self._longest: float | None = None

    async def watch(self) -> None:
        """Runs as a task of the loop, for as long as the loop does."""
        while True:
            before = time.monotonic()
            await asyncio.sleep(self.EVERY_S)
            lag_s = time.monotonic() - before - self.EVERY_S
            self._longest = max(self._longest or 0.0, lag_s)

    def row(self) -> dict[str, float]:
        """Since the last row; empty where nothing was watched."""
        longest, self._longest = self._longest, None
        return {} if longest is None else {"driver/longest_block_s": longest}
