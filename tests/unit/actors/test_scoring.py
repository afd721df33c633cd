"""What a reward service makes of a score, whom it tells of addresses, and what it closes. No judge and no grader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

import actors.scoring
from actors.scoring import RewardService, ScoringSpec
from envs.services.judge.config import JudgeConfig
from envs.services.judge.request import RULED
from envs.services.stats import ToolStats, merge
from rlsys.types import Reward, Transcript
from tests.makers.made import transcript

SCORING = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)


class Client:
    """A judge that notes where it is and says nothing."""

    made: list[Client]

    def __init__(self, *given: Any, proxy: bool = True) -> None:
        self.given, self.proxy, self.connected, self.closed = given, proxy, list[tuple[str, str]](), False
        self.made.append(self)

    def connect(self, url: str, token: str) -> None:
        self.connected.append((url, token))

    def stats(self) -> ToolStats:
        return ToolStats(calls=2)

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    Client.made = []
    monkeypatch.setattr(actors.scoring, "JudgeClient", Client)
    monkeypatch.setattr(actors.scoring, "open_judge", Client)
    return Client.made


class Judged:
    """A reward that names a judge."""

    def __init__(self, model: str) -> None:
        self.judge = JudgeConfig(model=model)

    def __call__(self, transcript: Transcript) -> Reward:
        return Reward(value=1.0, parts={}, correct=False, judgements=("by the reward",))


def scored(service: RewardService, reward: Any, monkeypatch: pytest.MonkeyPatch, **found: Any) -> Reward:
    """With a transcript that has what the judge and the grader found."""

    async def resolve(reward: Any, transcript: Transcript, grader: Any, judge: Any) -> Transcript:
        judge(reward.judge)
        return replace(transcript, **found)

    monkeypatch.setattr(actors.scoring, "resolve_requests", resolve)
    return asyncio.run(service.score(reward, transcript("5")))


def test_what_judge_and_grader_found_is_kept_and_else_what_the_reward_says(monkeypatch: pytest.MonkeyPatch) -> None:
    service, reward = RewardService(SCORING), Judged("m")
    plain = scored(service, reward, monkeypatch)
    assert (plain.correct, plain.judgements) == (False, ("by the reward",))
    judged = scored(service, reward, monkeypatch, correct=True, judgements=("GOOD",))
    assert (judged.value, judged.correct, judged.judgements) == (1.0, True, ("GOOD",))


def test_a_judge_is_opened_once_and_hears_of_a_new_address_of_its_own_alone(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    service = RewardService(SCORING)
    service.connect({"judge m": "http://here"}, "t1")
    for model in ("m", "m", "elsewhere"):
        scored(service, Judged(model), monkeypatch)
    ours, theirs = clients
    assert ours.given[:2] == ("http://here", "t1") and not ours.proxy and theirs.proxy
    for addresses in ({"judge m": "http://here"}, {"retriever": "http://there"}, {"judge m": "http://there"}):
        service.connect(addresses, "t2")
    assert ours.connected == [("http://there", "t2")] and not theirs.connected
    assert service.tool_stats()["judge"].calls == 4
    asyncio.run(service.close())
    assert ours.closed and theirs.closed


def test_messages_that_their_length_judged_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    service = RewardService(SCORING)
    scored(service, Judged("m"), monkeypatch, judgements=("GOOD", f"{RULED} 12,288 characters. BAD"))
    assert service.tool_stats()["judge"].row()["ruled"] == 1
    twice = merge([service.tool_stats()["judge"]] * 2)  # of two workers
    assert (twice.ruled, twice.row()["errors"]) == (2, 0)
    assert "ruled" not in ToolStats(calls=3).row()


def test_nothing_is_said_of_a_judge_and_a_grader_that_nobody_asked() -> None:
    service = RewardService(SCORING)
    assert service.tool_stats() == {}
    asyncio.run(service.close())
