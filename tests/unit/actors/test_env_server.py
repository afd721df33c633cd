"""The far side of a worker's environments: calls that come over a socket, and a server that is a few lines here."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import actors.env_server
from actors import black_box
from actors.black_box import Recorder, read_mark
from actors.env_server import answer, pack, pack_answer, receive, serve, unpack_answer
from rlsys.broken import EpisodeBroken
from rlsys.rollout import failure_of


class Ended(BaseException):
    """In the place of the end of the process."""


class FakeServer:
    made: list[FakeServer]

    def __init__(self, scoring: Any) -> None:
        self.scoring, self.cancelled, self.box = scoring, 0, -1
        self.made.append(self)

    async def step(self, group: int, text: str) -> str:
        return f"{text} of {group}, marked {tuple(read_mark(self.box))}"

    async def hang(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    def end(code: int) -> None:
        assert code == 0
        raise Ended

    FakeServer.made = []
    monkeypatch.setattr(actors.env_server, "EnvServer", FakeServer)
    monkeypatch.setattr(os, "_exit", end)
    descriptor = black_box.create()
    yield descriptor
    os.close(descriptor)


def run(box: int, scenario: Callable[[Any, Any], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        ours, theirs = socket.socketpair()
        serving = asyncio.ensure_future(serve(theirs, Recorder(box)))
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        writer.write(pack("scoring"))
        while not FakeServer.made:
            await asyncio.sleep(0)
        FakeServer.made[0].box = box
        await scenario(reader, writer)
        writer.close()
        with pytest.raises(Ended):
            await serving

    asyncio.run(asyncio.wait_for(whole(), 60))


def test_each_call_is_answered_under_its_number_and_marked_while_it_works(box: int) -> None:
    async def scenario(reader: Any, writer: Any) -> None:
        writer.write(pack((4, 7, "step", (7, "a"))))
        number, kind, body = await receive(reader)
        assert (number, unpack_answer(kind, body, "step")) == (4, "a of 7, marked (7, 4)")
        assert tuple(read_mark(box)) == (0, 0)  # nobody is at work
        assert FakeServer.made[0].scoring == "scoring"

    run(box, scenario)


def test_a_call_that_is_given_up_is_given_up_here_and_no_other(box: int) -> None:
    async def scenario(reader: Any, writer: Any) -> None:
        writer.write(pack((1, 0, "hang", ())))
        writer.write(pack((2, 0, "cancel", ())))  # nothing of that number
        writer.write(pack((3, 7, "step", (7, "a"))))
        assert (await receive(reader))[0] == 3 and FakeServer.made[0].cancelled == 0
        writer.write(pack((1, 0, "cancel", ())))
        writer.write(pack((4, 7, "step", (7, "a"))))
        assert (await receive(reader))[0] == 4 and FakeServer.made[0].cancelled == 1

    run(box, scenario)


def answered(work: Coroutine[Any, Any, Any], method: str) -> tuple[str, Any]:
    return asyncio.run(answer(work, method))


async def gives(found: Any) -> Any:
    if isinstance(found, BaseException):
        raise found
    return found


def test_what_an_episodes_call_raises_is_its_failure_and_what_another_raises_is_passed_on() -> None:
    assert answered(gives(5), "step") == ("value", 5)
    for raised in (KeyError("x"), SystemExit(3), KeyboardInterrupt()):
        kind, failure = answered(gives(raised), "score")
        assert (kind, failure.where) == ("broken", "reward")
        assert failure == failure_of(raised, "reward")
        assert answered(gives(raised), "prepare") == ("raised", raised)
    kind, failure = answered(gives(asyncio.CancelledError()), "state")  # by itself: nobody gave it up
    assert (kind, failure.where) == ("broken", "environment")


def test_an_error_that_does_not_come_out_of_a_pickle_is_told_in_words() -> None:
    class Odd(Exception):
        def __reduce__(self) -> Any:
            return (int, ("not a number",))

    async def sent() -> Any:
        reader = asyncio.StreamReader()
        reader.feed_data(pack_answer(7, "raised", Odd("x")))
        return await receive(reader)

    _, kind, body = asyncio.run(sent())
    with pytest.raises(RuntimeError, match="Odd: x"):
        unpack_answer(kind, body, "prepare")
    with pytest.raises(EpisodeBroken) as caught:
        unpack_answer("value", b"torn", "score")
    assert caught.value.failure.where == "reward"


def test_the_process_ends_with_its_parent_and_hands_its_files_to_no_tool(
    box: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()
    descriptor, parents, handlers = os.dup(theirs.fileno()), list[int](), list[int]()
    theirs.close()
    for file in (descriptor, box):
        os.set_inheritable(file, True)
    monkeypatch.setattr(sys, "argv", ["python", "-c", "4711", "123", str(descriptor), str(box)])
    monkeypatch.setattr(actors.env_server, "die_with", parents.append)
    monkeypatch.setattr(signal, "signal", lambda number, _: handlers.append(number))
    monkeypatch.setattr(actors.env_server.Recorder, "tell_stacks", lambda self: handlers.append(0))
    inheritable: list[bool] = []

    async def served(connection: socket.socket, recorder: Recorder) -> None:
        inheritable.extend(os.get_inheritable(file) for file in (connection.fileno(), box))
        assert connection.fileno() == descriptor
        connection.close()

    monkeypatch.setattr(actors.env_server, "serve", served)
    actors.env_server.main()
    ours.close()
    assert parents == [123] and inheritable == [False, False]
    assert handlers[:2] == [signal.SIGINT, 0]  # the worker decides when it ends, and its stack can be asked for


def test_what_closes_at_the_end_is_every_world_and_what_rewards_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Closing:
        max_turns, service = 1, ""

        def __init__(self, name: Any) -> None:
            self.name = name

        async def close(self) -> None:
            closed.append(str(self.name))

    monkeypatch.setattr(actors.env_server, "RewardService", lambda scoring: Closing("rewards"))
    monkeypatch.setattr(actors.env_server, "new_player", Closing)
    monkeypatch.setattr(actors.env_server, "make_reward", lambda config: None)

    async def scenario() -> None:
        server = actors.env_server.EnvServer(None)  # type: ignore[arg-type]
        for key in ("a", "b"):
            assert await server.prepare((key, "r"), key, None, frozenset({"a"})) == 1
        await server.close()

    asyncio.run(scenario())
    assert sorted(closed) == ["a", "b", "rewards"]
