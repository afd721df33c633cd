"""How often an episode is tried again: not after it ended others, and for nothing after others ended it."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rlsys.broken import Budget, CrashedEnvWorker, EpisodeBroken, EvictedByCrash, failure_of
from rlsys.errors import BadInput
from rlsys.rollout import TurnRequest, score_transcript
from rlsys.types import Completion, Failure, FailureKind, Reward, Task, Transcript
from tests.makers.made import TASK, Source, no_reward
from tests.unit.rlsys.test_rollout import Counting, completion, one, play, saying

INFRA = Failure(kind=FailureKind.INFRA, where="environment", detail="gone")


def test_what_another_did_is_free_for_as_long_as_an_attempt_may_take() -> None:
    budget = Budget(infra_retries=1, data_retries=0, timeout_s=60.0)
    assert [budget.allows(EvictedByCrash(INFRA)) for _ in range(5)] == [True] * 5
    assert (budget.spent, len(budget.spared)) == ([], 5)
    budget.ran_s += 61.0
    assert [budget.allows(EvictedByCrash(INFRA)) for _ in range(2)] == [True, False]
    assert len(budget.spent) == 1


def test_scoring_takes_of_the_time_of_its_attempt() -> None:
    async def slow(transcript: Transcript) -> Reward:
        await asyncio.sleep(0.002)
        return await no_reward(transcript)

    def refuse(task: Task) -> Any:
        raise AssertionError("no episode is asked for")

    budget = Budget(infra_retries=1, data_retries=0, timeout_s=60.0, ran_s=5.0)
    source = Source(env=refuse, turns=1, score=slow)
    asyncio.run(score_transcript(source, Transcript(task=TASK, messages=(), truncated=False), budget))
    assert 5.002 <= budget.ran_s < 60


def test_what_broke_keeps_its_kind_and_what_never_came_is_late() -> None:
    assert failure_of(EpisodeBroken(INFRA), "scoring") is INFRA
    late = failure_of(TimeoutError(), "scoring")
    assert (late.kind, late.where) == (FailureKind.TIMEOUT, "scoring")
    assert failure_of(BadInput("no answer"), "scoring") == Failure(
        kind=FailureKind.DATA, where="scoring", detail="no answer"
    )


def test_who_ended_others_is_not_tried_again() -> None:
    assert not Budget(infra_retries=9, data_retries=9, timeout_s=60.0).allows(CrashedEnvWorker(INFRA))


@pytest.mark.parametrize(
    ("broken", "rewarded"), [(EvictedByCrash, True), (CrashedEnvWorker, False), (EpisodeBroken, False)]
)
def test_an_episode_is_played_again_with_the_same_seeds(broken: type[EpisodeBroken], rewarded: bool) -> None:
    seeds: list[int] = []
    left = [broken(INFRA), broken(INFRA)]

    class Env(Counting):
        async def step(self, text: str, *, turns_left: int):  # type: ignore[no-untyped-def]
            if left:
                raise left.pop()
            return await super().step(text, turns_left=turns_left)

    async def opened(task: Task) -> Env:
        return Env()

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        seeds.append(request.seed)
        return completion("5!")

    trajectory = play(generate, opened)
    assert isinstance(trajectory.reward, Reward) is rewarded
    assert len(set(seeds)) == 1
    assert (len(seeds), trajectory.discarded_tokens) == ((3, 4) if rewarded else (1, 0))
    assert trajectory.retried == ((INFRA, INFRA) if rewarded else ())


def test_a_score_that_others_ended_is_asked_for_again_and_one_that_ended_them_is_not() -> None:
    def scored(broken: type[EpisodeBroken]) -> bool:
        left = [broken(INFRA)] * 3

        async def score(transcript: Transcript) -> Reward:
            if left:
                raise left.pop()
            return await one(transcript)

        return isinstance(play(saying("5!"), score=score).reward, Reward)

    assert [scored(broken) for broken in (EvictedByCrash, CrashedEnvWorker)] == [True, False]
