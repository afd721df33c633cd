"""A worker asks the run's own judge, each stage its own; what is known of an engine before it starts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import actors.env_server
import actors.worker
from actors.judge import JudgeServiceConfig, engine_spec, start_judge
from actors.scoring import RewardService, ScoringSpec
from actors.worker import RolloutWorker, WorkerSpec
from envs.base import World
from envs.papers.swirl.reward import SwirlRewardConfig
from envs.rewards import make_reward
from envs.services.http import HttpService
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import open_judge
from envs.services.judge.request import Judged, JudgeRequest
from rlsys.rollout import EpisodeBroken, RolloutPlan
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.types import FailureKind, Group, Reward, Task, Ticket
from tests.fakes.judge_endpoint import scripted
from tests.fakes.local_worlds import play_here
from tests.makers import made
from tests.makers.made import plan, ticket, transcript

SCORING = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
TRANSCRIPT = transcript("5", task=Task(task_id="t", question="2 + 3?"))
QUICK: dict[str, Any] = {"deadline_s": 2.0, "breaker_s": 0.05, "outage_s": 30.0, "attempts": 2, "backoff_s": 0.01}
TOKEN = "t0ken"
FIELDS = {"question": "2 + 3?", "answers": "5", "answer": "5.0"}


def serve(endpoint: str) -> HttpService:
    config = JudgeServiceConfig(judge=JudgeConfig(endpoint=endpoint, model="scripted", **QUICK))
    return start_judge(config, host="127.0.0.1", port=0, token=TOKEN)


def reward(model: str, **keys: Any) -> SwirlRewardConfig:
    return SwirlRewardConfig(judge=JudgeConfig(model=model, **QUICK | keys))


def test_stages_with_different_judges_ask_each_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVICE_TOKEN, "an earlier one's")  # put back afterwards
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: None)
    monkeypatch.setattr(actors.env_server, "new_player", lambda env: World())
    scored: list[Any] = []

    async def group(player: Any, source: Any, ticket: Ticket, plan: RolloutPlan) -> Group:
        await source.max_turns()
        await asyncio.sleep(0.05)  # the other stage's group has come meanwhile
        scored.append((plan.reward.judge.model, (await source.score(TRANSCRIPT)).value))
        return made.group(ticket)

    monkeypatch.setattr(actors.worker, "run_group", group)
    secrets = {SERVICE_TOKEN: TOKEN}
    seconds: dict[str, Any] = {"stall_s": 9.0, "block_s": 9.0, "start_timeout_s": 9.0}
    engine = made.engine_spec()
    spec = WorkerSpec(name="rollout:0", engine=engine, run_seed=0, scoring=SCORING, secrets=secrets, **seconds)

    async def story(urls: dict[str, str]) -> None:
        worker = RolloutWorker(spec)
        play_here(worker)
        await worker.adopt()
        await worker.connect({f"judge {model}": url for model, url in urls.items()})
        plans = [plan(reward=reward(model)) for model in urls]
        try:
            await asyncio.gather(*(worker.run_group(ticket(), rollout_plan) for rollout_plan in plans))
        finally:
            await worker.stop()

    with scripted(lambda _: "GOOD") as kind, scripted(lambda _: "BAD") as strict:
        services = {"kind": serve(kind.url), "strict": serve(strict.url)}
        try:
            asyncio.run(story({model: service.url for model, service in services.items()}))
        finally:
            for service in services.values():
                service.stop()
    assert sorted(scored) == [("kind", 1.0), ("strict", 0.0)]


def test_a_judge_of_the_run_that_does_not_come_back_is_no_verdict() -> None:
    async def score(url: str) -> Reward:
        rewards = RewardService(SCORING)
        rewards.connect({"judge m": url}, TOKEN)
        try:
            return await rewards.score(make_reward(reward("m", outage_s=0.4)), TRANSCRIPT)
        finally:
            await rewards.close()

    with scripted(lambda _: "GOOD") as endpoint:
        service = serve(endpoint.url)
        service.stop()
    with pytest.raises(EpisodeBroken, match="no answer to anybody") as broken:
        asyncio.run(score(service.url))
    assert (broken.value.failure.kind, broken.value.failure.where) == (FailureKind.INFRA, "judge")
    assert TOKEN not in str(broken.value)


def test_who_waits_for_a_judge_hears_its_new_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no proxy of the machine stands between the parts of a run."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async def score(before: str, after: str) -> Reward:
        rewards = RewardService(SCORING)
        rewards.connect({"judge m": before}, TOKEN)
        try:
            scoring = asyncio.create_task(rewards.score(make_reward(reward("m")), TRANSCRIPT))
            while not rewards.tool_stats() or not rewards.tool_stats()["judge"].retries:
                await asyncio.sleep(0.01)
            rewards.connect({"judge m": after}, TOKEN)
            return await scoring
        finally:
            await rewards.close()

    with scripted(lambda _: "GOOD") as endpoint:
        gone, alive = serve(endpoint.url), serve(endpoint.url)
        gone.stop()
        try:
            assert asyncio.run(score(gone.url, alive.url)).value == 1.0
        finally:
            alive.stop()


@pytest.mark.parametrize(("config", "length"), [({"max_position_embeddings": 8192}, 8192), ({}, 16384)])
def test_no_longer_context_than_the_model_was_made_for(tmp_path: Path, config: dict[str, Any], length: int) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma2", **config}))
    service = JudgeServiceConfig(judge=JudgeConfig(model=str(tmp_path)), device="cpu")
    assert engine_spec(service, str(tmp_path)).max_model_len == length
    assert engine_spec(service, str(tmp_path / "nothing")).max_model_len == 16384  # the tokenizer says what is missing


def test_a_service_that_is_killed_and_comes_back_costs_no_verdict() -> None:
    """Scoring waits for the supervisor to bring it back at its address, as it does for a tool service."""

    def say(prompt: str) -> str:
        return "YES" if "5" in prompt.split("My answer:")[1] else "NO"

    with scripted(say) as endpoint:
        config = JudgeServiceConfig(judge=JudgeConfig(endpoint=endpoint.url, model="scripted"))
        service = start_judge(config, host="127.0.0.1", port=0, token=None)
        port = int(service.url.rpartition(":")[2])

        async def story() -> list[Judged]:
            judge = open_judge(JudgeConfig(service=service.url, breaker_s=0.05, backoff_s=0.01))
            try:
                assert (await judge.ask(JudgeRequest(kind="outcome_math", fields=FIELDS))).text == "YES"
                await asyncio.to_thread(service.stop)
                requests = [FIELDS | {"answer": str(number)} for number in range(6)]
                asking = [
                    asyncio.create_task(judge.ask(JudgeRequest(kind="outcome_math", fields=fields)))
                    for fields in requests
                ]
                while not judge.stats().breaker_open:
                    await asyncio.sleep(0.01)
                assert not any(task.done() for task in asking)
                again = start_judge(config, host="127.0.0.1", port=port, token=None)
                try:
                    return await asyncio.gather(*asking)
                finally:
                    await asyncio.to_thread(again.stop)
            finally:
                await judge.close()

        answers = asyncio.run(story())
    assert [answer.text for answer in answers] == ["NO"] * 5 + ["YES"]
