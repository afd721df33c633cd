"""Code that pages show runs as it stands there: a reward, an algorithm, a protocol, an environment."""

import asyncio
import importlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from hypothesis import given
from hypothesis import strategies as st

import envs.protocols as table
from actors.renderer import ChatRenderer
from envs import WORLDS, make_reward
from envs.problems.knowledge import KnowledgeConfig, question_of_task
from envs.protocols import PROTOCOLS
from envs.rewards import counts_as_solved
from envs.rewards.transcript import inline_format_of, split_inline
from envs.worlds.search import SearchQAWorld
from envs.worlds.search_config import SearchQAConfig
from launch.cli import run as main
from launch.config.compose import compose, to_yaml
from learners.algorithms import ALGORITHMS, make_algorithm
from rlsys.choices import choose, construct
from rlsys.config.recipe import RunConfig
from rlsys.errors import BadInput
from rlsys.samples import sample_trajectory
from rlsys.transcripts import read_transcript
from rlsys.types import EpisodeEnd, Message, Reward, Task, Trajectory, Transcript
from tests.golden.tiny import curve
from tests.makers import made
from tests.makers.made import plan
from tests.makers.played import episode, tokenizer_in
from tests.paths import ROOT
from tests.refused import refused

README = ROOT / "README.md"
OWN_REWARD = ROOT / "docs" / "tutorials" / "own-reward.md"
HOW_TO = ROOT / "docs" / "how-to"
ALGORITHM = ROOT / "docs" / "algorithms.md"
ENVIRONMENTS = ROOT / "docs" / "environments"
SMALL: dict[str, Any] = {"train_tasks": 20, "held_out_tasks": 5, "knowledge": KnowledgeConfig(entities=60)}


def blocks(page: Path, language: str = "") -> list[str]:
    """The code blocks of a page in one language; those in a list keep its indent."""
    matches = re.findall(r"^ *```(\w*)\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [block for its_language, block in matches if its_language == language]


def test_the_reward_of_the_tutorial_prints_what_the_tutorial_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = blocks(OWN_REWARD, "python")
    (example,) = [block for block in blocks(OWN_REWARD) if block.startswith("$ cat answers.jsonl\n")]
    lines, command, output = re.split(r"(?m)^\$ rlsys (.*)\n", example.partition("\n")[2])
    (tmp_path / "my_rewards.py").write_text(code)
    (tmp_path / "answers.jsonl").write_text(lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    assert main(command.split()) == 0
    assert capsys.readouterr().out == output


def test_how_rlsys_comes_on_the_path_is_said_where_it_is_installed() -> None:
    way = "source .venv/bin/activate"
    assert way in README.read_text().partition("`rlsys ")[0]
    for target in ("setup", "quickstart"):
        output = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert way in output


THEIRS = "def compute_score(solution_str, ground_truth): ...\ncompute_score_em = compute_score\n"  # verl's, Search-R1's


@pytest.mark.parametrize("page", ["from-trl.md", "from-verl.md", "from-search-r1.md"])
def test_a_recipe_for_users_of_another_system_composes(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,) = blocks(HOW_TO / page, "yaml")
    (tmp_path / "recipe.yaml").write_text(recipe)
    code, *_ = [*blocks(HOW_TO / page, "python"), THEIRS]
    (tmp_path / "my_rewards.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    assert [stage.kind for stage in compose("recipe.yaml", []).stages] == ["rl"]
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)


def test_the_function_for_users_of_trl_scores_here_as_it_does_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe,), (code, theirs) = (blocks(HOW_TO / "from-trl.md", language) for language in ("yaml", "python"))
    (tmp_path / "my_rewards.py").write_text(code)
    (tmp_path / "recipe.yaml").write_text(recipe)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)
    assert "from my_rewards import brief, right" in theirs and "reward_weights=[1.0, 0.2]" in theirs
    right, brief = (runpy.run_path("my_rewards.py")[name] for name in ("right", "brief"))
    recipe_reward = compose("recipe.yaml", []).recipe.reward
    reward = make_reward(recipe_reward)
    for text, solves in (("It is 122", 1.0), ("122", 1.0), ("122 or 12", 0.0), ("12 2", 0.0), ("", 0.0)):
        messages = (Message(role="assistant", content=text),)
        task = Task(task_id="page", question="What is 59 + 63?", answers=("122",), record={"answer": "122"})
        (value,), (cost,) = right([[{"content": text}]], ["122"]), brief([[{"content": text}]])
        scored = reward(Transcript(task=task, messages=messages))
        assert scored.value == pytest.approx(1.0 * value + 0.2 * cost) and scored.parts["right"] == value == solves
        assert counts_as_solved(recipe_reward, scored) == bool(solves)
    monkeypatch.delitem(sys.modules, "my_rewards", raising=False)


@pytest.mark.parametrize("block", blocks(ALGORITHM, "yaml"))
def test_the_settings_of_the_papers_are_valid(block: str) -> None:
    options = yaml.safe_load(block)["algorithm"]
    make_algorithm(choose("algorithm", ALGORITHMS, options["name"]).schema(**options))


def test_the_example_is_chosen_by_name_and_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [block for block in blocks(ALGORITHM, "python") if "class Raft" in block]
    (tmp_path / "raft.py").write_text(code)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    importlib.invalidate_caches()
    run = compose("quickstart", ["algorithm.name=raft.Raft", "algorithm.min_reward=0.5"])
    (config,) = [stage.config.algorithm for stage in run.stages if stage.kind == "rl"]
    algorithm = make_algorithm(config)
    assert type(algorithm).__name__ == "Raft" and config.min_reward == 0.5
    torch.set_num_threads(1)
    even = curve(algorithm, lambda groups: groups)["even"]
    assert even[-1] > even[0] + 0.05
    del sys.modules["raft"]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> table.Protocol:
    """The protocol of docs/environments/protocols.md, under the name `ask`."""
    (block,) = blocks(ENVIRONMENTS / "protocols.md", "python")
    (tmp_path / "ask.py").write_text(block)
    protocol: table.Protocol = runpy.run_path(str(tmp_path / "ask.py"), {**vars(table), "Message": Message})["PROTOCOL"]
    monkeypatch.setitem(sys.modules, "ask", SimpleNamespace(PROTOCOL=protocol))  # type: ignore[arg-type]
    monkeypatch.setitem(table.PLACES, "ask", "ask.PROTOCOL")  # type: ignore[arg-type]
    return protocol


def test_search_qa_plays_the_protocol_of_the_page(ask: table.Protocol) -> None:
    world = SearchQAWorld(SearchQAConfig(protocol="ask", demo_error_rate=0.0, **SMALL))
    assert (world.max_turns, world.tags) == (4, ask.tags)
    task = world.tasks("train")[0]
    prompt, *messages = world.demonstration(task, 0).messages
    assert prompt.content.startswith("Ask with <ask>words</ask>") and prompt.content.endswith(task.question)
    relation = question_of_task(task).relations[0]
    assert messages[0].content == f"<ask>{relation} of {question_of_task(task).start}</ask>"
    assert messages[1].inline and messages[1].content.startswith(f"<found>The {relation} of ")
    assert messages[-1].content == f"<answer>{task.answers[0]}</answer>"

    async def replay() -> None:
        server = world.start_service(host="127.0.0.1", port=0, token="token")
        try:
            world.connect(server.url, "token")
            env = world.env(task)
            for turn in range(0, len(messages), 2):
                step = await env.step(messages[turn].content, turns_left=world.max_turns - turn // 2 - 1)
                assert step.reply == (messages[turn + 1] if turn + 1 < len(messages) else None)
            assert step.end is EpisodeEnd.ANSWERED
            await world.close()
        finally:
            server.stop()

    asyncio.run(replay())


@pytest.mark.usefixtures("ask")
def test_that_protocol_is_a_key_of_the_command_line_like_the_others() -> None:
    config = compose("worlds/search", ["env.protocol=ask", "reward.name=answer"])
    assert config.recipe.env.protocol == "ask"
    searching = ", ".join(name for name, protocol in PROTOCOLS.items() if protocol.topk is not None)
    for protocol_name in ("asc", "swirl_math", "retool"):  # a calculator and Python are no search
        with pytest.raises(BadInput, match=rf"env\.protocol='{protocol_name}': expected one of {searching}"):
            SearchQAConfig(protocol=protocol_name)
    with refused("env.template", found="base", expected="instruct"):
        SearchQAConfig(protocol="ask", template="base")


@pytest.mark.usefixtures("ask")
def test_episodes_of_that_protocol_are_scored_from_one_string() -> None:
    inline = inline_format_of(SearchQAConfig(protocol="ask"), reward=None)
    response = "<ask>q</ask><found>The <answer>no</answer></found><answer>yes</answer>"
    line = json.dumps({"task": {"question": "q", "answers": ["yes"]}, "response": response})
    messages = read_transcript(line.encode(), partial(split_inline, inline=inline)).messages
    assert [(message.role, message.content) for message in messages] == [
        ("assistant", "<ask>q</ask>"),
        ("tool", "<found>The <answer>no</answer></found>"),
        ("assistant", "<answer>yes</answer>"),
    ]


@pytest.fixture(scope="module")
def run() -> RunConfig:
    """As `cd docs/environments && rlsys train example.yaml` reads it; the import path is put back afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != ENVIRONMENTS])
        patch.chdir(ENVIRONMENTS)
        return compose("example.yaml", ["env.train_tasks=300", "env.held_out_tasks=40"])


@pytest.fixture(scope="module")
def world(run: RunConfig) -> Any:
    return construct("env", WORLDS, run.recipe.env)


@pytest.fixture(scope="module")
def renderer(world: Any, tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return ChatRenderer(str(tokenizer_in(tmp_path_factory.mktemp("tokenizer"), world.texts(200), world.tags)))


def play(run: RunConfig, world: Any, renderer: ChatRenderer, task: Task, texts: Sequence[str]) -> Trajectory:
    """One episode in which the model says `texts`."""
    reward = make_reward(run.recipe.reward)

    async def score(transcript: Transcript) -> Reward:
        return reward(transcript)

    room = {"max_turn_tokens": run.recipe.rollout.max_turn_tokens, "max_context": run.recipe.engine.max_model_len}
    return asyncio.run(episode(world, task, texts, renderer, score=score, plan=plan(**room)))


def test_the_page_on_environments_shows_the_code_that_is_tested() -> None:
    page, code = ENVIRONMENTS / "writing.md", (ENVIRONMENTS / "example_env.py").read_text()
    snippets = blocks(page, "python")
    assert len(snippets) >= 5 and [block for block in snippets if block not in code] == []
    assert blocks(page, "yaml") == [(ENVIRONMENTS / "example.yaml").read_text()]


def test_the_recipe_loads_by_dotted_path_and_reads_back(run: RunConfig, tmp_path: Path) -> None:
    assert [stage.kind for stage in run.stages] == ["sft", "rl"]
    assert type(run.recipe.env).__name__ == "GuessConfig" and run.recipe.env.width == 15
    (tmp_path / "again.yaml").write_text(to_yaml(run))
    assert compose(str(tmp_path / "again.yaml"), []) == run


def test_held_out_secrets_are_never_trained_on(run: RunConfig, world: Any) -> None:
    train, held_out = world.tasks("train"), world.tasks("held_out")
    assert (len(train), len(held_out)) == (300, 40)
    assert len({task.task_id for task in world.tasks("all")}) == 340
    assert type(world)(run.recipe.env).tasks("all") == world.tasks("all")


def test_the_transcript_of_the_page_is_an_episode(run: RunConfig, world: Any, renderer: ChatRenderer) -> None:
    (transcript,) = [block for block in blocks(ENVIRONMENTS / "writing.md") if block.startswith("user ")]
    lines = [line.split(maxsplit=1) for line in transcript.splitlines()]
    task = Task(task_id="page", question=lines[0][1], answers=("43",))
    texts = [text for role, text in lines if role == "assistant"]
    played = play(run, world, renderer, task, texts)
    assert [[message.role, message.content] for message in played.messages] == lines
    assert played.end is EpisodeEnd.ANSWERED and played.reward == Reward(
        value=1.1, parts={"correct": 1.0, "format": 0.1}
    )


def test_a_demonstration_is_token_for_token_an_episode(run: RunConfig, world: Any, renderer: ChatRenderer) -> None:
    for task in world.tasks("train")[:20]:
        messages = world.demonstration(task, 1).messages
        texts = [message.content for message in messages if message.role == "assistant"]
        played = play(run, world, renderer, task, texts)
        assert played.messages == messages and played.end is EpisodeEnd.ANSWERED
        (sample,) = sample_trajectory(played, 1.0)
        stop = world.env(task).stop_strings
        assert made.ids_and_mask(sample) == renderer.demonstration(messages, 1, stop)


def test_every_ending(run: RunConfig, world: Any, renderer: ChatRenderer) -> None:
    task = world.tasks("train")[0]
    wrong = f"<guess>{int(task.answers[0]) + 1}</guess>"
    assert play(run, world, renderer, task, ["I do not know"]).end is EpisodeEnd.MALFORMED
    limit = play(run, world, renderer, task, [wrong] * world.max_turns)
    assert (limit.end, limit.metrics["repeated_calls"]) == (EpisodeEnd.TURN_LIMIT, world.max_turns - 2)
    silly = play(run, world, renderer, task, ["<guess>\u0664\u0662\u00b2</guess>", "<answer>0</answer>"])
    assert [turn.reply for turn in silly.turns] == ["higher", None]


@given(st.text())
def test_any_message_gets_exactly_one_of_reply_and_end(world: Any, text: str) -> None:
    for wrapped in (text, f"<guess>{text}</guess>", f"<answer>{text}</answer>"):
        step = asyncio.run(world.env(world.tasks("train")[0]).step(wrapped, turns_left=1))
        assert (step.reply is None) != (step.end is None)
