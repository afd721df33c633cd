"""What a user's own code raised is told with its line: short, bounded, and without anything that a terminal obeys."""

import asyncio
import importlib.util
import json
import pickle
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from actors.env_server import answer
from rlsys.broken import failure_of
from rlsys.harvest import first_exception
from rlsys.records import make_record, to_json
from rlsys.rollout import RolloutPlan
from rlsys.summaries import summarize
from rlsys.types import Failure, FailureKind, Group, Ticket
from rlsys.untrusted import TEXT, TRACE, visible
from tests.unit.rlsys.test_rollout import PLAY, Counting, counting, play, saying

WORLD = """
import json
class Boom(Exception):
    def __str__(self): raise ValueError
def inner(bag):
    return bag["inventory"]
def lookup():
    return inner({})
def library():
    return json.loads("{")
def long():
    raise ValueError("\\x1b[31m" + "x" * 100_000)
def deep(n=0):
    return deep(n + 1)
def caused():
    try:
        lookup()
    except KeyError as error:
        raise RuntimeError("no bag") from error
def left():
    raise SystemExit(3)
def unspeakable():
    raise Boom
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    path = tmp_path_factory.mktemp("mine") / "world.py"
    path.write_text(WORLD)
    spec = importlib.util.spec_from_file_location("world", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def raised(world: ModuleType, name: str) -> Failure:
    try:
        getattr(world, name)()
    except BaseException as error:
        return failure_of(error, "environment")
    raise AssertionError


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("lookup", "KeyError: 'inventory' (world.py:6 in inner)"),
        ("caused", "RuntimeError: no bag (world.py:19 in caused)"),
        ("left", "SystemExit: 3 (world.py:21 in left)"),
        ("unspeakable", "Boom: its text raises ValueError (world.py:23 in unspeakable)"),
    ],
)
def test_the_innermost_line_of_a_users_file_is_named(world: ModuleType, name: str, detail: str) -> None:
    failure = raised(world, name)
    assert failure.detail == detail
    assert "world.py" in failure.trace and str(Path(__file__).parents[3] / "rlsys") not in failure.trace


def test_the_line_is_theirs_where_a_library_gave_up(world: ModuleType) -> None:
    failure = raised(world, "library")
    assert failure.detail.startswith("JSONDecodeError: ") and failure.detail.endswith(" (world.py:10 in library)")
    assert "decoder.py" in failure.trace


def test_causes_are_told_and_calls_stand_in_order(world: ModuleType) -> None:
    trace = raised(world, "caused").trace
    assert trace.index("in lookup") < trace.index("in inner") < trace.index("direct cause") < trace.index("no bag")


def test_what_is_told_is_bounded_and_no_control_character_is_in_it(world: ModuleType) -> None:
    for name in ("long", "deep"):
        failure = raised(world, name)
        assert len(failure.detail) < TEXT + 200 and len(failure.trace) < TRACE + 100
        assert failure.detail.endswith(" in long)") or failure.detail.endswith(" in deep)")
        assert all(character.isprintable() or character == "\n" for character in failure.detail + failure.trace)
        assert "\n" not in failure.detail


def test_what_our_own_code_raises_has_no_place() -> None:
    with pytest.raises(TypeError) as caught:
        RolloutPlan()  # type: ignore[call-arg]
    caught.value.__traceback__ = None
    assert failure_of(caught.value, "x").trace == "" and "(" not in failure_of(caught.value, "x").detail[-3:]


def test_the_process_of_environments_passes_it_on(world: ModuleType) -> None:
    async def step() -> None:
        world.lookup()

    kind, failure = asyncio.run(answer(step(), "step"))
    sent = pickle.loads(pickle.dumps(failure))
    assert (kind, sent.kind, sent.where) == ("broken", FailureKind.DATA, "environment")
    assert sent.detail == "KeyError: 'inventory' (world.py:6 in inner)" and "in lookup" in sent.trace

    async def leave() -> None:
        world.left()

    assert asyncio.run(answer(leave(), "score"))[1].detail == "SystemExit: 3 (world.py:21 in left)"


def test_an_episode_that_was_played_again_is_counted_and_its_line_says_why(world: ModuleType) -> None:
    left = [1]

    class Flaky(Counting):
        async def step(self, text: str, *, turns_left: int):  # type: ignore[no-untyped-def]
            if left:
                left.pop()
                world.lookup()
            return await super().step(text, turns_left=turns_left)

    trajectory = play(saying("5!"), lambda _: Flaky(), plan=replace(PLAY, data_retries=1))
    assert not isinstance(trajectory.reward, Failure) and len(trajectory.retried) == 1
    seen = summarize(trajectory)
    failure = first_exception([seen])
    assert failure is not None and failure.detail == "KeyError: 'inventory' (world.py:6 in inner)"
    assert failure.trace == ""  # the driver hears of thousands
    assert first_exception([summarize(play(saying("5!"), counting))]) is None
    ticket = Ticket(sequence=0, epoch=0, task=trajectory.task, attempt=0, start_version=0)
    group = Group(ticket=ticket, trajectories=(trajectory,), worker="w")
    line = json.loads(json.dumps(to_json(make_record(trajectory, group))))
    (again,) = line["retried"]
    assert again["detail"] == failure.detail and "in lookup" in again["trace"] and "failure" not in line


@pytest.mark.parametrize("code", [0x34F, 0x180B, 0x200B, 0x202E, 0x2800, 0x3164, 0xFE00, 0xFE0F, 0xE0100, 0xE01EF])
def test_what_has_no_shape_is_shown_as_an_escape(code: int) -> None:
    assert visible(f"a{chr(code)}é") == f"a{chr(code).encode('unicode_escape').decode()}é"
