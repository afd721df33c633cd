"""Calls to actors: an answer that does not come is an error that a user can act on."""

import asyncio

import pytest

from actors.calls import call
from rlsys.errors import RunFailed


def test_a_call_without_an_answer_says_who_what_how_long_and_what_to_try() -> None:
    async def wait() -> None:
        await call(asyncio.Future(), "rollout:1 ping", timeout_s=0.01)

    with pytest.raises(RunFailed, match=r"^rollout:1 ping: no answer after 0 s; see its log .* or raise the deadline$"):
        asyncio.run(wait())
