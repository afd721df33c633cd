"""Frameworks that people write agents with, unchanged: each runs its own loop of tools over each of OpenAI's APIs that
it speaks, from a venv of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.renderer import ChatRenderer
from envs.protocols.families.tagged import HERMES
from rlsys.samples import sample_trajectory
from rlsys.types import EpisodeEnd, Reward, ToolCall
from tests.makers.agents import PLAN, Playing, install
from tests.makers.played import tokenizer_in

CALL = HERMES.write("Let me add.", (ToolCall(name="add", arguments={"a": 2, "b": 3}),))
PYDANTIC_AI = """
import json, sys
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

speak = OpenAIResponsesModel if "responses" in sys.argv else OpenAIChatModel
agent = Agent(speak("policy", provider=OpenAIProvider()), system_prompt="Add.")

@agent.tool_plain
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

print(float(agent.run_sync(json.load(sys.stdin)["question"]).output == "It is 5."))
"""
OPENAI_AGENTS = """
import asyncio, json, sys
from agents import Agent, Runner, function_tool, set_default_openai_api, set_tracing_disabled

if "chat" in sys.argv:
    set_default_openai_api("chat_completions")
set_tracing_disabled(True)

@function_tool
def add(a: int, b: int) -> int:
    \"\"\"Add two numbers.\"\"\"
    return a + b

agent, question = Agent(name="adder", instructions="Add.", tools=[add]), json.load(sys.stdin)["question"]

async def run():
    if "streamed" not in sys.argv:
        return await Runner.run(agent, question)
    result = Runner.run_streamed(agent, question)
    async for event in result.stream_events():
        pass
    return result

print(float(asyncio.run(run()).final_output == "It is 5."))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "package, script, ways",
    [
        ("pydantic-ai-slim[openai]==2.68.0", PYDANTIC_AI, ["chat", "responses"]),
        ("openai-agents==0.24.0", OPENAI_AGENTS, ["chat", "responses", "responses streamed"]),
    ],
    ids=["pydantic-ai", "openai-agents"],
)
def test_its_loop_of_tools_is_one_sample(package: str, script: str, ways: list[str], tmp_path: Path) -> None:
    python = install(package, tmp_path)
    (tmp_path / "agent.py").write_text(script)
    texts = ["Add. 2 + 3? Let me add. It is 5. add two numbers", CALL]
    renderer = ChatRenderer(str(tokenizer_in(tmp_path / "model", texts, HERMES.tags)))
    for way in ways:
        command = f"{python} {tmp_path / 'agent.py'} {way}"
        playing = Playing(tmp_path, renderer, agent=command)
        try:
            played = playing.play("2 + 3?", CALL, "It is 5.", plan=PLAN)
        finally:
            playing.close()
        assert played.end is EpisodeEnd.ANSWERED and isinstance(played.reward, Reward), (way, played.state)
        assert played.reward.value == 1.0 and "new_conversations" not in played.metrics
        assert [message.role for message in played.messages] == ["system", "user", "assistant", "tool", "assistant"]
        assert played.messages[3].content == "5"
        (sample,) = sample_trajectory(played, 1.0)
        assert sample.num_loss_tokens == played.num_sampled
