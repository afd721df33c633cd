"""Own functions and MCP servers as real processes: what one call does costs that call and nothing else."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from actors.env_worker import EnvWorkerSpec
from actors.env_worker_pool import EnvWorkerPool
from actors.renderer import ChatRenderer
from actors.scoring import ScoringSpec
from envs.protocols.families.tagged import HERMES
from envs.rewards.answer import AnswerRewardConfig
from envs.services.guard import ToolFailed
from envs.tools.call_pool import CallPool, PoolLimits
from envs.tools.child_process import Command
from envs.tools.mcp import McpPeer, list_tools
from envs.tools.offered import Parts, ToolEntry, Toolset, make_offered
from envs.tools.python_tool import PythonTool
from envs.tools.result import Result, ToolError
from envs.tools.sandbox import SandboxConfig
from envs.tools.search import SearchConfig, SearchTool
from envs.worlds.tools import ToolsConfig, ToolsWorld
from launch.cli import run
from rlsys.errors import BadInput
from rlsys.group_rollout import run_group
from rlsys.rollout import TurnRequest
from rlsys.samples import sample_trajectory
from rlsys.types import Completion, EpisodeEnd, Group, Ints, ToolCall, Trajectory, TurnStop
from tests.makers import made
from tests.makers.played import episode, tokenizer_in

FUNCTIONS = "tests.fakes.hostile_tools"
SERVER = f"python {Path(__file__).parents[1] / 'fakes' / 'hostile_mcp.py'}"
MOST = 1000  # characters of a result


@asynccontextmanager
async def offering(*entries: ToolEntry) -> AsyncIterator[Toolset]:
    parts = Parts(search=SearchTool(SearchConfig(), 1), python=PythonTool(SandboxConfig()))
    tools = Toolset([make_offered(entry, f"env.tools.{at}.", parts, MOST) for at, entry in enumerate(entries)])
    try:
        await tools.ready()
        yield tools
    finally:
        await tools.close()
    deadline = asyncio.get_running_loop().time() + 10
    while children_of() and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(0.05)
    assert not children_of()


def children_of() -> Sequence[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [proc for proc in children if "worker" in " ".join(cmdline(proc)) or "hostile" in " ".join(cmdline(proc))]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def function(called: str, **options: object) -> ToolEntry:
    return ToolEntry(function=f"{FUNCTIONS}.{called}", **{"deadline_s": 5.0, **options})  # type: ignore[arg-type]


async def ask(tools: Toolset, name: str, **arguments: object) -> Result:
    return await tools.episode()(ToolCall(name=name, arguments=arguments))


def test_functions_answer_by_their_schemas() -> None:
    async def play() -> None:
        async with offering(function("shout"), function("later"), function("choose")) as tools:
            shout = tools.schemas[0]["function"]
            assert shout["description"] == "Say a text loudly."
            assert shout["parameters"]["properties"]["times"] == {"type": "integer", "description": "How often."}
            assert shout["parameters"]["required"] == ["text"]
            assert await ask(tools, "shout", text="hi", times=2) == "HI HI"
            assert await ask(tools, "later", seconds=0.01) == '{"waited": 0.01}'
            assert await ask(tools, "choose", colour="red", names=["a"]) == "red None ['a']"
            refused = [
                await ask(tools, "shout"),
                await ask(tools, "shout", text=5),
                await ask(tools, "shout", text="x", times="2"),
                await ask(tools, "choose", colour="green"),
                await ask(tools, "choose", colour="red", names=[1]),
                await ask(tools, "whisper", text="x"),
                await tools.episode()(ToolCall(name="", problem="the call is not valid JSON")),
            ]
            assert all(isinstance(answer, ToolError) and answer.text.startswith("error: ") for answer in refused)
            assert isinstance(extra := await ask(tools, "shout", text="x", volume=3), ToolError)
            assert "TypeError" in extra.text

    asyncio.run(play())


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("hang", "no answer within 1 s"),
        ("hang and ignore", "no answer within 1 s"),
        ("leave a child", "no answer within 1 s"),
        ("crash", "it ended (exit code -11)"),
        ("exit", "it ended (exit code 3)"),
        ("memory", "MemoryError"),
        ("raise", "ValueError: no such thing"),
        ("lie", "no JSON object"),
        ("torrent", "a line of more than"),
    ],
)
def test_a_function_that_goes_wrong_costs_its_own_call(how: str, says: str) -> None:
    async def play() -> None:
        wrong = function("goes_wrong", deadline_s=1.0)
        async with offering(wrong, function("later"), function("who")) as tools:
            waiting = asyncio.create_task(ask(tools, "later", seconds=1.5))
            meanwhile = asyncio.create_task(ask(tools, "goes_wrong", how="nothing"))
            failed = await ask(tools, "goes_wrong", how=how)
            assert isinstance(failed, ToolError) and says in failed.text and len(failed.text) < 1000
            assert await meanwhile == "fine" and await waiting == '{"waited": 1.5}'
            assert await ask(tools, "goes_wrong", how="nothing") == "fine"
            assert await ask(tools, "who") == await ask(tools, "who")  # a process that did nothing wrong stays

    asyncio.run(play())


@pytest.mark.parametrize("how", ["garbage afterwards", "answer afterwards", "exit afterwards", "flood afterwards"])
def test_what_a_call_leaves_behind_costs_no_other_call(how: str) -> None:
    async def play() -> None:
        async with offering(function("goes_wrong", workers=1, deadline_s=20.0)) as tools:
            assert await ask(tools, "goes_wrong", how=how) == "fine"
            await asyncio.sleep(0.5)
            assert await ask(tools, "goes_wrong", how="nothing") == "fine"

    asyncio.run(play())


def test_calls_of_a_coroutine_function_share_an_event_loop_and_no_task() -> None:
    async def play() -> None:
        async with offering(
            function("echoes", workers=1), function("leaves", workers=1), function("later", workers=1, deadline_s=1.0)
        ) as tools:
            assert [await ask(tools, "echoes", text=text) for text in ("one", "two", "three")] == [
                "one",
                "two",
                "three",
            ]
            assert await ask(tools, "leaves", how="a task") == ""
            assert await ask(tools, "leaves", how="nothing") == "over"
            answer = await ask(tools, "later", seconds=100.0)
            assert isinstance(answer, ToolError) and "no answer within 1 s" in answer.text
            assert await ask(tools, "later", seconds=0.0) == '{"waited": 0.0}'

    asyncio.run(play())


def test_floods_are_cut() -> None:
    async def play() -> None:
        async with offering(function("goes_wrong", deadline_s=60.0)) as tools:
            flood = await ask(tools, "goes_wrong", how="flood")
            assert isinstance(flood, str) and flood.startswith("x" * MOST) and len(flood) < MOST + 60
            assert await ask(tools, "goes_wrong", how="print") == "fine"
            assert await ask(tools, "goes_wrong", how="surrogate") == "?"

    asyncio.run(play())


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("hang", "no answer within 2 s"),
        ("crash", "it ended (exit code -6)"),
        ("flood", "a line of more than"),
        ("notifications", "that answer nothing"),
        ("garbage", "not JSON"),
        ("deep", "not JSON"),
        ("no content", "no content"),
        ("neither", "neither a result nor an error"),
        ("image", "no text"),
        ("refused", "no such text"),
    ],
)
def test_a_server_that_goes_wrong_costs_its_own_call(how: str, says: str) -> None:
    async def play() -> None:
        async with offering(ToolEntry(mcp=f"{SERVER} '{how}'", deadline_s=2.0), function("who")) as tools:
            meanwhile = asyncio.create_task(ask(tools, "echo", text="meanwhile"))
            failed = await ask(tools, "wrong", text="x")
            assert isinstance(failed, ToolError) and says in failed.text and len(failed.text) < 1000
            assert await meanwhile == "meanwhile"
            assert await ask(tools, "echo", text="after") == "after"

    asyncio.run(play())


def test_a_server_that_does_odd_things_right() -> None:
    async def play() -> None:
        for how, says in (("other id", "mine"), ("asks", "asked"), ("dies afterwards", "goodbye")):
            async with offering(ToolEntry(mcp=f"{SERVER} '{how}'", workers=1, deadline_s=20.0)) as tools:
                assert await ask(tools, "wrong", text="x") == says
                assert await ask(tools, "echo", text="after") == "after"
        async with offering(ToolEntry(mcp=f"{SERVER} long", deadline_s=20.0)) as tools:
            long = await ask(tools, "wrong", text="x")
            assert isinstance(long, str) and len(long) < MOST + 60

    asyncio.run(play())


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (f"{SERVER} silent", "does not answer within 2 s"),
        (f"{SERVER} 'no tools'", "lists 0 tools"),
        (f"{SERVER} 'endless tools'", "lists 240 tools"),
        (f"{SERVER} 'bad name'", "a tool of the name"),
        (f"{SERVER} 'no schema'", "no schema"),
        ("python -c 'raise SystemExit(7)'", "exit code 7"),
        ("no-such-command --serve", "no-such-command"),
    ],
)
def test_a_server_that_cannot_be_used_is_bad_input(command: str, says: str) -> None:
    async def play() -> None:
        async with offering(ToolEntry(mcp=command, start_timeout_s=2.0 if "silent" in command else 30.0)):
            raise AssertionError("nothing to offer")

    with pytest.raises(BadInput, match=r"env\.tools\.0\.mcp") as refused:
        asyncio.run(play())
    assert says in str(refused.value)


def test_a_server_that_no_longer_starts_is_the_tools_failure() -> None:
    async def play() -> None:
        async def start() -> McpPeer:
            return await McpPeer.start(Command(words=(sys.executable, "-c", "raise SystemExit(7)"), memory_mb=0))

        limits = PoolLimits(workers=1, deadline_s=1, start_timeout_s=20, max_reply=100)
        pool = CallPool("gone", start, limits)
        with pytest.raises(ToolFailed, match="cannot be started"):
            await pool.call("echo", {})
        assert pool.stats().errors == {"infra": 1}

    asyncio.run(play())


def test_a_server_that_starts_slowly_says_so() -> None:
    async def play() -> None:
        async def start() -> McpPeer:
            return await McpPeer.start(Command(words=("sleep", "60"), memory_mb=0))

        pool = CallPool("slow", start, PoolLimits(workers=1, deadline_s=1, start_timeout_s=0.5, max_reply=100))
        with pytest.raises(ConnectionError, match=r"not ready within 0\.5 s"):
            await pool.check()
        with pytest.raises(ToolFailed, match=r"not ready within 0\.5 s"):
            await pool.call("echo", {})
        await pool.close()
        with pytest.raises(ToolFailed, match="closed"):
            await pool.call("echo", {})

    asyncio.run(play())


def test_a_server_is_asked_once_what_it_has() -> None:
    async def play() -> None:
        entry = ToolEntry(mcp=f"{SERVER} once")
        tools = Toolset([make_offered(entry, "env.tools.0.", None, MOST)])  # type: ignore[arg-type]
        list_tools.cache_clear()
        await asyncio.gather(*(tools.ready() for _ in range(8)))
        assert list_tools.cache_info().misses == 1 and len(tools.schemas) == 2

    asyncio.run(play())


def test_a_server_of_the_reference_sdk() -> None:
    async def play() -> None:
        async with offering(
            ToolEntry(mcp="python -m envs.problems.errands_server", workers=1, deadline_s=60.0)
        ) as tools:
            (price,) = tools.schemas
            assert price["function"]["name"] == "price" and "item" in price["function"]["parameters"]["properties"]
            assert await ask(tools, "price", item="no lamp") == "no such item"
            prices = await asyncio.gather(ask(tools, "price", item="red lamp"), ask(tools, "price", item="old chair"))
            assert all(isinstance(text, str) and text.isdigit() for text in prices)
            refused = await ask(tools, "price")
            assert isinstance(refused, ToolError) and "item" in refused.text

    asyncio.run(play())


def test_two_tools_of_one_name_are_refused() -> None:
    async def play() -> None:
        async with offering(function("who"), function("shout", name="who")):
            pass

    with pytest.raises(BadInput, match="different names"):
        asyncio.run(play())
    with pytest.raises(BadInput, match="nothing_here"):
        make_offered(function("nothing_here"), "env.tools.0.", None, 1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="cannot be given by name"):
        make_offered(function("takes"), "env.tools.0.", None, 1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="expected a function"):
        make_offered(function("NOT_A_FUNCTION"), "env.tools.0.", None, 1)  # type: ignore[arg-type]
    assert list_tools.cache_info().maxsize == 64


def test_the_page_on_own_tools_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = [
        '<tool_call>{"name": "height", "arguments": {"mountain": "Etna"}}</tool_call>'
        '<tool_call>{"name": "height", "arguments": {"mountain": "Eiger"}}</tool_call>',
        "<answer>3403</answer>",
    ]
    (tmp_path / "said.txt").write_text("\n".join(answers) + "\n")
    argv = ["play", "docs/environments/own_tools.yaml", "--task", "own_tools.jsonl:2", "--split", "all"]
    assert run([*argv, "--answers", str(tmp_path / "said.txt")]) == 0
    output = capsys.readouterr().out
    assert '"description": "Look up how high a mountain is."' in output
    assert "3403 metres" in output and "KeyError" in output and "1.1" in output
    page = Path("docs/environments/tools.md").read_text()
    for text in (
        Path("docs/environments/own_tools.py").read_text(),
        Path("docs/environments/own_tools.yaml").read_text(),
    ):
        blocks = re.findall(r"(?s)```(?:python|yaml)\n(.*?)```", page)
        assert any(block in text for block in blocks)


@pytest.mark.parametrize(("protocol", "kind"), [("native", "price"), ("hermes", "price"), ("hermes", "both")])
def test_a_demonstration_is_token_for_token_an_episode(protocol: str, kind: str, tmp_path: Path) -> None:
    entries = [ToolEntry(name="search"), ToolEntry(name="python"), ToolEntry(function="envs.problems.errands.price")]
    config = ToolsConfig(
        tools=entries, protocol=protocol, demo_error_rate=0.0, train_tasks=40, held_out_tasks=8, topk=1
    )
    world = ToolsWorld(config)
    task = next(task for task in world.tasks("train") if world.level(task) == kind)
    demonstration, offer = world.demonstration(task, 0), world.env(task).offer
    folder = tokenizer_in(tmp_path, list(world.texts(100)), world.tags)
    renderer = ChatRenderer(str(folder))
    replies = [message for message in demonstration.messages if message.role == "assistant"]
    texts = [HERMES.write("", message.calls) if message.calls else message.content for message in replies]
    called = ["price", "price", "python"] if kind == "both" else ["price"]

    async def play() -> Trajectory:
        try:
            return await episode(world, task, texts, renderer, plan=made.plan(max_context=2048))
        finally:
            await world.close()

    played = asyncio.run(play())
    assert played.end is EpisodeEnd.ANSWERED and played.state == {
        "calls": [{"name": name, "ok": True} for name in called]
    }
    ids, mask = renderer.demonstration(demonstration.messages, played.num_prompt, (), offer=offer)
    (sample,) = sample_trajectory(played, 1.0)
    assert sample.token_ids.tolist() == list(ids) and sample.loss_mask.tolist() == [bool(bit) for bit in mask]


def test_a_group_is_played_in_the_process_of_a_workers_environments(tmp_path: Path) -> None:
    server = f"{SERVER} crash"
    entries = [ToolEntry(name="calculator"), ToolEntry(mcp=server, deadline_s=20.0)]
    env = ToolsConfig(tools=entries, data="docs/environments/own_tools.jsonl", held_out_tasks=1, instruction="")
    plan = made.plan(env=env, reward=AnswerRewardConfig(), group_size=2, max_context=2048, max_turn_tokens=200)
    calls = [
        ToolCall(name="calculator", arguments={"expression": "48 / 2"}),
        ToolCall(name="echo", arguments={"text": "hi"}),
        ToolCall(name="wrong"),
    ]
    texts = [HERMES.write("", calls), "<answer>3461</answer>"]
    renderer = ChatRenderer(str(tokenizer_in(tmp_path, texts * 20, HERMES.tags)))

    async def generate(context: Ints, request: TurnRequest) -> Completion:
        text = texts["24.0" in renderer.decode(context.tolist())]
        return made.completion((*renderer.encode(text), renderer.tokenizer.eos_token_id), text, stop=TurnStop.EOS)

    async def play() -> Group:
        scoring = ScoringSpec(grader_workers=1, grader_deadline_s=5.0)
        worlds = EnvWorkerPool(EnvWorkerSpec(worker="rollout:0", scoring=scoring, block_s=30.0, start_timeout_s=120.0))
        task = ToolsWorld(env).tasks("train")[0]
        try:
            with worlds.play(plan, task) as playing:
                return await run_group(made.player(renderer, generate), playing, made.ticket(task=task), plan)
        finally:
            await worlds.stop()

    group = asyncio.run(asyncio.wait_for(play(), 300))
    for played in group.trajectories:
        assert [message.content for message in played.messages[2:4]] == ["24.0", "hi"]
        assert played.messages[4].content.startswith("error: it ended") and played.messages[4].tool == "wrong"
        assert played.end is EpisodeEnd.ANSWERED and played.metrics["failed_calls"] == 1
