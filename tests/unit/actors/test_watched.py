"""What a worker makes of what its process of environments leaves and says. Real ones: tests/e2e/test_blocking.py."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from actors import black_box
from actors.watched import EnvWorker
from actors.world_process import pack, pack_answer, receive, unpack_answer
from rlsys.broken import CrashedEnvWorker, EpisodeBroken, EvictedByCrash
from rlsys.types import EpisodeEnd, FailureKind, Step
from tests.bad_worlds import odd


class Written:
    """A process that writes its stack some time after the signal, in pieces."""

    def __init__(self) -> None:
        self.process: Any = EnvWorker.__new__(EnvWorker)  # no process: the test writes what it would
        self.process._box = self.box = black_box.create()
        self.process._stack_start = black_box.end(self.box)
        self.process.process = SimpleNamespace(pid=0)
        self.writes: list[str] = []

    def write(self, text: str) -> None:
        os.pwrite(self.box, text.encode(), black_box.end(self.box))

    def signalled(self, *_: object) -> None:
        for number, text in enumerate(self.writes, 1):
            asyncio.get_running_loop().call_later(0.1 * number, self.write, text)

    def came(self, *, answers: bool) -> bool:
        async def scenario() -> bool:
            beat = asyncio.get_running_loop().create_future()
            if answers:
                asyncio.get_running_loop().call_later(0.3, beat.set_result, {})
            found: bool = await self.process._stack_came(beat)
            return found

        return asyncio.run(scenario())

    def stack(self) -> str:
        return black_box.read_stack(self.box, self.process._stack_start)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    made = Written()
    monkeypatch.setattr(os, "kill", made.signalled)
    yield made
    os.close(made.box)


def test_a_stack_that_was_asked_for_earlier_is_not_taken_for_the_next(written: Written) -> None:
    written.write("an earlier stack\n")
    written.writes = ["the st", "ack\n"]
    assert written.came(answers=False) and written.stack() == "the stack\n"


def test_the_stack_of_a_process_that_answered_after_all_is_not_shown_for_what_ends_it_later(written: Written) -> None:
    written.writes = ["half of a st", "ack"]
    assert not written.came(answers=True) and written.stack() == ""


def received(frame: bytes) -> Any:
    async def scenario() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(frame)
        return await receive(reader)

    return asyncio.run(scenario())


def test_an_answer_that_cannot_be_read_says_whose_it_is() -> None:
    number, kind, body = received(pack_answer(7, "value", odd()))
    assert (number, kind) == (7, "value")
    with pytest.raises(EpisodeBroken, match="TypeError: Name") as caught:
        unpack_answer(kind, body, "step")
    assert (caught.value.failure.kind, caught.value.failure.where) == ("data", "environment")


def test_an_answer_is_what_was_given_or_raised_there() -> None:
    step = Step(end=EpisodeEnd.ANSWERED)
    assert unpack_answer(*received(pack_answer(7, "value", step))[1:], "step") == step
    with pytest.raises(KeyError, match="x"):
        unpack_answer(*received(pack_answer(7, "raised", KeyError("x")))[1:], "prepare")
    with pytest.raises(EpisodeBroken, match="pickle"):
        unpack_answer(*received(pack_answer(7, "value", lambda: None))[1:], "step")
    assert received(pack((7, "end"))) == (7, "end")


class Group:
    def __init__(self, number: int) -> None:
        self.number, self.what, self.failed, self.suspect = number, f"task {number}", None, False


def ended(groups: list[Any], monkeypatch: pytest.MonkeyPatch, mark: Any = black_box.NOBODY) -> tuple[Any, list[Any]]:
    """A process in which these groups were played, after something ended it; and what calls hear, nobody's last."""
    process: Any = EnvWorker.__new__(EnvWorker)
    process.reason, process._up, process._culprit, process._alone, process._calls = "", True, None, False, {}
    process._askers = {group.number: group for group in groups}
    told: list[Any] = []
    process._box, process._stack_start, process._lost = black_box.create(), 0, told.append
    monkeypatch.setattr(EnvWorker, "_end", lambda self, reason: setattr(self, "reason", reason))
    process._blame(mark, FailureKind.INFRA, "ended the process (exit code -9)")
    os.close(process._box)
    assert told == [process]
    return process, [process._ending(group) for group in [*groups, None]]


def test_without_a_culprit_nobody_is_charged_and_everybody_is_a_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [Group(1), Group(2), Group(3)]
    process, said = ended(groups, monkeypatch)
    assert all(isinstance(each, EvictedByCrash) for each in said) and all(group.suspect for group in groups)
    assert process.reason == "something in the process of the environments ended the process (exit code -9)"


def test_who_was_alone_is_charged_and_named_within_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (mine, nobodys) = ended([Group(7)], monkeypatch)
    assert type(mine) is EpisodeBroken and mine.failure.kind is FailureKind.INFRA
    assert mine.failure.detail.startswith("something in task 7, alone in its process, ended")
    assert isinstance(nobodys, EvictedByCrash)  # a group that was about to come


def test_a_culprit_is_charged_for_good_and_makes_no_suspects(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [Group(1), Group(2)]
    _, (culprits, others, _) = ended(groups, monkeypatch, black_box.NOBODY._replace(group=1))
    assert isinstance(culprits, CrashedEnvWorker) and isinstance(others, EvictedByCrash)
    assert not any(group.suspect for group in groups)


def test_what_is_stopped_is_played_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    process: Any = EnvWorker.__new__(EnvWorker)
    process.reason, process._up, process._blamed, process._alone = "it was stopped", True, False, False
    assert type(process._ending(Group(1))) is type(process._ending(None)) is EpisodeBroken
