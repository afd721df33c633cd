"""A learner rank on a real Ray cluster that hangs in mid-update, and one that is only busy."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import ray

from learners.actor import LearnerActor
from learners.group import GroupOptions, LearnerGroup
from rlsys.batch import Batch, UpdateReport
from rlsys.errors import LearnerLost, RunFailed
from rlsys.metrics import Sum
from rlsys.plan import plan_batch
from rlsys.samples import sample_refs
from rlsys.summaries import refer_to
from rlsys.system import supervisor
from tests.makers import made
from tests.ray.lost import lost

pytestmark = pytest.mark.ray

ROOT = Path(__file__).resolve().parents[2]
BUSY_S = 2.0


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    os.environ["PYTHONPATH"] = str(ROOT)
    ray.init(address="local", num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False)
    yield
    ray.shutdown()


@dataclass
class Rank:
    """Its update waits as torch does, without the interpreter's lock, or keeps that lock to itself."""

    busy: bool

    def measure_gbps(self) -> float:
        return 1.0

    def update(self, batch: Any, gate: Any = None) -> int:
        until = time.monotonic() + (BUSY_S if self.busy else 600.0)
        while time.monotonic() < until:
            if self.busy:
                re.match(r"(a+)+$", "a" * 22 + "b")
            else:
                time.sleep(0.1)
        return 1


class Actor(LearnerActor):
    def start(self, spec: Any, address: tuple[str, int]) -> int:
        self.rank = Rank(busy=spec)  # type: ignore[assignment]
        self.built = "rows"  # type: ignore[assignment]
        return os.getpid()


def group(
    monkeypatch: pytest.MonkeyPatch,
    *,
    ping_timeout_s: float,
    busy: list[bool],
    run: str = "",
    actor: type[LearnerActor] = Actor,
) -> LearnerGroup:
    monkeypatch.setattr(supervisor, "PING_EVERY_S", 0.2)
    options = GroupOptions(
        cpus=1,
        gpus=0,
        env_vars={"PYTHONPATH": str(ROOT)},
        start_timeout_s=60,
        call_timeout_s=100,
        ping_timeout_s=ping_timeout_s,
        run=run,
    )
    return LearnerGroup(busy, options, actor=actor)  # type: ignore[arg-type]


async def updated(ranks: LearnerGroup) -> list[int]:
    return await ranks.call_all(lambda rank: rank.update.remote(), "updating on version 7")


def test_a_rank_that_is_stopped_in_mid_update_is_found_by_its_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ranks = group(monkeypatch, ping_timeout_s=2.0, busy=[False, False])
        await ranks.start()
        updating = asyncio.create_task(updated(ranks))
        await asyncio.sleep(1)
        assert not updating.done()
        pid = _pids()[1]
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(LearnerLost, match=r"^learner updating on version 7: rank \d hangs: .* ping for 2 s"):
            await updating
        await ranks.stop()
        psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=60)
        assert not psutil.pid_exists(pid), "a stopped process is killed too"

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_rank_that_is_killed_fails_the_call_and_all_of_them_start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ranks = group(monkeypatch, ping_timeout_s=30.0, busy=[False, False], run="killed")
        await ranks.start()
        updating, before = asyncio.create_task(updated(ranks)), set(_pids())
        await asyncio.sleep(1)
        os.kill(max(before), signal.SIGKILL)
        with pytest.raises(LearnerLost, match="^learner updating on version 7: a rank died$"):
            await updating
        with pytest.raises(LearnerLost, match="^learner publishing version 8: a rank died$"):
            await ranks.check("publishing version 8")
        await ranks.restart()
        await ranks.check("publishing version 8")
        after = set(_pids()) - before  # Ray may still be ending the other one
        assert (len(after), ranks.restarts) == (2, 1)
        await ranks.call_all(lambda rank: rank.ping.remote(), "answering")
        await ranks.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_rank_that_keeps_the_interpreter_to_itself_for_a_while_is_not_called_hung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        ranks = group(monkeypatch, ping_timeout_s=5 * BUSY_S, busy=[True])
        await ranks.start()
        assert await updated(ranks) == [1]
        await ranks.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def _pids() -> list[int]:
    """Of this run's ranks alone."""
    mine = psutil.Process().children(recursive=True)
    return [process.pid for process in mine if "ray::Actor" in " ".join(process.cmdline())]


class Counter(LearnerActor):
    def start(self, spec: Any, address: tuple[str, int]) -> int:
        self.rank = SimpleNamespace(update=counted, measure_gbps=lambda: 1.0)  # type: ignore[assignment]
        return os.getpid()


def counted(batch: Batch, gate: Any = None) -> UpdateReport:
    metrics = {"rows": Sum(len(batch.rows)), "tokens": Sum(batch.num_tokens), "trained": Sum(trained(batch))}
    return UpdateReport(applied=True, metrics=metrics, seconds=0.0)


def trained(batch: Batch) -> float:
    return sum(float(row.loss_mask.sum()) for row in batch.rows)


def test_ranks_fetch_the_groups_that_their_rows_need_and_say_which_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [
        made.group(made.ticket(sequence), *(made.trajectory(made.turn((1, 2), range(9)), sibling=n) for n in range(2)))
        for sequence in range(3)
    ]
    group_refs = [replace(refer_to(group), source=ray.put(group)) for group in groups]
    how = {"advantage": 1.0, "version": 7, "max_token_lag": None}
    refs = [
        ref
        for group_ref in group_refs
        for summary in group_ref.summaries
        for ref in sample_refs(summary, group_id=group_ref.ticket.sequence, **how)[0]
    ]

    async def scenario() -> None:
        ranks = group(monkeypatch, ping_timeout_s=60.0, busy=[False, False], actor=Counter)
        await ranks.start()
        batch = plan_batch(refs, {group_ref.ticket.sequence: group_ref.source for group_ref in group_refs}, 12, 7)
        assert await ranks.build(batch) == frozenset()
        report = await ranks.update(7)
        assert {name: metric.value for name, metric in report.metrics.items() if name != "learner/not_finite"} == {
            "rows": 6, "tokens": 6 * 11, "trained": 6 * 9,
        }  # fmt: skip
        without = replace(batch, sources={**batch.sources, 1: lost(groups[1])})
        assert await ranks.build(without) == {1}
        with pytest.raises(RunFailed, match="no rows were built"):
            await ranks.update(7)
        await ranks.stop()

    asyncio.run(scenario())
