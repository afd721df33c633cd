"""The answers of a process of environments, as its worker reads them. Real ones: tests/e2e/test_blocking.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors.env_server import pack, pack_answer, receive, unpack_answer
from rlsys.broken import EpisodeBroken
from rlsys.types import EpisodeEnd, Step
from tests.fakes.bad_worlds import odd


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
