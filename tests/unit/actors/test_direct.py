"""Versions that are not carried: they lie where every engine finds them, and the driver tidies up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from actors.direct import Direct
from rlsys.channels.base import Published


def test_nothing_moves_and_the_channel_is_tidied_up_and_closed() -> None:
    done: list[Any] = []
    channel: Any = SimpleNamespace(keep=done.append, close=lambda: done.append("closed"))
    version = Published(channel="", version=4)

    async def story() -> None:
        way = Direct(channel)
        await way.ensure(["a"])
        assert way.sending() is channel and await way.bring(version, "a") is version
        await way.keep(4)
        assert way.moved() == (0, 0.0)
        await way.stop()

    asyncio.run(story())
    assert done == [4, "closed"]
