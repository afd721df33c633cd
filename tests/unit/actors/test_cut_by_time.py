"""What the policy is writing when its time ends is cut off: played again, only the short answers would ever be kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

import actors.worker
from actors.scoring import ScoringSpec
from actors.worker import RolloutWorker, WorkerSpec
from rlsys.clock import GRACE_S, pause_deadlines
from rlsys.group_rollout import run_group
from rlsys.rollout import RolloutPlan, TurnRequest
from rlsys.summaries import refer_to
from rlsys.types import Completion, EpisodeEnd, Failure, FailureKind, Group, Message, Reward, Step, Task, TurnStop
from tests.makers import made
from tests.unit.envs.services.test_guard import play as run
from tests.unit.rlsys.test_rollout import LETTERS, Counting, counting, one

# A 7B on A100s: 128 seats, 4,100 tokens/s of an engine, answers of up to 16,384 tokens, and a deadline that is given.
SEATS, RATE, LONGEST, TIME_S = 128, 32, 16384, 300.0
MOST = int(RATE * TIME_S)  # 9,600 tokens
PLAN = made.plan(group_size=64, max_turn_tokens=LONGEST, max_context=32768, timeout_s=TIME_S, infra_retries=2)


def length(seed: int) -> int:
    """Of the answer that a seed leads to: 3 of 10 are longer than what the time allows."""
    return 2000 + 8000 * (seed % 10 > 6) + seed % 6000


class Engine:
    """A token in a 32nd of a second, and what there is of an answer when it is cut."""

    def __init__(self) -> None:
        self.cuts: dict[str, asyncio.Event] = {}
        self.asked: list[int] = []
        self.deaf = False

    async def generate(self, context: Sequence[int], request: TurnRequest, name: str) -> Completion:
        self.asked.append(request.seed)
        began, over = asyncio.get_running_loop().time(), self.cuts.setdefault(name, asyncio.Event())
        try:
            await asyncio.wait_for(over.wait(), length(request.seed) / RATE)
        except TimeoutError:
            return made.completion((33,) * length(request.seed), "!", version=3, stop=TurnStop.STOP)
        written = int((asyncio.get_running_loop().time() - began) * RATE + 1e-6)
        return made.completion((34,) * written, '"', version=3, stop=TurnStop.ABORT)

    def cut(self, name: str) -> None:
        if not self.deaf:
            self.cuts[name].set()


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: LETTERS)
    seconds: dict[str, Any] = {"stall_s": 9.0, "block_s": 9.0, "start_timeout_s": 9.0}
    scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
    engine = made.engine_spec(max_num_seqs=SEATS)
    return RolloutWorker(WorkerSpec(name="rollout:0", engine=engine, run_seed=0, scoring=scoring, **seconds))


def play(worker: RolloutWorker, engine: Engine, plan: RolloutPlan = PLAN, env: Any = counting, turns: int = 1) -> Group:
    async def scenario() -> Group:
        worker.engine = engine  # type: ignore[assignment]
        player = made.player(LETTERS, worker.generate, run_seed=1)
        return await run_group(player, made.Source(env, turns, one), made.ticket(start_version=3), plan)

    group: Group = run(scenario())
    return group


def test_no_long_answer_is_replaced_by_a_shorter_one(worker: RolloutWorker) -> None:
    engine = Engine()
    group = play(worker, engine)
    lengths = [length(seed) for seed in engine.asked]
    late = [tokens > MOST for tokens in lengths]
    assert len(engine.asked) == 64 and 10 < sum(late) < 30
    assert [trajectory.num_sampled for trajectory in group.trajectories] == [min(tokens, MOST) for tokens in lengths]
    ends = {True: EpisodeEnd.TIME_LIMIT, False: EpisodeEnd.ANSWERED}
    assert [trajectory.end for trajectory in group.trajectories] == [ends[flag] for flag in late]
    assert [trajectory.truncated for trajectory in group.trajectories] == late
    assert all(isinstance(trajectory.reward, Reward) and not trajectory.retried for trajectory in group.trajectories)
    assert [summary.num_sampled for summary in refer_to(group).summaries] == [
        trajectory.num_sampled for trajectory in group.trajectories
    ]


def test_what_an_engine_does_not_give_back_fails_and_is_not_played_again(worker: RolloutWorker) -> None:
    engine = Engine()
    engine.deaf = True
    group = play(worker, engine)
    late = [trajectory for trajectory in group.trajectories if isinstance(trajectory.reward, Failure)]
    assert len(late) == sum(length(seed) > (TIME_S + GRACE_S) * RATE for seed in engine.asked) > 0
    assert {trajectory.reward.kind for trajectory in late} == {FailureKind.TIMEOUT}  # type: ignore[union-attr]
    assert len(engine.asked) == 64


def test_an_engine_that_gave_no_token_in_all_that_time_says_nothing_of_the_answer(worker: RolloutWorker) -> None:
    class Stuck(Engine):
        async def generate(self, context: Sequence[int], request: TurnRequest, name: str) -> Completion:
            if len(self.asked) == 1:
                return await super().generate(context, replace(request, seed=0), name)
            self.asked.append(request.seed)
            await self.cuts.setdefault(name, asyncio.Event()).wait()
            return made.completion((), "", version=3, stop=TurnStop.ABORT)

    (again,) = play(worker, Stuck(), replace(PLAN, group_size=1)).trajectories
    assert (again.end, again.num_sampled) == (EpisodeEnd.ANSWERED, 2000)
    assert [(failure.kind, failure.where) for failure in again.retried] == [(FailureKind.TIMEOUT, "engine")]


class Asking(Counting):
    """Replies after `seconds` for as long as there are turns."""

    seconds = 20.0

    async def step(self, text: str, *, turns_left: int) -> Step:
        await asyncio.sleep(self.seconds)
        return Step(reply=Message(role="user", content="go on"))


def test_a_cut_between_two_messages_keeps_those_before_it(worker: RolloutWorker) -> None:
    class Even(Engine):
        async def generate(self, context: Sequence[int], request: TurnRequest, name: str) -> Completion:
            return await super().generate(context, replace(request, seed=0), name)  # 2,000 tokens: 62.5 s

    (long,) = play(worker, Even(), replace(PLAN, group_size=1), lambda _: Asking(), turns=9).trajectories
    # 62.5 and 20 s each: 3 whole messages in 247.5 s, and 52.5 s of the fourth
    assert (long.end, long.num_sampled) == (EpisodeEnd.TIME_LIMIT, 3 * 2000 + int(52.5 * RATE))
    assert isinstance(long.reward, Reward) and not long.retried


def test_a_tool_that_is_late_is_infrastructure_and_tried_again(worker: RolloutWorker) -> None:
    made_envs: list[Task] = []

    def env(task: Task) -> Asking:
        made_envs.append(task)
        asking = Asking()
        asking.seconds = 1e6
        return asking

    plan = replace(PLAN, group_size=1, infra_retries=1)
    (failed,) = play(worker, Engine(), plan, env, turns=2).trajectories
    assert isinstance(failed.reward, Failure) and failed.reward.kind is FailureKind.TIMEOUT
    assert len(made_envs) == 2 and [failure.where for failure in failed.retried] == ["episode"]


def test_the_time_in_a_queue_is_not_the_answers(worker: RolloutWorker) -> None:
    class Held(RolloutWorker):
        async def generate(self, context: Any, request: TurnRequest) -> Completion:
            with pause_deadlines():
                await asyncio.sleep(3600)
            return await super().generate(context, request)

    queued = Held(worker.spec)
    (waited,) = play(queued, Engine(), replace(PLAN, group_size=1, timeout_s=900.0)).trajectories
    assert waited.end is EpisodeEnd.ANSWERED
