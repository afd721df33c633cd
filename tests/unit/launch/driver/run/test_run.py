"""What the ranks are told when a stage begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from launch.config.compose import compose
from launch.driver.run.rundir import RunDir
from rlsys.system.device import DEVICES, resolve_run
from tests.fakes.bandit import bandit_run
from tests.fakes.parts import BanditPool
from tests.unit.launch.driver.stages.test_rl import play

RECIPE = """
env: {name: calculator, train_tasks: 16, held_out_tasks: 4}
algorithm: {name: opd}
loop: {groups_per_step: 4, group_size: 1}
learner: {reference: /teacher, serve_reference: true}
stages: [{name: rl, kind: rl, steps: 7}]
"""


def test_a_reference_that_moves_while_the_ranks_load_is_found_at_its_new_address(tmp_path: Path) -> None:
    """Ranks without a stage drop an address: `connected` holds what came after theirs had begun."""
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    config = resolve_run(compose(str(tmp_path / "recipe.yaml"), []), DEVICES["cpu"])
    addresses = {"reference": "http://10.0.0.2:1"}
    begun: list[str] = []
    connected: list[str] = []

    async def go() -> None:
        run: Any = bandit_run(config, RunDir(tmp_path / "run"), BanditPool())
        run.services = SimpleNamespace(addresses=addresses, token="t")

        async def begin(*_: object, served: Any, **__: object) -> None:
            addresses["reference"] = "http://10.0.0.3:2"
            await run.connect(addresses)
            begun.append(served.url)

        async def connect(served: Any) -> None:
            if begun:
                connected.append(served.url)

        run.pool.connect = connect_pool
        run.learner = SimpleNamespace(begin=begin, connect=connect)
        run.tasks.pool_start = asyncio.create_task(connect_pool())
        await run.begin_stage(config.stages[0])

    async def connect_pool(*_: object) -> None: ...

    asyncio.run(go())
    assert connected == ["http://10.0.0.3:2"]


def test_restarts_of_parts_that_a_resumed_run_no_longer_has_stay_in_the_account(tmp_path: Path) -> None:
    run = play(tmp_path, steps=1).run
    run.earlier = replace(run.earlier, restarts={"rollout:3": 2, "learner": 1})
    run.pool.restarts = {"rollout:0": 4}
    assert run.restarts == {"rollout:3": 2, "learner": 1 + run.learner.restarts, "rollout:0": 4}
