"""Calls to actors: an answer that does not come is an error that a user can act on."""

import asyncio
import time

import pytest

from actors.calls import call
from rlsys.errors import RunFailed


def test_a_call_without_an_answer_says_who_what_how_long_and_what_to_try() -> None:
    async def wait() -> None:
        await call(asyncio.Future(), "rollout:1 ping", timeout_s=0.01)

    with pytest.raises(RunFailed, match=r"^rollout:1 ping: no answer after 0 s; see its log .* or raise the deadline$"):
        asyncio.run(wait())


async def after_a_block(timeout_s: float, answer_s: float, block_s: float) -> str:
    """A call that is answered after `answer_s`, while the loop stands still for `block_s`, past the deadline."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()
    loop.call_later(answer_s, answer.set_result, "here")
    calling = asyncio.ensure_future(call(answer, "rollout:1 ping", timeout_s))
    await asyncio.sleep(0)
    time.sleep(block_s)
    return await calling


def test_an_answer_that_came_while_the_driver_was_busy_was_in_time() -> None:
    assert asyncio.run(after_a_block(timeout_s=0.01, answer_s=0.005, block_s=0.03)) == "here"


def test_a_driver_that_was_busy_past_the_deadline_listens_once_more() -> None:
    assert asyncio.run(after_a_block(timeout_s=0.01, answer_s=0.2, block_s=0.15)) == "here"


def test_after_that_it_is_late() -> None:
    with pytest.raises(RunFailed, match="no answer after 0 s"):
        asyncio.run(after_a_block(timeout_s=0.01, answer_s=60.0, block_s=0.12))
