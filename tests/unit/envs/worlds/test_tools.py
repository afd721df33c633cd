"""Episodes with several calls in a message, made-up errands, and the keys of the list of tools."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.base import find_demonstrable
from envs.papers.graph_rl.tool import verify_graph_answer
from envs.problems import errands
from envs.protocols.families.tagged import HERMES
from envs.protocols.native import read_calls
from envs.services.guard import ToolFailed
from envs.tools.offered import PlainTool, ServedTool, ToolEntry, compute, one_text
from envs.tools.result import Result, ToolError
from envs.tools.schema import Schema, find_problem, schema_of
from envs.tools.search import SearchConfig, SearchTool
from envs.worlds.tools import ToolsConfig, ToolsWorld
from launch.config.compose import compose
from rlsys.broken import failure_of
from rlsys.dialogue import Dialogue
from rlsys.errors import BadInput
from rlsys.types import EpisodeEnd, FailureKind, Message, Step, Task, ToolCall
from tests.makers.made import jsonl
from tests.refused import refused

PRICE = ToolEntry(function="envs.problems.errands.price")
OURS = [ToolEntry(name="search"), ToolEntry(name="python"), PRICE]
SMALL: dict[str, Any] = {"train_tasks": 40, "held_out_tasks": 8, "topk": 1}
SUM = ToolCall(name="calculator", arguments={"expression": "48 / 2"})


@pytest.fixture(scope="module")
def world() -> ToolsWorld:
    return ToolsWorld(ToolsConfig(tools=OURS, demo_error_rate=0.5, **SMALL))


def calculating(**keys: Any) -> ToolsWorld:
    return ToolsWorld(ToolsConfig(tools=[ToolEntry(name="calculator")], **SMALL, **keys))


def step(world: ToolsWorld, *calls: ToolCall, text: str = "", turns_left: int = 3) -> Step:
    env = world.env(world.tasks("train")[0])
    return asyncio.run(env.step(text, turns_left=turns_left, calls=Dialogue().number(calls)))


def test_each_call_of_a_message_gets_a_message_in_answer() -> None:
    broken = ToolCall(name="", problem="the call is not valid JSON")
    unknown, wrong = ToolCall(name="oracle"), ToolCall(name="calculator", arguments={"expression": 5})
    done = step(calculating(), SUM, broken, unknown, wrong, SUM)
    contents = [reply.content for reply in done.replies]
    assert contents[0] == contents[4] == "24.0" and all(content.startswith("error: ") for content in contents[1:4])
    assert [reply.role for reply in done.replies] == ["tool"] * 5 and done.end is None
    assert len({reply.call_id for reply in done.replies}) == 5 and {len(reply.call_id) for reply in done.replies} == {9}
    assert done.metrics == {"calls": 5, "valid_calls": 2, "several_calls": 1, "calls_calculator": 2, "failed_calls": 3}


def test_calls_over_the_limits() -> None:
    world = calculating(max_calls=2)
    done = step(world, *[SUM] * 5)
    assert [reply.content for reply in done.replies[:2]] == ["24.0"] * 2
    assert len(done.replies) == 3 and "5 calls in one message" in done.replies[2].content
    assert step(world, SUM, turns_left=0) == Step(end=EpisodeEnd.TURN_LIMIT)


def test_a_message_without_calls_is_the_answer_or_malformed() -> None:
    world = calculating()
    assert step(world, text="<answer>5</answer>").end is EpisodeEnd.ANSWERED
    assert step(world, text="5").end is EpisodeEnd.MALFORMED
    assert step(calculating(style="free"), text="5").end is EpisodeEnd.ANSWERED


def test_a_repeated_call_is_flagged_and_a_reward_sees_the_calls() -> None:
    env = calculating().env(Task(task_id="t", question="q"))

    async def play() -> list[Step]:
        return [await env.step("", turns_left=3, calls=(SUM,)) for _ in range(2)]

    assert [turn.repeated for turn in asyncio.run(play())] == [False, True]
    assert env.final_state() == {"calls": [{"name": "calculator", "ok": True}] * 2}
    assert step(calculating(), SUM, SUM).repeated  # in one message
    broken = ToolCall(name="", problem="the call is not valid JSON")
    assert not step(calculating(), broken, broken).repeated


def test_names_that_a_policy_makes_up_do_not_fill_the_final_state() -> None:
    env = calculating(max_calls=64).env(Task(task_id="t", question="q"))
    unknown = ToolCall(name="\U0001f600" * 64)

    async def play() -> None:
        for _ in range(10):
            await env.step("", turns_left=3, calls=(unknown,) * 64)

    asyncio.run(play())
    state = env.final_state()
    assert state is not None and len(json.dumps(state)) < 1 << 16 and state["calls"][0] == {"name": "", "ok": False}


def test_without_tools_the_first_message_is_the_answer_whatever_it_looks_like() -> None:
    env = ToolsWorld(ToolsConfig(tools=[], style="free", data=None, **SMALL)).env(Task(task_id="t", question="q"))
    assert not hasattr(env, "offer")
    done = asyncio.run(env.step('<tool_call>\n{"name": "x", "arguments": {}}\n</tool_call>', turns_left=3))
    assert done.end is EpisodeEnd.ANSWERED


def test_a_tool_that_is_down_ends_the_episode_with_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    async def down(arguments: Any) -> Result:
        raise ToolFailed(FailureKind.INFRA, "calculator", "down")

    world = calculating()
    monkeypatch.setattr("envs.tools.offered.PlainTool.episode", lambda self: lambda name, arguments: down(arguments))
    with pytest.raises(ToolFailed):
        step(world, SUM, SUM)


class LateServer(PlainTool):
    """Starts at the second attempt."""

    attempts = 0

    def schemas(self) -> Sequence[Schema]:
        self.attempts += 1
        if self.attempts == 1:
            raise BadInput("the MCP server does not answer within 60 s", key="env.tools.0.mcp")
        return super().schemas()


def test_a_server_that_starts_late_is_infrastructure_and_one_attempt_is_for_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = LateServer(schema_of(compute, "calculator"), compute)
    monkeypatch.setattr("envs.worlds.tools.make_offered", lambda *_: late)
    world = calculating()

    async def open_all() -> list[Any]:
        task = world.tasks("train")[0]
        return await asyncio.gather(*(world.open_env(task) for _ in range(4)), return_exceptions=True)

    first = asyncio.run(open_all())
    failures = [failure_of(error, "environment") for error in first if isinstance(error, Exception)]
    assert [failure.kind for failure in failures] == [FailureKind.INFRA] * 4 and late.attempts == 1
    assert "env.tools.0.mcp" in failures[0].detail
    envs = asyncio.run(open_all())
    assert late.attempts == 2 and all(env.offer.schemas for env in envs)


def test_who_stops_waiting_for_a_server_ends_nobody_elses_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    late = LateServer(schema_of(compute, "calculator"), compute)
    late.attempts = 1
    monkeypatch.setattr("envs.worlds.tools.make_offered", lambda *_: late)
    world = calculating()

    async def play() -> bool:
        task = world.tasks("train")[0]
        gone, waits = (asyncio.create_task(world.open_env(task)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await waits
        return gone.cancelled()

    assert asyncio.run(play()) and late.attempts == 2


def test_every_kind_of_errand_is_made_and_run(world: ToolsWorld) -> None:
    tasks = world.tasks("train")
    assert len(tasks) == 40 and {world.level(task) for task in tasks} == set(errands.KINDS)
    assert not {task.question for task in tasks} & {task.question for task in world.tasks("held_out")}
    right = ToolsWorld(ToolsConfig(tools=OURS, demo_error_rate=0.0, **SMALL))
    wrong = ToolsWorld(ToolsConfig(tools=OURS, demo_error_rate=1.0, **SMALL))
    for task in tasks[:12]:
        messages = right.demonstration(task, 0).messages
        assert messages[-1].content == f"<answer>{task.answers[0]}</answer>"
        assert wrong.demonstration(task, 0).messages[-1].content != messages[-1].content
        for before, after in zip(messages, messages[1:], strict=False):
            assert (after.role == "assistant") == (before.role in ("user", "tool")) or after.role == "tool"
    errand = next(task for task in tasks if world.level(task) == "both")
    first, _, _, second, *_ = right.demonstration(errand, 0).messages[1:]
    assert [call.name for call in first.calls] == ["price", "price"] and second.calls[0].name == "python"


def test_a_demonstration_is_what_the_tools_would_say(world: ToolsWorld) -> None:
    messages = world.demonstration(
        next(task for task in world.tasks("train") if world.level(task) == "price"), 0
    ).messages
    again = ToolsWorld(ToolsConfig(tools=OURS, demo_error_rate=0.5, **SMALL))
    assert again.demonstration(world.tasks("train")[0], 3) == world.demonstration(world.tasks("train")[0], 3)
    assert messages[0].content.startswith("What does the")
    assert (
        errands.expected_output("print(3 * 4 + 5)") == "17"
        and errands.expected_output("print('red lamp')") == "red lamp"
    )


def test_without_a_template_for_tools_words_and_user_messages_do_it() -> None:
    world = calculating(protocol="hermes")
    env = world.env(world.tasks("train")[0])
    system, question = env.first_messages()
    assert (system.role, question.role) == ("system", "user") and '"calculator"' in system.content
    assert env.offer.form == "hermes"
    (call,) = read_calls(HERMES, system.content.split("object: ")[1])
    assert call == ToolCall(name="NAME")
    (reply,) = step(world, SUM).replies
    assert reply == Message(role="user", content="<tool_response>\n24.0\n</tool_response>")


def test_a_record_shows_its_own_conversation(tmp_path: Path) -> None:
    called = {"id": "a", "function": {"name": "calculator", "arguments": '{"expression": "48 / 2"}'}}
    chat = [
        {"role": "user", "content": "What is 48 / 2?"},
        {"role": "assistant", "content": "Half of it.", "tool_calls": [called]},
        {"role": "tool", "content": "24.0", "tool_call_id": "a", "name": "calculator"},
        {"role": "assistant", "content": "<answer>24</answer>"},
    ]
    rows = [{"question": f"What is 48 / {n}?", "answers": ["24"], "messages": chat} for n in (2, 3)]
    data = jsonl(tmp_path / "data.jsonl", rows)
    for protocol in ("native", "hermes"):
        world = calculating(protocol=protocol, data=data)
        messages = world.demonstration(world.tasks("all")[0], 0).messages[-3:]
        if protocol == "native":
            call = ToolCall(name="calculator", arguments={"expression": "48 / 2"}, call_id="000000000")
            assert (
                messages[0].calls == (call,)
                and messages[1].tool == "calculator"
                and messages[1].call_id == call.call_id
            )
        else:
            assert messages[0].content.startswith("Half of it.\n")
            assert read_calls(HERMES, messages[0].content) == (SUM,) and messages[1].content.startswith(
                "<tool_response>"
            )
    jsonl(tmp_path / "bad.jsonl", [row | {"messages": [{"role": "assistant", "tool_calls": [5]}]} for row in rows])
    world = calculating(data=str(tmp_path / "bad.jsonl"))
    with refused(says="tool_calls"):
        world.demonstration(world.tasks("all")[0], 0)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ("{}", r"env\.tools\.0\.name"),
        ("{name: serach}", r"env\.tools\.0\.name='serach'.*search"),
        ("{name: search, deadline_s: 3}", r"env\.tools\.0\.deadline_s"),
        ("{function: a.b, mcp: c}", r"env\.tools\.0\.name"),
        ("{function: envs.problems.errands.prise}", r"env\.tools\.0\.function"),
        ("{function: envs.problems.errands.price, workers: 0}", r"env\.tools\.0\.workers"),
        ("{function: envs.problems.errands.price, only: [a]}", r"env\.tools\.0\.only"),
        ("{mcp: ' '}", r"env\.tools\.0\.mcp"),
        ('{mcp: "python \'server.py"}', r"env\.tools\.0\.mcp.*quote"),
        ("{functoin: a.b}", r"env\.tools\.0\.functoin.*function"),
        ("5", r"env\.tools\.0"),
        ("{name: python}, {function: a.b, workers: many}", r"env\.tools\.1\.workers='many'.*a whole number"),
        ("{name: python}, {name: python}", r"env\.tools"),
    ],
)
def test_a_bad_entry_is_one_line_that_names_it(entry: str, key: str) -> None:
    with pytest.raises(BadInput, match=key):
        ToolsWorld(compose("worlds/tools", [f"env.tools=[{entry}]"]).stages[0].config.env)


@pytest.mark.parametrize("name", ["tools", "tools_mcp"])
def test_the_recipes_offer_three_tools(name: str) -> None:
    (sft, rl) = compose(f"worlds/{name}", []).stages
    assert len(sft.config.env.tools) == 3 and rl.kind == "rl"
    assert compose("worlds/tools", ["env.tools=[]"]).stages[0].config.env.tools == []


def test_tools_of_ours_answer_any_arguments() -> None:
    assert compute("48 / 2") == "24.0" and isinstance(compute("x"), ToolError)
    graph: dict[str, Any] = {"num_nodes": 3, "edges": [[0, 1], [1, 2]], "source": 0, "target": 2}
    assert verify_graph_answer(**graph, answer="yes") == "correct"
    assert str(verify_graph_answer(**graph, answer="no")).startswith("incorrect")
    weighted = graph | {"edges": [[0, 1, 2], [1, 2, 3]]}
    assert verify_graph_answer(**weighted, answer="0->1->2. The length is 5.") == "correct"
    for broken in ({"num_nodes": 10**9}, {"edges": [[]]}, {"edges": [[0.5]]}, {"edges": [[0, 1e300]]}, {"source": 9}):
        assert isinstance(verify_graph_answer(**(graph | broken), answer="yes"), ToolError)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "enum", "items", "prefixItems", "additionalProperties", "a"]
)


@settings(max_examples=30, deadline=None)
@given(schema=st.dictionaries(KEYWORDS, VALUES, max_size=5), arguments=st.dictionaries(st.text(max_size=3), VALUES))
def test_any_schema_and_any_arguments_get_a_verdict(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert isinstance(find_problem(schema, arguments), str)
    assert isinstance(find_problem({"properties": {key: schema for key in arguments}}, arguments), str)


@pytest.mark.parametrize(
    ("arguments", "says"), [({"q": "x"}, "x"), ({"q": "x", "k": 5}, "no argument"), ({}, "missing")]
)
def test_a_tool_of_ours_passes_no_argument_over(arguments: dict[str, Any], says: str) -> None:
    async def answer(name: str, given: Any) -> Result:
        return str(given["q"])

    tool = ServedTool(one_text("search", "", "q"), SearchTool(SearchConfig(), 1), lambda: answer)
    assert says in str(asyncio.run(tool.episode()("search", arguments)))


def test_arguments_are_compared_with_types_and_enumerations() -> None:
    schema = json.loads('{"properties": {"n": {"type": "integer"}, "c": {"enum": ["a", 1]}}, "required": ["n"]}')
    assert [
        find_problem(schema, arguments) == ""
        for arguments in ({"n": 1}, {"n": 1.0}, {"n": 1, "c": "a"}, {"n": 1, "x": 2})
    ]
    wrong: list[dict[str, Any]] = [{}, {"n": "1"}, {"n": True}, {"n": 1.5}, {"n": 1, "c": "b"}, {"n": 1, "c": []}]
    assert all(find_problem(schema, arguments) for arguments in wrong)
    assert find_problem(schema | {"additionalProperties": False}, {"n": 1, "x": 2})


def test_each_place_of_a_tuple_has_its_own_type() -> None:
    def takes(pair: tuple[int, str], several: tuple[int, ...] = (), texts: set[str] | None = None) -> None: ...

    parameters = schema_of(takes, "takes")["function"]["parameters"]
    right: list[dict[str, Any]] = [{"pair": [1, "a"]}, {"pair": [1, "a"], "several": [1, 2, 3], "texts": ["a", "b"]}]
    assert [find_problem(parameters, arguments) for arguments in right] == ["", ""]
    wrong = [{"pair": ["a", 1]}, {"pair": [1, 2]}, {"pair": [1, "a"], "several": [1, "a"]}, {"pair": "a"}]
    wrong += [{"pair": []}, {"pair": [1]}, {"pair": [1, "a", 3]}]
    assert all(find_problem(parameters, arguments) for arguments in wrong)
    assert "string in place 2" in find_problem(parameters, {"pair": [1, 2]})


def test_a_server_that_is_not_there_is_asked_once_for_all_demonstrations(monkeypatch: pytest.MonkeyPatch) -> None:
    late = LateServer(schema_of(compute, "calculator"), compute)
    monkeypatch.setattr("envs.worlds.tools.make_offered", lambda *_: late)
    with pytest.raises(BadInput, match=r"env\.tools\.0\.mcp"):
        find_demonstrable(calculating())
    assert late.attempts == 1
