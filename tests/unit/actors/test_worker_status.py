"""What a worker says of itself, and how it begins and ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import actors.worker
from actors.engine import Engine
from actors.scoring import ScoringSpec
from actors.specs import IDLE, EngineFailed, EngineSpec, EngineStats, PromptTooLong
from actors.worker import Followed, RolloutWorker, WorkerSpec
from rlsys.rollout import EpisodeBroken, TurnRequest
from rlsys.system.weight_folder import WeightManifest
from rlsys.types import FailureKind, Message
from tests.fakes.local_worlds import play_here
from tests.makers.made import completion, engine_spec, ints

ASKED = TurnRequest(max_tokens=4, temperature=1.0, top_p=1.0, seed=0)


class FakeEngine:
    def __init__(self) -> None:
        self.stopped = 0

    def stats(self) -> EngineStats:
        return EngineStats(running=3, waiting=1)

    def stop(self) -> None:
        self.stopped += 1

    async def generate(self, context: Any, request: Any, name: str) -> Any:
        raise PromptTooLong(len(context), 2)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> RolloutWorker:
    monkeypatch.setattr(actors.worker, "ChatRenderer", lambda path: path)
    seconds: dict[str, Any] = {"stall_s": 9.0, "block_s": 9.0, "start_timeout_s": 9.0}
    monkeypatch.setenv("RLSYS_TEST_SECRET", "before")  # put back afterwards
    actor = RolloutWorker(
        WorkerSpec(
            name="rollout:0",
            engine=engine_spec("m"),
            run_seed=0,
            scoring=ScoringSpec(grader_workers=1, grader_deadline_s=5.0),
            secrets={"RLSYS_TEST_SECRET": "k"},
            **seconds,
        )
    )
    play_here(actor)
    return actor


def test_it_starts_with_its_engine_and_ends_with_it(worker: RolloutWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, addresses = FakeEngine(), []

    async def start(spec: EngineSpec) -> Any:
        assert spec == worker.spec.engine and worker.worlds.process is not None  # which comes up meanwhile
        return engine

    monkeypatch.setattr(Engine, "start", start)
    monkeypatch.setattr(worker.worlds, "connect", addresses.append)

    async def story() -> None:
        with pytest.raises(EngineFailed, match="rollout:0 has no engine"):
            await worker.load_weights(WeightManifest(version=1), ())
        before = await worker.ping()
        assert before.engine == IDLE and before.version is None
        status = await worker.start()
        assert (status.engine.running, status.engine.waiting, status.version) == (3, 1, None)
        assert worker.engine is engine  # type: ignore[comparison-overlap]
        await worker.connect({"judge": "http://here"})
        await worker.adopt()
        assert (await worker.ping()).version == 0
        await worker.stop()
        await worker.stop()

    asyncio.run(story())
    assert engine.stopped == 1 and addresses == [{"judge": "http://here"}] and repr(worker) == "rollout:0"
    assert actors.worker.os.environ["RLSYS_TEST_SECRET"] == "k" and worker.renderer == "m"  # type: ignore[comparison-overlap]


def test_its_memory_is_that_of_all_its_processes_and_its_engine_s_processor_time_is_apart(
    worker: RolloutWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def process(mebibytes: float, *children: Any, name: str = "python") -> Any:
        def memory_info() -> Any:
            if not mebibytes:
                raise psutil.NoSuchProcess(1)
            return SimpleNamespace(rss=int(mebibytes * 1024 * 1024))

        below = [descendant for child in children for descendant in (child, *child.children(recursive=True))]

        def cpu_times() -> Any:
            memory_info()
            return SimpleNamespace(user=10 * mebibytes, system=mebibytes)

        return SimpleNamespace(
            memory_info=memory_info,
            cpu_times=cpu_times,
            name=lambda: name,
            children=lambda recursive=False: below if recursive else list(children),
        )

    engine = process(1.5, process(0.25, name="VLLM::Worker_TP0"), name="VLLM::EngineCore")
    mine = process(3, engine, process(0, name="VLLM::EngineCore"), process(1))  # one ended meanwhile
    monkeypatch.setattr(actors.worker.psutil, "Process", lambda: mine)
    status = asyncio.run(worker.ping())
    assert status.rss_mb == 5.75
    assert (status.engine_cpu_s, status.own_cpu_s) == (11 * 1.75, 33)
    worker.cpu_before = (11.0, 3.0)  # of the start
    status = asyncio.run(worker.ping())
    assert (status.engine_cpu_s, status.own_cpu_s) == (11 * 0.75, 30)
    assert status.pid == actors.worker.os.getpid() and 0 <= status.alive_s < 60


def test_one_episode_is_followed_to_its_end_and_then_another(worker: RolloutWorker) -> None:
    class Engine(FakeEngine):
        async def generate(self, context: Any, request: Any, name: str) -> Any:
            return completion([1], "said")

    worker.engine = Engine()  # type: ignore[assignment]

    async def play(question: str, end: asyncio.Event, turns: int = 1) -> None:
        messages: tuple[Message, ...] = (Message(role="user", content=question),)
        for _ in range(turns):
            await worker.generate(ints([1]), replace(ASKED, messages=messages))
            messages += (Message(role="assistant", content="said"), Message(role="tool", content="heard"))
        await end.wait()

    async def seen() -> list[tuple[str, str]]:
        await asyncio.sleep(0.01)
        playing = (await worker.ping()).playing
        return [(own.role, own.content) for own in (*playing.prompt, *playing.messages)] if playing is not None else []

    async def scenario() -> None:
        ends = [asyncio.Event() for _ in range(3)]
        first = asyncio.create_task(play("one", ends[0], turns=2))
        assert await seen() == [("user", "one"), ("assistant", "said"), ("tool", "heard"), ("assistant", "said")]
        other = asyncio.create_task(play("two", ends[1]))
        assert (await seen())[0] == ("user", "one")
        ends[0].set()
        await first
        assert await seen() == []
        last = asyncio.create_task(play("x" * 60_000, ends[2]))
        assert await seen() == [
            ("user", "\u2026" + "x" * 49_996),
            ("assistant", "said"),
        ]  # the end, of 50,000 characters
        for end in ends:
            end.set()
        await asyncio.gather(other, last)

    asyncio.run(scenario())


def test_what_a_conversation_was_begun_with_is_its_prompt_examples_and_all() -> None:
    async def scenario() -> None:
        def excerpt(*texts: str) -> tuple[str, str]:
            followed.ask(tuple(Message(role="assistant" if text.isupper() else "user", content=text) for text in texts))
            told = followed.excerpt()
            assert told is not None
            return tuple("".join(own.content for own in part) for part in (told.prompt, told.messages))  # type: ignore

        task: Any = asyncio.current_task()
        followed = Followed(task)
        assert excerpt("a", "B", "c") == ("aBc", "")  # an example
        assert excerpt("a", "B", "c", "D", "e") == ("aBc", "De")
        assert excerpt("f") == ("f", "")  # a conversation of its own
        assert excerpt("a", "B", "c", "D", "e", "F", "g") == ("aBc", "DeFg")
        long = "e" * 49_999
        assert excerpt("a", "B", "c", "D", long) == ("", f"D{long}")  # of which the end is told

    asyncio.run(scenario())


def test_a_prompt_that_is_too_long_breaks_its_episode_and_no_worker(worker: RolloutWorker) -> None:
    worker.engine = FakeEngine()  # type: ignore[assignment]
    with pytest.raises(EpisodeBroken, match="a prompt of 3 tokens") as broken:
        asyncio.run(worker.generate(ints([1, 2, 3]), ASKED))
    assert (broken.value.failure.kind, broken.value.failure.where) == (FailureKind.DATA, "engine")
    assert worker.in_flight == 0 and worker.seats.free == worker.spec.engine.max_num_seqs


@pytest.mark.parametrize(
    ("up", "alone", "says"),
    [(False, False, "/l/w.out"), (True, True, "/l/w.out"), (True, False, "10.0.0.2:/l/w.out")],
)
def test_its_log_is_named_as_scp_takes_it_where_there_are_other_nodes(
    monkeypatch: pytest.MonkeyPatch, up: bool, alone: bool, says: str
) -> None:
    find = actors.worker.log_file.__wrapped__
    monkeypatch.setattr(actors.worker.os, "readlink", lambda path: "/l/w.out")
    monkeypatch.setattr(actors.worker.os.path, "isfile", lambda path: True)
    monkeypatch.setattr(actors.worker.ray, "is_initialized", lambda: up)
    monkeypatch.setattr(actors.worker.ray.util, "get_node_ip_address", lambda: "10.0.0.2")
    monkeypatch.setattr(actors.worker, "only_node", lambda: alone)
    assert find() == says
    monkeypatch.setattr(actors.worker.os.path, "isfile", lambda path: False)
    assert find() == ""
