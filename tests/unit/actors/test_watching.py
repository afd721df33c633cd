"""A process of environments under watch, over one that is a task of the test: when it is ended, and who hears what."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import actors.env_worker
from actors import black_box
from actors.env_server import pack_answer, receive
from actors.env_worker import CannotStart, EnvWorker, EnvWorkerSpec
from actors.scoring import ScoringSpec
from envs.services.stats import ToolStats
from rlsys.broken import CrashedEnvWorker, EpisodeBroken, EvictedByCrash
from tests.unit.envs.services.test_guard import now, play

SPEC = EnvWorkerSpec(
    worker="rollout:0", scoring=ScoringSpec(grader_workers=1, grader_deadline_s=5.0), block_s=9.0, start_timeout_s=20.0
)
COUNTED = {"search": ToolStats(calls=3)}


class Child:
    """What `subprocess.Popen` is to `EnvWorker`: it answers what it is told to, and the test marks its box."""

    made: list[Child]
    answers: Mapping[str, Any] = {"tool_stats": ("value", COUNTED), "step": ("value", "stepped"), "close": ("value", 0)}

    def __init__(self, command: list[str], pass_fds: tuple[int, int]) -> None:
        self.command, self.pid, self.passed = command, 2**22 + 1, pass_fds
        self.returncode: int | None = None
        self.frames: list[Any] = []
        self.connection = socket.socket(fileno=os.dup(pass_fds[0]))
        self.box = os.dup(pass_fds[1])
        self.writer: asyncio.StreamWriter | None = None
        self.killed_at: float | None = None
        self.task = asyncio.get_running_loop().create_task(self.serve())
        self.made.append(self)

    async def serve(self) -> None:
        reader, self.writer = await asyncio.open_unix_connection(sock=self.connection)
        self.frames.append(await receive(reader))
        while True:
            number, group, method, arguments = await receive(reader)
            self.frames.append((number, group, method, arguments))
            if method in self.answers:
                self.writer.write(pack_answer(number, *self.answers[method]))

    def mark(self, group: int, call: int) -> None:
        os.pwrite(self.box, struct.pack("QQ", group, call), 0)

    def write_stack(self, line: str) -> None:
        self.write(f'  File "/tools/{line}", line 7 in search\n')

    def write(self, text: str) -> None:
        """Into its box, behind what stands there."""
        os.pwrite(self.box, text.encode(), black_box.end(self.box))

    def write_later(self, *pieces: str) -> None:
        for number, piece in enumerate(pieces, 1):
            asyncio.get_running_loop().call_later(0.1 * number, self.write, piece)

    def answer(self, method: str, value: Any) -> None:
        """Its newest call."""
        assert self.writer is not None
        self.writer.write(pack_answer(self.call(method), "value", value))

    def die(self, code: int) -> None:
        self.returncode = code
        self.close()

    def call(self, method: str) -> int:
        """The number of the newest call of a method."""
        number: int = [frame[0] for frame in self.frames[1:] if frame[2] == method][-1]
        return number

    def close(self) -> None:
        self.task.cancel()
        if self.writer is not None:
            self.writer.close()

    def poll(self) -> int | None:
        return self.returncode

    def kill(self) -> None:
        self.returncode = self.returncode if self.returncode is not None else -9
        self.killed_at = now()
        self.close()

    def wait(self, timeout: float) -> None:
        assert self.returncode is not None


class Asker:
    def __init__(self, number: int) -> None:
        self.number, self.what, self.failed, self.suspect = number, f"task {number}", None, False


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is done to the process and its children, in order."""
    done: list[str] = []

    def process(pid: int) -> Any:
        child = SimpleNamespace(kill=lambda: done.append("child"))

        def gone() -> None:
            raise psutil.NoSuchProcess(1)

        children = [SimpleNamespace(kill=gone), child]
        return SimpleNamespace(
            suspend=lambda: done.append("suspend"),
            children=lambda recursive: children if recursive else [],
        )

    clock = SimpleNamespace(monotonic=now)
    Child.made = []
    monkeypatch.setattr(actors.env_worker, "time", clock)
    monkeypatch.setattr(actors.env_worker.subprocess, "Popen", Child)
    monkeypatch.setattr(actors.env_worker.psutil, "Process", process)
    monkeypatch.setattr(os, "kill", lambda *_: Child.made[-1].write_stack("search.py"))
    yield done


def run(scenario: Callable[[EnvWorker, Child, list[Any]], Any]) -> list[Any]:
    """The processes that were lost."""
    lost: list[Any] = []

    async def whole() -> None:
        process = EnvWorker(SPEC, lost.append)
        child = Child.made[0]
        try:
            await scenario(process, child, lost)
        finally:
            await process.stop()
            child.close()
            os.close(child.box)

    play(whole())
    return lost


async def heard(answer: asyncio.Future[Any]) -> Any:
    """What it gives or raises."""
    try:
        return await answer
    except Exception as error:
        return error


def test_a_call_goes_out_with_its_group_and_its_answer_comes_back(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        asker = Asker(5)
        step = process.ask(asker, "step", 0, "text", 3)  # before the socket is open
        assert await step == "stepped"
        assert child.frames[0] == SPEC.scoring
        assert (child.call("step"), 5, "step", (5, 0, "text", 3)) in child.frames
        waiting = process.ask(asker, "score", "x")
        await asyncio.sleep(0.1)
        number = child.call("score")
        waiting.cancel()
        await asyncio.sleep(0.1)
        assert (number, 0, "cancel", ()) in child.frames
        for _ in range(2):  # it has asked nothing since
            process.end_group(asker)
        process.end_group(Asker(6))
        await asyncio.sleep(0.1)
        assert [frame[3] for frame in child.frames[1:] if frame[2] == "end"] == [(5,)]
        numbers = [frame[0] for frame in child.frames[1:] if frame[2] != "cancel"]
        assert numbers == list(range(1, len(numbers) + 1))
        assert "the environments of rollout:0" in child.command and str(os.getpid()) in child.command
        assert json.loads(child.command[3])

    assert run(scenario) == []
    assert ended == ["suspend", "child"] and Child.made[0].returncode == -9


def test_an_answer_that_nobody_waits_for_any_more_stops_no_other(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        given_up = process.ask(Asker(5), "score", "x")
        await asyncio.sleep(0.1)
        number = child.call("score")
        given_up.cancel()
        assert child.writer is not None
        for unknown in (number, number, 99):
            child.writer.write(pack_answer(unknown, "value", "late"))
        assert await process.ask(Asker(6), "step", 0) == "stepped"
        assert not process.over

    assert run(scenario) == []


def test_a_process_that_beats_and_has_time_goes_on(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(100)
        beats = [frame for frame in child.frames[1:] if frame[2] == "tool_stats"]
        assert len(beats) == 200 and not process.over  # one in half a second
        assert process.stats == COUNTED

    assert run(scenario) == []


def test_who_blocks_the_others_is_named_and_charged_and_they_are_not(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        first, second = Asker(1), Asker(2)
        await asyncio.sleep(1.2)
        child.answers = {}
        mine, others = process.ask(first, "step", 0), process.ask(second, "step", 0)
        nobodys = process.ask(None, "prepare")
        await asyncio.sleep(0.1)
        child.mark(1, min(frame[0] for frame in child.frames[1:] if frame[2] == "step"))
        error, other, third = await asyncio.gather(heard(mine), heard(others), heard(nobodys))
        assert 9 < now() - 1.3 < 9 + 4 * 0.5 and child.killed_at == now()
        assert isinstance(error, CrashedEnvWorker) and error.failure.kind == "timeout"
        assert error.failure.where == "environment"
        assert error.failure.detail == (
            "step in task 1 blocked the others of its worker for 9 s, at /tools/search.py:7 in search"
        )
        assert isinstance(other, EvictedByCrash) and isinstance(third, EvictedByCrash)
        assert other.failure.detail == process.reason == error.failure.detail
        assert (first.failed, second.failed, second.suspect) == (error, None, False)
        assert lost == [process] and "search.py" in process.stack
        with pytest.raises(OSError):
            os.fstat(child.passed[1])
        assert isinstance(await heard(process.ask(first, "step", 1)), CrashedEnvWorker)

    assert len(run(scenario)) == 1
    assert ended == ["suspend", "child"]


def test_many_short_calls_in_one_turn_of_the_loop_are_nobodys_doing(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.answers = {}
        for number in range(60):  # 30 s
            child.mark(1, 1000 + number)
            await asyncio.sleep(0.5)
        assert not process.over
        child.answers = Child.answers

    run(scenario)


def test_a_world_may_be_made_for_longer_than_a_call_may_take_and_not_for_ever(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.answers = {}
        call = process.ask(None, "prepare")
        await asyncio.sleep(0.1)
        child.mark(0, child.call("prepare"))
        error = await heard(call)
        assert 20 < now() - 1.3 < 22
        assert isinstance(error, CannotStart)
        assert process.reason.startswith("making the world or its reward blocked the others of its worker for 20 s, at")

    assert len(run(scenario)) == 1


def test_a_process_that_does_not_come_up_can_play_nothing(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        child.answers = {}
        assert isinstance(await heard(process.ask(None, "prepare")), CannotStart)
        assert 20 < now() < 22 and lost == [process]

    run(scenario)


def test_one_that_ends_by_itself_is_noticed_with_how_it_ended(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        bystander, culprit = Asker(1), Asker(2)
        await asyncio.sleep(1.2)
        child.answers = {}
        calls = [process.ask(asker, "score", "x") for asker in (bystander, culprit)]
        await asyncio.sleep(0.1)
        child.mark(2, child.call("score"))
        child.close()
        asyncio.get_running_loop().call_later(1.0, setattr, child, "returncode", -11)  # a moment after its socket
        first, second = await asyncio.gather(*map(heard, calls))
        assert isinstance(first, EvictedByCrash) and isinstance(second, CrashedEnvWorker)
        assert (second.failure.kind, second.failure.where) == ("infra", "reward")
        assert second.failure.detail == "score in task 2 ended the process (exit code -11)"
        assert len(lost) == 1 and now() < 3

    assert len(run(scenario)) == 1


def test_one_whose_socket_stays_open_is_noticed_by_its_beat(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.answers, child.returncode = {}, 3
        error = await heard(process.ask(Asker(4), "step", 0))
        assert type(error) is EpisodeBroken and "task 4, alone in its process, ended the process" in str(error.failure)
        assert now() < 3

    assert len(run(scenario)) == 1


def end_of(groups: list[Any], culprit: int = 0) -> tuple[EnvWorker, list[Any]]:
    """A process that plays these groups, once something has killed it; and what they hear, one that is nobody last."""
    errors: list[Any] = []

    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.answers = {}
        calls = [process.ask(group, "step", 0) for group in groups]
        await asyncio.sleep(0.1)
        child.mark(culprit, 0)  # what an earlier call left running
        child.die(-9)
        errors.extend(await asyncio.gather(*map(heard, calls)))
        errors.append(await heard(process.ask(None, "step", 0)))

    (process,) = run(scenario)
    return process, errors


def test_a_call_between_the_end_of_the_socket_and_that_of_the_process_is_evicted_too(ended: list[str]) -> None:
    """Ray's actors run on uvloop, whose transport raises when something is written after it has closed itself."""
    uvloop = pytest.importorskip("uvloop")

    async def whole() -> None:
        process = EnvWorker(SPEC, lambda _: None)
        child = Child.made[0]
        assert await process.ask(Asker(1), "step") == "stepped"
        child.close()
        calls = []
        for number in range(2, 12):
            calls.append(process.ask(Asker(number), "step"))
            await asyncio.sleep(0.01)
        calls.pop().cancel()
        process.end_group(Asker(1))
        child.returncode = -9
        assert {type(error) for error in await asyncio.gather(*map(heard, calls))} == {EvictedByCrash}
        await process.stop()
        os.close(child.box)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(whole())


def test_without_a_culprit_nobody_is_charged_and_everybody_is_a_suspect(ended: list[str]) -> None:
    groups = [Asker(1), Asker(2), Asker(3)]
    process, errors = end_of(groups)
    assert all(isinstance(error, EvictedByCrash) for error in errors) and all(group.suspect for group in groups)
    assert process.reason == "something in the process of the environments ended the process (exit code -9)"


def test_who_was_alone_is_charged_and_named_within_its_budget(ended: list[str]) -> None:
    _, (mine, nobodys) = end_of([Asker(7)])
    assert type(mine) is EpisodeBroken and mine.failure.kind == "infra"
    assert mine.failure.detail.startswith("something in task 7, alone in its process, ended")
    assert isinstance(nobodys, EvictedByCrash)  # a group that was about to come


def test_a_culprit_is_charged_for_good_and_makes_no_suspects(ended: list[str]) -> None:
    groups = [Asker(1), Asker(2)]
    _, (culprits, others, _) = end_of(groups, culprit=1)
    assert isinstance(culprits, CrashedEnvWorker) and isinstance(others, EvictedByCrash)
    assert not any(group.suspect for group in groups)


def test_a_stack_that_was_asked_for_earlier_is_not_taken_for_the_next(
    ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "kill", lambda *_: Child.made[-1].write_later("the st", "ack\n"))

    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.write("an earlier stack\n")
        child.answers = {}
        await heard(process.ask(Asker(1), "step", 0))
        assert process.stack == "the stack\n"

    assert len(run(scenario)) == 1


def test_the_stack_of_a_process_that_answered_after_all_is_not_shown_for_what_ends_it_later(
    ended: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled: list[float] = []

    def kill(*_: object) -> None:
        signalled.append(now())
        child = Child.made[-1]
        child.write_later("half of a st", "ack")
        asyncio.get_running_loop().call_later(0.3, child.answer, "tool_stats", COUNTED)

    monkeypatch.setattr(os, "kill", kill)

    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.answers = {}
        step = process.ask(Asker(1), "step", 0)
        while not signalled:
            await asyncio.sleep(0.5)
        await asyncio.sleep(2.0)
        assert not process.over and len(signalled) == 1
        child.die(-9)
        assert type(await heard(step)) is EpisodeBroken and process.stack == ""

    assert len(run(scenario)) == 1


def test_a_stop_lets_the_worlds_close_and_waits_no_longer_than_a_moment(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        child.answers = {"tool_stats": ("value", COUNTED)}  # no world closes
        waiting = process.ask(Asker(1), "step", 0)
        await process.stop()
        assert now() == pytest.approx(1.2 + 3.0) and child.call("close")
        assert process.reason == "it was stopped"
        later = process.ask(Asker(2), "step", 0), process.ask(None, "step", 0)  # none is played elsewhere
        assert [type(await heard(call)) for call in (waiting, *later)] == [
            EpisodeBroken
        ] * 3  # it is played nowhere else
        await process.stop()
        assert now() == pytest.approx(4.2)

    assert run(scenario) == []


def test_a_stop_before_it_is_up_waits_for_nothing(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        child.answers = {}
        await process.stop()
        assert now() == 0 and child.returncode == -9
        assert isinstance(await heard(process.ask(None, "prepare")), CannotStart)

    assert run(scenario) == []


def test_what_tools_counted_is_as_of_the_last_answer_where_the_process_is_busy(ended: list[str]) -> None:
    async def scenario(process: EnvWorker, child: Child, lost: list[Any]) -> None:
        await asyncio.sleep(1.2)
        newer = {"search": ToolStats(calls=4)}
        child.answers = {"tool_stats": ("value", newer)}
        assert await process.fresh_stats() == newer
        child.answers = {}
        await asyncio.sleep(0.6)
        since = now()
        assert await process.fresh_stats() == newer and now() - since == pytest.approx(1.0)
        await asyncio.sleep(0.1)
        numbers = [frame[0] for frame in child.frames[1:] if frame[2] == "tool_stats"]
        assert [frame[0] for frame in child.frames[1:] if frame[2] == "cancel"][-1] in numbers  # it is answered no more
        child.answers = {"tool_stats": ("raised", KeyError("x"))}
        await asyncio.sleep(0.6)
        assert await process.fresh_stats() == newer and not process.over

    run(scenario)
