"""A search protocol is one file and one line of the table: played in search_qa and scored from one string."""

import asyncio
import json
import re
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import envs.protocols as table
from envs.problems.knowledge import KnowledgeConfig, of_task
from envs.protocols import PROTOCOLS
from envs.rewards.transcript import inline_of, split_inline
from envs.worlds.search import SearchQAWorld
from envs.worlds.search_config import SearchQAConfig
from launch.config.compose import compose
from rlsys.errors import BadInput
from rlsys.records import read_transcript
from rlsys.types import EpisodeEnd, Message
from tests.paths import ROOT


@pytest.fixture(autouse=True)
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> table.Protocol:
    """The protocol of docs/environments/protocols.md, under the name `ask`."""
    page = (ROOT / "docs" / "environments" / "protocols.md").read_text()
    (block,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "ask.py").write_text(block)
    protocol: table.Protocol = runpy.run_path(str(tmp_path / "ask.py"), {**vars(table), "Message": Message})["PROTOCOL"]
    monkeypatch.setitem(table.PROTOCOLS, "ask", protocol)  # type: ignore[arg-type]
    return protocol


SMALL: dict[str, Any] = {"train_tasks": 20, "held_out_tasks": 5, "knowledge": KnowledgeConfig(entities=60)}


def test_search_qa_plays_it(ask: table.Protocol) -> None:
    world = SearchQAWorld(SearchQAConfig(protocol="ask", demo_error_rate=0.0, **SMALL))
    assert (world.max_turns, world.tags) == (4, ask.tags)
    task = world.tasks("train")[0]
    prompt, *said = world.demonstration(task, 0).messages
    assert prompt.content.startswith("Ask with <ask>words</ask>") and prompt.content.endswith(task.question)
    relation = of_task(task).relations[0]
    assert said[0].content == f"<ask>{relation} of {of_task(task).start}</ask>"
    assert said[1].inline and said[1].content.startswith(f"<found>The {relation} of ")
    assert said[-1].content == f"<answer>{task.answers[0]}</answer>"

    async def replay() -> None:
        server = world.start_service(host="127.0.0.1", port=0, token="token")
        try:
            world.connect(server.url, "token")
            env = world.env(task)
            for turn in range(0, len(said), 2):
                step = await env.step(said[turn].content, turns_left=world.max_turns - turn // 2 - 1)
                assert step.reply == (said[turn + 1] if turn + 1 < len(said) else None)
            assert step.end is EpisodeEnd.ANSWERED
            await world.close()
        finally:
            server.stop()

    asyncio.run(replay())


def test_it_is_a_key_of_the_command_line_like_the_others() -> None:
    config = compose("worlds/search", ["env.protocol=ask", "reward.name=answer"])
    assert config.recipe.env.protocol == "ask"
    searching = ", ".join(name for name, protocol in PROTOCOLS.items() if protocol.topk is not None)
    for other in ("asc", "swirl_math", "retool"):  # a calculator and Python are no search
        with pytest.raises(BadInput, match=rf"env\.protocol='{other}': expected one of {searching}"):
            SearchQAConfig(protocol=other)
    with pytest.raises(BadInput, match=r"env\.template='base': expected instruct: protocol=ask is a chat"):
        SearchQAConfig(protocol="ask", template="base")


def test_its_episodes_are_scored_from_one_string() -> None:
    inline = inline_of(SearchQAConfig(protocol="ask"), reward=None)
    response = "<ask>q</ask><found>The <answer>no</answer></found><answer>yes</answer>"
    line = json.dumps({"task": {"question": "q", "answers": ["yes"]}, "response": response})
    said = read_transcript(line.encode(), partial(split_inline, inline=inline)).messages
    assert [(message.role, message.content) for message in said] == [
        ("assistant", "<ask>q</ask>"),
        ("tool", "<found>The <answer>no</answer></found>"),
        ("assistant", "<answer>yes</answer>"),
    ]
