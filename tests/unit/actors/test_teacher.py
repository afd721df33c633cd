"""A teacher in the place of the workers: how long its episodes may take, what it is asked, and what lives beside it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import actors.playing_here
import actors.teacher
from actors.env_worker import CannotStart
from actors.services import ServiceSpec
from actors.teacher import TeacherPlays, open_teacher_player
from envs.services.endpoint import Choice, Question
from rlsys.config.generate import TeacherConfig
from rlsys.errors import BadInput, RunFailed
from rlsys.rollout import TurnRequest
from rlsys.system.calls import SERVICE_TOKEN
from rlsys.types import Group, Message, TurnStop
from tests.makers import made
from tests.makers.made import plan, ticket
from tests.refused import refused


class Letters:
    """A token for each letter."""

    turn_end = 0

    def text_ids(self, text: str) -> tuple[int, ...]:
        return tuple(map(ord, text))


class Teacher:
    patience_s = 100.0

    def __init__(self, *_: Any, **given: Any) -> None:
        self.given, self.asked, self.closed = given, [], 0
        self.asked: list[tuple[Question, Any]] = []

    async def answer(self, question: Question, key: Any) -> Choice:
        self.asked.append((question, key))
        return Choice(text="5", thought="", truncated=question.seed == 9)

    async def close(self) -> None:
        self.closed += 1


class FakeWorlds:
    made: list[FakeWorlds]

    def __init__(self, turns: int | Exception = 1) -> None:
        self.turns, self.stopped, self.heard = turns, 0, {}
        self.heard: dict[str, str] = {}
        self.env = self.score = self.compare = None

    def play(self, plan: Any, task: Any) -> FakeWorlds:
        return self

    def __enter__(self) -> FakeWorlds:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def max_turns(self) -> int:
        if isinstance(self.turns, Exception):
            raise self.turns
        return self.turns

    def connect(self, addresses: dict[str, str]) -> None:
        self.heard = addresses

    async def stop(self) -> None:
        self.stopped += 1


def plays(turns: int | Exception, config: TeacherConfig | None = None) -> TeacherPlays:
    parts: Any = (config or TeacherConfig(), Teacher(), FakeWorlds(turns), Letters())
    return TeacherPlays(*parts, 7)


@pytest.mark.parametrize(
    ("turns", "constructs", "patience"), [(1, False, 100.0), (3, False, 300.0), (1, True, 100.0 * 4)]
)
def test_an_episode_may_take_what_the_teachers_patience_does(
    monkeypatch: pytest.MonkeyPatch, turns: int, constructs: bool, patience: float
) -> None:
    seen: list[Any] = []

    async def run_group(player: Any, source: Any, asked: Any, played: Any) -> Group:
        seen.append((player, await source.max_turns(), played))
        return made.group(asked)

    monkeypatch.setattr(actors.playing_here, "run_group", run_group)
    config = TeacherConfig(constructs=constructs, max_steps=4)
    asyncio.run(plays(turns, config).group(ticket(), plan(timeout_s=20.0), lambda _: None))
    ((player, asked_turns, played),) = seen
    assert (played.timeout_s, asked_turns, player.run_seed, player.name) == (20.0 + patience, turns, 7, "teacher")


def test_no_chain_of_thought_is_constructed_over_several_messages() -> None:
    with refused("generate.teacher.constructs", found=True):
        asyncio.run(plays(2, TeacherConfig(constructs=True)).group(ticket(), plan(), lambda _: None))


def test_an_environment_that_cannot_be_made_ends_the_run() -> None:
    with pytest.raises(RunFailed, match="the environment cannot be made: no corpus"):
        asyncio.run(plays(CannotStart("no corpus")).group(ticket(), plan(), lambda _: None))


def test_the_teacher_is_asked_what_the_policy_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    turn_request = TurnRequest(
        max_tokens=6, temperature=0.5, top_p=0.9, seed=4, messages=(Message(role="user", content="2 + 3?"),)
    )
    teaches = plays(1)
    whole = asyncio.run(teaches.generate(made.ints([1]), turn_request))
    cut = asyncio.run(teaches.generate(made.ints([1]), TurnRequest(max_tokens=6, temperature=1, top_p=1, seed=9)))
    (question, key), _ = teaches.teacher.asked  # type: ignore[attr-defined]
    assert question == Question(
        messages=(Message(role="user", content="2 + 3?"),), max_tokens=6, temperature=0.5, top_p=0.9, seed=4
    )
    assert key == {"seed": 4}
    assert (whole.text, whole.stop, cut.stop) == ("5", TurnStop.EOS, TurnStop.LENGTH)

    async def construct(teacher: Any, prompts: Any, problem: str, question: Question, most: int) -> str:
        return f"{problem} in {most}"

    monkeypatch.setattr(actors.teacher, "construct", construct)
    built = plays(1, TeacherConfig(constructs=True, max_steps=4))
    messages = tuple(Message(role="user", content=text) for text in ("a", "b"))
    completion = asyncio.run(
        built.generate(made.ints([1]), TurnRequest(max_tokens=60, temperature=1, top_p=1, seed=9, messages=messages))
    )
    assert (completion.text, completion.stop) == ("a\n\nb in 4", TurnStop.EOS)


class Server:
    def __init__(self, name: str, ended: list[str]) -> None:
        self.url, self.stop = f"http://{name}", lambda: ended.append(name)


@pytest.mark.parametrize("breaks", [False, True])
def test_what_lives_beside_a_teacher_ends_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, breaks: bool
) -> None:
    ended: list[str] = []
    tokens: list[str] = []
    worlds, teachers = FakeWorlds(), []

    def start(config: Any, *, host: str, port: int, token: str) -> Any:
        assert (host, port) == ("127.0.0.1", 0)
        if config == "second" and breaks:
            raise BadInput("no corpus")
        tokens.append(token)
        return Server(config, ended)

    def made_teacher(*given: Any, **more: Any) -> Teacher:
        teachers.append(Teacher(*given, **more))
        return teachers[0]

    monkeypatch.setattr(actors.playing_here, "EnvWorkerPool", lambda spec: worlds)
    monkeypatch.setattr(actors.teacher, "Teacher", made_teacher)
    generate = SimpleNamespace(teacher=TeacherConfig(), concurrency=2, samples=5)
    recipe: Any = SimpleNamespace(generate=generate, seed=3)
    configs = (("first", "first"), ("second", "second"), ("first", "another"))
    services = [ServiceSpec(name=name, config=config, start=start) for name, config in configs]  # type: ignore[arg-type]

    async def story() -> Sequence[str]:
        async with open_teacher_player(recipe, Letters(), None, services, tmp_path / "said") as opening:  # type: ignore[arg-type]
            assert opening.player.run_seed == 3
            assert worlds.heard == {"first": "http://first", "second": "http://second"}
            assert {os.environ[SERVICE_TOKEN]} == set(tokens) and len(tokens[0]) == 32
            assert ended == []
        return ended

    if breaks:
        with refused(says="no corpus"):
            asyncio.run(story())
    else:
        asyncio.run(story())
    assert ended == (["first"] if breaks else ["first", "second"])
    assert (worlds.stopped, teachers[0].closed, SERVICE_TOKEN in os.environ) == (1, 1, False)
    assert teachers[0].given == {"concurrency": 5, "log": tmp_path / "said"}
