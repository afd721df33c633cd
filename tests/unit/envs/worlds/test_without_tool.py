"""`env.tools: false`: no prompt names the tool, no call is carried out, nothing is started for one."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import envs
from envs import WORLDS
from envs.base import Step, World
from envs.papers.swirl.protocol import OVER_LIMIT
from envs.protocols import PROTOCOLS
from envs.tasks.prompts import ExamplesConfig
from launch.cli import run
from launch.config.compose import compose
from launch.driver.evaluation.sets import sets_of
from rlsys.choices import choose
from rlsys.types import EpisodeEnd
from tests.makers.made import jsonl
from tests.refused import refused

SMALL: dict[str, Any] = {"train_tasks": 30, "held_out_tasks": 4}
# By environment and protocol: a call, an answer to "q?", and whether a call is told to answer.
CALLS = {
    ("calculator", "swirl_math"): ("<math_exp>48 / 2</math_exp>", "<answer>24</answer>", True),
    ("python_math", "retool"): ("<code>\n```python\nprint(1)\n```\n</code>", "<answer>\\boxed{24}</answer>", False),
    ("search_qa", "swirl"): ("<search_query>q</search_query>", "<answer>24</answer>", True),
    ("search_qa", "research"): ("<search> q </search>", "<answer> \\boxed{24} </answer>", False),
    ("search_qa", "icrl"): ("<search> q </search>", "<answer> 24 </answer>", False),
}


def make(name: str, protocol: str, **keys: Any) -> World:
    own = {"protocol": protocol} if name == "search_qa" else {}
    return envs.new_world(choose("env", WORLDS, name).schema(**(SMALL | own | keys)))


def play(world: World, *texts: str) -> list[Step]:
    env = world.env(world.tasks("train")[0])

    async def steps() -> list[Step]:
        return [await env.step(text, turns_left=world.max_turns - turn - 1) for turn, text in enumerate(texts)]

    return asyncio.run(steps())


def ends(steps: Sequence[Step]) -> list[EpisodeEnd | None]:
    return [step.end for step in steps]


@pytest.mark.parametrize(("name", "protocol"), CALLS)
def test_a_call_is_one_over_the_limit_and_an_answer_an_answer(name: str, protocol: str) -> None:
    call, answer, notice = CALLS[name, protocol]
    world = make(name, protocol, tools=False, max_turns=9)
    assert (world.max_turns, world.service, world.tool) == (1 + notice, "", None)
    assert ends(play(world, answer)) == [EpisodeEnd.ANSWERED]
    if notice:
        first, *rest = play(world, call, call)
        assert first.reply is not None and first.reply.content == OVER_LIMIT
        assert ends(rest) == [EpisodeEnd.TURN_LIMIT]
        assert ends(play(world, call, answer)) == [None, EpisodeEnd.ANSWERED]
    else:
        assert ends(play(world, call)) == [EpisodeEnd.TURN_LIMIT]


@pytest.mark.parametrize(("name", "protocol"), CALLS)
def test_neither_prompt_nor_demonstration_has_a_call(name: str, protocol: str) -> None:
    named = [tag for tag in PROTOCOLS[protocol].tags if tag in PROTOCOLS[protocol].write_call("")]
    world, with_tool = make(name, protocol, tools=False), make(name, protocol)
    assert len(named) == 2 and world.tasks("train") == with_tool.tasks("train")
    assert all(tag in with_tool.env(world.tasks("train")[0]).first_messages()[0].content for tag in named)
    right = 0
    for task in world.tasks("train"):
        prompt, messages = world.env(task).first_messages(), world.demonstration(task, 0).messages
        assert messages[:-1] == prompt
        assert not any(tag in message.content for tag in named for message in messages)
        right += messages[-1].content.endswith(world.write_answer(task.answers[0]))
        assert ends(play(world, messages[-1].content)) == [EpisodeEnd.ANSWERED]
    assert 0 < right < len(world.tasks("train"))
    world = make(name, protocol, tools=False, demo_error_rate=0.0)
    for task in world.tasks("train")[:9]:
        assert world.demonstration(task, 0).messages[-1].content.endswith(world.write_answer(task.answers[0]))


@pytest.mark.parametrize(("name", "protocol"), CALLS)
def test_a_wording_of_ones_own_may_not_name_the_tool(name: str, protocol: str) -> None:
    task = make(name, protocol).tasks("train")[0]
    for own in ("", "Be brief."):
        messages = make(name, protocol, tools=False, instruction=own).env(task).first_messages()
        assert messages[0].content.startswith(own)
    with refused("env.instruction", expected='null, "" or a text without <'):
        make(name, protocol, tools=False, instruction=PROTOCOLS[protocol].instruction)
    if PROTOCOLS[protocol].shows_examples:
        with refused("env.demonstrations.count", found=2):
            make(name, protocol, tools=False, demonstrations=ExamplesConfig(count=2))


def test_questions_of_a_file_need_no_passages(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "q.jsonl", [{"question": f"q{n}?", "answer": f"{n}"} for n in range(3)])
    assert len(make("search_qa", "icrl", tools=False, data=data).tasks("all")) == 3


def test_a_set_of_an_evaluation_plays_without_the_tool() -> None:
    config = compose("worlds/search", ["eval.sets.with={}", "eval.sets.without.env.tools=false"])
    worlds = {eval_set.name: envs.make_world(eval_set.recipe.env) for eval_set in sets_of(config.stages[0].config)}
    assert worlds["with"].service and not worlds["without"].service
    assert worlds["with"].tasks("held_out") == worlds["without"].tasks("held_out")


def test_a_world_without_a_tool_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "worlds/graph", "env.tools=false"]) == 2
    assert capsys.readouterr().err == "rlsys: error: config: env.tools=False: expected true: graph has no tool\n"
