"""Which parts of a run start, and what it says of where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from actors.services import Services
from launch.config.compose import compose
from launch.driver.run import parts
from launch.driver.run.nodes import CheckedNodes
from launch.driver.run.parts import on_nodes, start_parts
from rlsys.alternating_cards import AlternatingCards
from rlsys.system.device import DEVICES, resolve_run


def test_ranks_on_their_nodes_in_one_line() -> None:
    assert on_nodes(["10.0.0.2"] * 2 + ["10.0.0.3"]) == "0-1 on 10.0.0.2, 2 on 10.0.0.3"


@pytest.mark.parametrize("engines", [True, False])
def test_engines_start_only_where_a_stage_needs_them(
    engines: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve_run(compose("quickstart", []), DEVICES["cpu"])
    started: list[str] = []

    def part(name: str) -> Any:
        async def start(*_: object) -> None:
            started.append(name)

        return start

    async def place(needs: Sequence[Any], **_: Any) -> list[str]:
        return [f"bundle {number}" for number in range(len(needs))]

    async def check_nodes(*_: Any, **__: Any) -> CheckedNodes:
        return CheckedNodes(held=("GPU 0: others hold it",))

    monkeypatch.setattr(parts, "place", place)
    monkeypatch.setattr(parts.nodes, "check_nodes", check_nodes)
    run: Any = SimpleNamespace(
        config=config, device=DEVICES["cpu"], playing=[], model_path="", dir=SimpleNamespace(path=tmp_path),
        progress=SimpleNamespace(begin=print, doing=print, say=started.append), tasks=SimpleNamespace(pool_start=None),
        learner=SimpleNamespace(start=part("learner"), nodes=["here"]), provenance=None, cards=AlternatingCards(),
        pool=SimpleNamespace(start=part("engines")), connect=None,
        services=Services([], env_vars={}, start_timeout_s=1.0),
    )  # fmt: skip

    for name in ("playing.json", ".playing.json.tmp"):  # of an attempt that was killed
        (tmp_path / name).write_text("[]")

    async def go() -> None:
        await start_parts(run, engines=engines)
        assert list(tmp_path.glob("*playing*")) == []
        if run.tasks.pool_start is not None:
            await run.tasks.pool_start

    asyncio.run(go())
    assert ("engines" in started) == engines and started.index("GPU 0: others hold it") < started.index("learner")
