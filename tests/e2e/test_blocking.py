"""Environments and rewards that block or end their process, in a real one: their own group fails, and no other."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import psutil
import pytest

from actors.env_worker import CannotStart, EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.scoring import ScoringSpec
from rlsys.group_rollout import run_group
from rlsys.rollout import RolloutPlan, TurnRequest
from rlsys.types import Completion, Failure, Group, Reward, Task
from tests.fakes.bad_worlds import BAD, COMMAND, BadConfig, BadRewardConfig
from tests.makers import made
from tests.unit.rlsys.test_rollout import LETTERS, completion

T = TypeVar("T")
SCORING = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
GOOD = ["good-1", "good-2", "good-3", "good-4"]


def plan(env: BadConfig, *, reward: str = "", **changes: Any) -> RolloutPlan:
    return made.plan(env=env, reward=BadRewardConfig(harm=reward), group_size=2, **changes)


def played(work: Callable[[EnvWorkerPool], Awaitable[T]], **seconds: float) -> tuple[T, EnvWorkerPool]:
    async def scenario() -> tuple[T, EnvWorkerPool]:
        limits = {"block_s": 1.0, "start_timeout_s": 60.0, **seconds}
        worlds = EnvWorkerPool(EnvWorkerSpec(worker="rollout:0", scoring=SCORING, **limits))
        try:
            return await work(worlds), worlds
        finally:
            await worlds.stop()

    return asyncio.run(asyncio.wait_for(scenario(), 120))


async def group(worlds: EnvWorkerPool, played: RolloutPlan, task_id: str, seeds: list[int] | None = None) -> Group:
    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        await asyncio.sleep(0.01)
        if seeds is not None:
            seeds.append(request.seed)
        return completion("ab")

    task = Task(task_id=task_id, question="?")
    with worlds.play(played, task) as playing:
        return await run_group(made.player(LETTERS, generate), playing, made.ticket(task=task), played)


def outcomes(group: Group) -> set[str]:
    return {t.reward.detail if isinstance(t.reward, Failure) else "rewarded" for t in group.trajectories}


@pytest.mark.parametrize(
    ("harm", "kind", "says"),
    [
        (
            "sleep",
            "timeout",
            r"blocked the others of its worker for 1 s, at .*bad_worlds\.py:\d+ in sleep: time",
        ),
        ("spin", "timeout", r"blocked the others .*/re/__init__\.py.*, called from .* in step: HARM"),
        ("wait", "timeout", r"blocked the others .*subprocess\.py.*called from .* in step: HARM"),
        ("leave", "infra", r"ended the process \(exit code 3\)$"),
        ("crash", "infra", r"ended the process \(exit code -11\), at .*ctypes.* in step: HARM"),
    ],
)
def test_a_step_that_harms_others_fails_its_own_group_alone(harm: str, kind: str, says: str) -> None:
    before = set(psutil.Process().children(recursive=True))

    async def work(worlds: EnvWorkerPool) -> list[Group]:
        bad = plan(BadConfig(step=harm, pause_s=0.2))  # without retries: what another does costs nobody his
        return list(await asyncio.gather(*(group(worlds, bad, task) for task in [*GOOD[:2], BAD, *GOOD[2:]])))

    groups, worlds = played(work)
    by_task = {group.ticket.task.task_id: group for group in groups}
    for trajectory in by_task[BAD].trajectories:
        assert isinstance(trajectory.reward, Failure)
        assert (trajectory.reward.kind, trajectory.reward.where, trajectory.retried) == (kind, "environment", ())
    (detail,) = outcomes(by_task[BAD])
    assert detail.startswith("step in task bad of tests.fakes.bad_worlds.BadWorld ") and re.search(says, detail)
    spared = [trajectory for task in GOOD for trajectory in by_task[task].trajectories]
    assert all(isinstance(trajectory.reward, Reward) for trajectory in spared)
    assert any(trajectory.discarded_tokens for trajectory in spared), "nobody was played again"
    assert {failure.detail for trajectory in spared for failure in trajectory.retried} == {detail}
    assert worlds.lost == [detail]
    survivors = set(psutil.Process().children(recursive=True)) - before
    assert psutil.wait_procs(survivors, timeout=60)[1] == [], "neither the process nor what it had started"
    assert COMMAND not in [proc.info["cmdline"] for proc in psutil.process_iter(["cmdline"])], "nor what it starts next"


def test_a_reward_that_blocks_fails_its_own_group_alone() -> None:
    async def work(worlds: EnvWorkerPool) -> list[Group]:
        bad = plan(BadConfig(), reward="sleep")
        return list(await asyncio.gather(*(group(worlds, bad, task) for task in [BAD, *GOOD])))

    (bad, *good), _ = played(work)
    (detail,) = outcomes(bad)
    assert detail.startswith("score in task bad of tests.fakes.bad_worlds.BadWorld blocked the others")
    assert re.search(r"bad_worlds\.py:\d+ in sleep: time\.sleep\(1000\), called from .* in score_and_explain", detail)
    assert {t.reward.where for t in bad.trajectories} == {"reward"}  # type: ignore[union-attr]
    assert "answered" in {t.ended for t in bad.trajectories}, "it was played; its scoring failed"
    assert [outcomes(group) for group in good] == [{"rewarded"}] * 4


def test_an_answer_that_cannot_be_read_fails_its_own_episodes_alone() -> None:
    async def work(worlds: EnvWorkerPool) -> list[Group]:
        return list(await asyncio.gather(*(group(worlds, plan(BadConfig(step="odd")), task) for task in [BAD, *GOOD])))

    (bad, *good), worlds = played(work)
    (detail,) = outcomes(bad)
    assert detail.startswith("TypeError: Name.__new__()") and worlds.lost == []
    assert {(t.reward.kind, t.reward.where) for t in bad.trajectories} == {("data", "environment")}  # type: ignore[union-attr]
    assert [outcomes(group) for group in good] == [{"rewarded"}] * 4


def test_every_task_that_blocks_costs_one_process_and_the_others_the_same_tokens() -> None:
    seeds: dict[str, list[int]] = {task: [] for task in GOOD}

    async def work(worlds: EnvWorkerPool) -> list[Group]:
        bad = plan(BadConfig(step="sleep", pause_s=0.1))
        tasks = [*GOOD, *(f"{BAD}-{number}" for number in range(3))]
        return list(await asyncio.gather(*(group(worlds, bad, task, seeds.get(task)) for task in tasks)))

    groups, worlds = played(work, block_s=0.5)
    assert [outcomes(group) == {"rewarded"} for group in groups] == [True] * 4 + [False] * 3
    assert len(worlds.lost) == 3 and all(len(set(task_seeds)) == 4 for task_seeds in seeds.values())


def test_the_worker_goes_on_while_an_environment_blocks() -> None:
    async def work(worlds: EnvWorkerPool) -> float:
        blocked = asyncio.create_task(group(worlds, plan(BadConfig(step="spin")), BAD))
        longest, looked = 0.0, time.monotonic()
        while not blocked.done():
            await asyncio.sleep(0.01)
            longest, looked = max(longest, time.monotonic() - looked), time.monotonic()
        await blocked
        return longest

    assert played(work, block_s=3.0)[0] < 2.0


def test_an_episode_that_is_given_up_is_given_up_there_too() -> None:
    async def work(worlds: EnvWorkerPool) -> Group:
        slow = plan(BadConfig(pause_s=1000.0), timeout_s=0.5)
        first = await group(worlds, slow, GOOD[0])
        process = worlds.start()
        assert process.over is False and await process.ask(None, "tool_stats") == {}
        return first

    played_group, worlds = played(work)
    assert outcomes(played_group) == {"not over after 0.5 s"} and worlds.lost == []


def test_a_world_that_cannot_be_made_in_time_is_the_runs_failure() -> None:
    async def work(worlds: EnvWorkerPool) -> str:
        with pytest.raises(CannotStart) as caught:
            await group(worlds, plan(BadConfig(make="sleep")), GOOD[0])
        return str(caught.value)

    text, _ = played(work, start_timeout_s=3.0)
    assert (
        "making the world or its reward blocked the others of its worker for 3 s" in text and "time.sleep(1000)" in text
    )


def test_the_process_goes_with_its_worker() -> None:
    """Killed while an environment blocks it: it does not notice that nobody asks any more."""
    code = (
        "import asyncio, sys; from tests.e2e.test_blocking import *\n"
        "async def work(worlds):\n"
        "    asyncio.get_running_loop().call_later(1, lambda: print(worlds.start().process.pid, flush=True))\n"
        "    await group(worlds, plan(BadConfig(step='spin')), BAD)\n"
        "played(work, block_s=60.0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        process = psutil.Process(int(worker.stdout.readline()))
        worker.kill()
    assert psutil.wait_procs([process], timeout=60)[1] == []
