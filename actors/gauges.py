"""What an engine says of itself after each of its steps."""

from __future__ import annotations

from typing import Any

from actors.specs import IDLE, EngineStats


class Gauges:
    """Keeps the scheduler's latest numbers; vLLM calls these methods after each engine step."""

    def __init__(self) -> None:
        self.latest = IDLE

    def record(self, scheduler_stats: Any, *_: Any, **__: Any) -> None:
        if scheduler_stats is not None:
            self.latest = EngineStats(
                running=scheduler_stats.num_running_reqs,
                waiting=scheduler_stats.num_waiting_reqs,
                kv_usage=scheduler_stats.kv_cache_usage,
            )

    def log_engine_initialized(self) -> None: ...
