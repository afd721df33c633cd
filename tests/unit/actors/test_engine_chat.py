"""A judge that is an engine of this process."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

import actors.judge
from actors.engine import Engine
from actors.judge import EngineChat
from actors.specs import PromptTooLong
from envs.services.endpoint import Choice, Question
from envs.services.guard import ToolRefused
from envs.services.judge.config import JudgeConfig
from envs.services.judge.judge import Judge
from rlsys.types import Message, TurnStop
from tests.makers.made import engine_spec


def test_a_question_is_one_message_of_the_users_and_its_end_says_whether_it_was_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[Any] = []
    stops = [TurnStop.EOS, TurnStop.LENGTH, TurnStop.ABORT]
    stopped: list[int] = []
    engine: Any = SimpleNamespace(spec=engine_spec("judge"), failure=None, stop=lambda: stopped.append(1))

    async def generate(ids: Any, request: Any, name: str) -> Any:
        requests.append((ids, request, name))
        if not stops:
            raise PromptTooLong(9, 8)
        return SimpleNamespace(text="YES", stop=stops.pop(0))

    engine.generate = generate

    async def start(spec: Any) -> Any:
        return engine

    renderer = SimpleNamespace(prompt_ids=lambda messages: [(message.role, message.content) for message in messages])
    renderer.usable = lambda: renderer
    monkeypatch.setattr(actors.judge, "ChatRenderer", lambda path: renderer)
    monkeypatch.setattr(Engine, "start", start)

    async def story() -> None:
        chat = await EngineChat.start(engine_spec("judge"))
        assert (chat.model, chat.where, chat.own) == ("judge", "", True)
        message = Message(role="user", content="5?")
        question = Question(messages=(message,), max_tokens=5, temperature=0.25, seed=3)
        assert await chat.complete(question) == Choice(text="YES", truncated=False)
        assert await chat.complete(question) == Choice(text="YES", truncated=True)
        with pytest.raises(ConnectionError, match="aborted"):
            await chat.complete(question)
        with pytest.raises(ToolRefused, match="a prompt of 9 tokens"):
            await chat.complete(question)
        assert not Judge(chat, JudgeConfig()).broken
        engine.failure = "the EngineCore died"  # one failed call is not enough to open the circuit
        assert Judge(chat, JudgeConfig()).broken
        await chat.close()

    asyncio.run(story())
    assert stopped == [1] and len({name for _, _, name in requests}) == 4
    ids, request, _ = requests[0]
    assert ids == [("user", "5?")]
    assert (request.max_tokens, request.temperature, request.top_p, request.seed) == (5, 0.25, 1.0, 3)
