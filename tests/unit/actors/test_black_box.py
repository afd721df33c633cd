"""What is left in the black box: for whom the loop was at work, and a line of somebody's code."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import actors
from actors import black_box
from actors.black_box import NO_CALL, CallMark, Recorder

OURS = Path(actors.__file__).parent


@pytest.fixture
def box() -> Iterator[int]:
    descriptor = black_box.create()
    yield descriptor
    os.close(descriptor)


def test_every_step_is_marked_for_whom_it_is_taken_and_so_are_the_tasks_that_it_starts(box: int) -> None:
    recorder, seen = Recorder(box), []

    async def work(name: str) -> None:
        seen.append((name, black_box.read_mark(box)))
        await asyncio.sleep(0)
        seen.append((name, black_box.read_mark(box)))
        await asyncio.gather(helper(name), helper(name))

    async def helper(name: str) -> None:
        seen.append((name, black_box.read_mark(box)))

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(recorder.task_factory)
        tasks = [
            loop.create_task(work(name), context=recorder.context(CallMark(group, call)))
            for name, group, call in [("a", 1, 7), ("b", 2, 8)]
        ]
        await asyncio.gather(*tasks)
        await asyncio.create_task(asyncio.sleep(0))
        assert black_box.read_mark(box) == NO_CALL

    asyncio.run(scenario())
    assert len(seen) == 8 and set(seen) == {("a", CallMark(1, 7)), ("b", CallMark(2, 8))}


def test_a_marked_task_is_cancelled_and_fails_like_any_other(box: int) -> None:
    recorder = Recorder(box)

    async def scenario() -> None:
        asyncio.get_running_loop().set_task_factory(recorder.task_factory)
        asleep = asyncio.create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        asleep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asleep
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.create_task(asyncio.sleep(60))
        assert await asyncio.create_task(asyncio.sleep(0, "done")) == "done"

    asyncio.run(scenario())


def stack(*frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join(["Stack (most recent call first):", *lines, ""])


def test_the_line_is_that_of_the_code_that_was_called_with_its_text(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("import time\ntime.sleep(5)\n")
    ours = (str(OURS / "env_server.py"), 70, "step"), (str(OURS / "black_box.py"), 90, "send")
    place = black_box.place(stack((str(mine), 2, "step"), *ours, ("asyncio/events.py", 80, "_run")))
    assert place == f"{mine}:2 in step: time.sleep(5)"
    deep = [("/lib/socket.py", 706, "readinto"), ("/lib/http.py", 5, "get"), (str(mine), 2, "step")]
    place = black_box.place(stack(*deep, *ours))
    assert place == f"/lib/socket.py:706 in readinto, called from {mine}:2 in step: time.sleep(5)"


@pytest.mark.parametrize("text", ["", "nonsense", stack((str(OURS / "env_server.py"), 1, "serve"))])
def test_a_stack_without_somebody_elses_code_names_no_line(text: str) -> None:
    assert black_box.place(text) == ""
