"""Groups go on in the next process when theirs was ended by another; the one that ended it does not."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

import actors.env_server
from actors.env_worker import EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool, GroupSession
from actors.scoring import ScoringSpec
from envs.services.stats import ToolStats
from rlsys.broken import CrashedEnvWorker, EpisodeBroken, EvictedByCrash
from rlsys.config.identity import config_key
from rlsys.group_rollout import run_group
from rlsys.rollout import TurnRequest
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.types import Completion, Failure, FailureKind, Reward, Task, Transcript
from tests.fakes.bad_worlds import BadConfig, BadReward, BadRewardConfig
from tests.fakes.local_worlds import LocalProcess
from tests.makers import made
from tests.makers.made import plan, ticket, transcript
from tests.unit.rlsys.test_rollout import LETTERS, completion

SPEC = EnvWorkerSpec(
    worker="rollout:0",
    scoring=ScoringSpec(grader_workers=1, grader_deadline_s=5.0),
    block_s=9.0,
    start_timeout_s=9.0,
)
PLAN = plan(env=BadConfig(), reward=BadRewardConfig())
TASK = Task(task_id="t", question="?")
TRANSCRIPT = transcript("a", task=TASK)
GONE = Failure(kind=FailureKind.INFRA, where="environment", detail="another ended it")


DEADLY: list[str] = []


class Mortal(LocalProcess):
    """Ends at the first call of a kind in DEADLY, each of which kills once."""

    made = 0

    def __init__(self, spec: EnvWorkerSpec, lost: Any) -> None:
        super().__init__(spec, lost)
        Mortal.made += 1
        self.reason, self.stack, self.lost = "", "", lost
        now = ToolStats(queued=1, in_flight=1, breaker_open=True, outage="refused")
        self.stats = {"search": dataclasses.replace(now, calls=3, breaker_opened=1)}

    async def _ask(self, method: str, *arguments: Any) -> Any:
        if method in DEADLY:
            DEADLY.remove(method)
            self.reason = f"{method} ended it"
            self.lost(self)
            raise EvictedByCrash(GONE)
        return await super()._ask(method, *arguments)


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> EnvWorkerPool:
    DEADLY.clear()
    monkeypatch.setattr(Mortal, "made", 0)
    return EnvWorkerPool(SPEC, Mortal)  # type: ignore[arg-type]


def test_a_world_that_others_ended_while_it_was_made_is_made_again(worlds: EnvWorkerPool) -> None:
    DEADLY.append("prepare")

    async def scenario() -> int:
        with worlds.play(PLAN, TASK) as playing:
            return await playing.max_turns()

    assert asyncio.run(scenario()) == 2
    assert (worlds.lost, Mortal.made) == (["prepare ended it"], 2)


def test_siblings_are_compared_again_when_others_ended_it(
    worlds: EnvWorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Comparing(BadReward):
        def compare(self, transcripts: Sequence[Transcript], rewards: Sequence[Reward]) -> Sequence[Reward]:
            return rewards

    monkeypatch.setattr("actors.env_server.make_reward", Comparing)
    DEADLY.append("compare")

    async def scenario() -> Any:
        with worlds.play(PLAN, TASK) as playing:
            reward = await playing.score(TRANSCRIPT)
            return await playing.compare([TRANSCRIPT], [reward])

    assert asyncio.run(scenario()) == [Reward(value=1.0, parts={"correct": 1.0})]
    assert worlds.lost == ["compare ended it"]


def test_a_group_that_ended_a_process_gets_no_other(worlds: EnvWorkerPool) -> None:
    async def scenario() -> None:
        with worlds.play(PLAN, TASK) as playing:
            await playing.max_turns()
            playing.failed = CrashedEnvWorker(GONE)
            for call in (playing.env(TASK), playing.score(TRANSCRIPT)):
                with pytest.raises(CrashedEnvWorker):
                    await call

    asyncio.run(scenario())


def test_what_earlier_processes_counted_is_kept_and_no_more_is_how_they_stood(worlds: EnvWorkerPool) -> None:
    DEADLY.append("open")

    async def scenario() -> ToolStats:
        with worlds.play(PLAN, TASK) as playing:
            with pytest.raises(EpisodeBroken):
                await playing.env(TASK)
            await playing.env(TASK)
        return (await worlds.tool_stats())["search"]

    assert asyncio.run(scenario()) == ToolStats(calls=3, breaker_opened=1)


def test_a_group_is_named_by_its_task_and_environment(worlds: EnvWorkerPool) -> None:
    assert GroupSession(worlds, 1, PLAN, TASK).what == "task t of tests.fakes.bad_worlds.BadWorld"


def test_where_an_episode_stood_at_its_end_reaches_the_reward_and_the_trajectory(worlds: EnvWorkerPool) -> None:
    seen: list[Transcript] = []

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return completion("ab")

    async def scenario() -> Any:
        with worlds.play(PLAN, TASK) as playing:

            async def score(transcript: Transcript) -> Reward:
                seen.append(transcript)
                return await playing.score(transcript)

            source = made.Source(playing.env, await playing.max_turns(), score, playing.compare)
            return await run_group(made.player(LETTERS, generate), source, ticket(task=TASK), PLAN)

    (trajectory,) = asyncio.run(scenario()).trajectories
    assert trajectory.state == seen[0].state == {"played": "t"}


OTHER = plan(env=BadConfig(pause_s=0.01), reward=BadRewardConfig())


def test_a_world_that_was_closed_for_another_is_made_again(worlds: EnvWorkerPool) -> None:
    """A later stage comes back to the environment of an earlier one."""

    async def scenario() -> None:
        for stage in (PLAN, OTHER, PLAN):
            with worlds.play(stage, TASK) as playing:
                await playing.max_turns()
                assert await (await playing.env(TASK)).final_state() == {"played": "t"}

    asyncio.run(scenario())


@pytest.fixture
def made_of(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The environments that players have been made of, in their order."""
    made_of: list[Any] = []
    whole = actors.env_server.new_player

    def new_player(config: Any) -> Any:
        made_of.append(config)
        return whole(config)

    monkeypatch.setattr(actors.env_server, "new_player", new_player)
    return made_of


def test_a_world_that_a_group_plays_stays_while_another_is_made_and_goes_with_its_last_group(
    worlds: EnvWorkerPool, made_of: list[Any]
) -> None:
    async def scenario() -> None:
        with worlds.play(PLAN, TASK) as first, worlds.play(PLAN, TASK) as second:
            await first.max_turns()
            with worlds.play(OTHER, TASK) as other:
                await other.max_turns()
                await second.max_turns()
        assert made_of == [PLAN.env, OTHER.env]
        with worlds.play(OTHER, TASK) as other:
            await other.max_turns()
        third = plan(env=BadConfig(pause_s=0.02), reward=BadRewardConfig())
        for stage in (third, PLAN):
            with worlds.play(stage, TASK) as playing:
                await playing.max_turns()
        assert made_of == [PLAN.env, OTHER.env, third.env, PLAN.env]

    asyncio.run(scenario())


def test_the_worlds_of_several_environments_stay_until_another_stage_plays(
    worlds: EnvWorkerPool, made_of: list[Any]
) -> None:
    keys = tuple(config_key(stage.env) for stage in (PLAN, OTHER))

    async def scenario() -> None:
        for stage in (PLAN, OTHER, PLAN, OTHER):
            with worlds.play(dataclasses.replace(stage, together=keys), TASK) as playing:
                await playing.max_turns()
        assert made_of == [PLAN.env, OTHER.env]
        with worlds.play(plan(env=BadConfig(pause_s=0.02), reward=BadRewardConfig()), TASK) as playing:
            await playing.max_turns()
        with worlds.play(PLAN, TASK) as playing:
            await playing.max_turns()
        assert made_of[3:] == [PLAN.env]

    asyncio.run(scenario())


def test_siblings_that_were_never_scored_are_not_compared(worlds: EnvWorkerPool) -> None:
    async def scenario() -> None:
        with worlds.play(PLAN, TASK) as playing:
            assert await playing.compare([], []) == []

    asyncio.run(scenario())
    assert Mortal.made == 0  # no process was asked


def test_a_world_that_is_about_to_be_closed_for_another_is_made_again(worlds: EnvWorkerPool) -> None:
    async def scenario() -> None:
        with worlds.play(PLAN, TASK) as playing:
            await playing.max_turns()
        with worlds.play(OTHER, TASK) as other:
            call = asyncio.create_task(other.max_turns())
            await asyncio.sleep(0)  # who plays was counted without the next group
            with worlds.play(PLAN, TASK) as playing:
                await playing.max_turns()
                await call
                await playing.env(TASK)
            await other.env(TASK)

    asyncio.run(scenario())


def test_a_reward_is_made_before_the_first_episode_is_scored(
    worlds: EnvWorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A score that also loads what its reward needs would block the others for too long."""
    configs: list[Any] = []

    def make(config: Any) -> BadReward:
        configs.append(config)
        return BadReward(config)

    monkeypatch.setattr("actors.env_server.make_reward", make)

    async def scenario() -> None:
        with worlds.play(PLAN, TASK) as playing:
            await playing.max_turns()
            assert configs == [PLAN.reward]
            await playing.score(TRANSCRIPT)

    asyncio.run(scenario())
    assert configs == [PLAN.reward]


def test_a_process_that_ends_while_it_is_asked_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, worlds: EnvWorkerPool
) -> None:
    process: Any = worlds.start()

    async def fresh_stats() -> Any:
        process.lost(process)
        return process.stats

    monkeypatch.setattr(process, "fresh_stats", fresh_stats)
    assert asyncio.run(worlds.tool_stats())["search"].calls == 3
    assert asyncio.run(worlds.tool_stats())["search"].calls == 3


def test_each_process_hears_where_the_services_are(worlds: EnvWorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one when they move, the next one before it plays."""
    heard: list[tuple[int, object]] = []

    async def connect(server: Any, addresses: Any) -> None:
        heard.append((Mortal.made, addresses))

    monkeypatch.setattr("actors.env_server.EnvServer.connect", connect)

    async def scenario() -> None:
        worlds.connect({"retriever": "http://10.0.0.2:80"})
        with worlds.play(PLAN, TASK) as playing:
            await playing.max_turns()
            worlds.connect({"retriever": "http://10.0.0.3:80"})
            DEADLY.append("open")
            with pytest.raises(EpisodeBroken):
                await playing.env(TASK)
            await playing.env(TASK)

    asyncio.run(scenario())
    places = [{"retriever": f"http://10.0.0.{node}:80"} for node in (2, 3, 3)]
    assert heard == list(zip((1, 1, 2), places, strict=True))


def test_a_world_that_cannot_be_connected_is_told(
    worlds: EnvWorkerPool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SERVICE_TOKEN, raising=False)

    async def scenario() -> None:
        with worlds.play(PLAN, TASK) as playing:
            await playing.max_turns()
            worlds.connect({"retriever": "http://10.0.0.2:80"})
            await asyncio.sleep(0)
            await playing.env(TASK)

    asyncio.run(scenario())
    assert "rollout:0: a world does not go where its service is: 'RLSYS_SERVICE_TOKEN'" in caplog.text


class Crowd(LocalProcess):
    """Ends when it plays task `bad`. Nobody knows who did it, but where one group alone is there."""

    made: ClassVar[list[Crowd]] = []

    def __init__(self, spec: EnvWorkerSpec, lost: Any) -> None:
        super().__init__(spec, lost)
        self.reason, self.stack, self.lost = "", "", lost
        self.there: dict[int, Any] = {}
        self.together, self.stopped = 0, False
        Crowd.made.append(self)

    def ask(self, asker: Any, method: str, *arguments: Any) -> asyncio.Future[Any]:
        if asker is not None:
            self.there[asker.number] = asker
            self.together = max(self.together, len(self.there))
        return asyncio.ensure_future(self._watched(asker, method, *arguments))

    async def _watched(self, asker: Any, method: str, *arguments: Any) -> Any:
        if asker is not None:
            await asyncio.sleep(0.002)  # until all are there
        if method == "open" and arguments[-1].task_id == "bad" and not self.reason:
            self.reason, self.alone = "something ended it", len(self.there) == 1
            for peer in self.there.values():
                peer.suspect = True
            self.lost(self)
        if self.reason:
            raise EpisodeBroken(GONE) if self.alone else EvictedByCrash(GONE)
        return await super()._ask(method, *(() if asker is None else (asker.number,)), *arguments)

    def end_group(self, asker: Any) -> None:
        self.there.pop(asker.number, None)
        super().end_group(asker)

    async def stop(self) -> None:
        self.stopped = True
        await super().stop()


def test_after_an_end_without_a_culprit_each_plays_alone_and_only_the_bad_one_fails() -> None:
    Crowd.made.clear()
    worlds = EnvWorkerPool(SPEC, Crowd)  # type: ignore[arg-type]
    several = plan(env=BadConfig(), reward=BadRewardConfig(), group_size=2, infra_retries=1)

    async def generate(context: Sequence[int], request: TurnRequest) -> Completion:
        return completion("ab")

    async def group(name: str) -> list[str]:
        task = Task(task_id=name, question="?")
        with worlds.play(several, task) as playing:
            played = await run_group(made.player(LETTERS, generate), playing, ticket(task=task), several)
        assert all(name == "bad" or trajectory.retried in ((), (GONE,)) for trajectory in played.trajectories)
        return [str(trajectory.end) for trajectory in played.trajectories]

    async def scenario() -> dict[str, list[str]]:
        names = ["a", "b", "bad", "c", "d"]
        ends = dict(zip(names, await asyncio.gather(*map(group, names)), strict=True))
        ends["later"] = await group("later")
        await worlds.stop()
        return ends

    outcomes = asyncio.run(asyncio.wait_for(scenario(), 60))
    assert outcomes.pop("bad") == ["failed"] * 2
    assert all("failed" not in ends for ends in outcomes.values())
    first, *others = Crowd.made
    assert first.together == 5 and all(process.together <= 1 for process in others)
    assert all(process.stopped or process.reason for process in Crowd.made)
    assert worlds.lost == ["something ended it"] * len([process for process in Crowd.made if process.reason])
