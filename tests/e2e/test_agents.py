"""Agents that somebody else wrote, as real processes over the real SDK: every token is kept, and no harm leaves one."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from actors.renderer import ChatRenderer
from envs.protocols.families.tagged import HERMES
from envs.worlds.agent import AgentConfig, AgentWorld
from launch.cli import run
from rlsys.errors import BadInput
from rlsys.harvest import first_exception
from rlsys.samples import sample_trajectory
from rlsys.summaries import summarize
from rlsys.types import EpisodeEnd, Failure, FailureKind, Message, Reward, SampleBegin, ToolCall
from tests.makers import made
from tests.makers.agents import PLAN, Playing
from tests.makers.played import tokenizer_in

CALL = HERMES.write("Let me add.", (ToolCall(name="add", arguments={"a": 2, "b": 3}),))
TEXTS = ["main? q 2 + 3? add It is 5. helper: so? again Let me add. One. Two! Three. Four. Five.", CALL]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    return ChatRenderer(str(tokenizer_in(tmp_path_factory.mktemp("model"), TEXTS, HERMES.tags)))


@pytest.fixture(scope="module")
def playing(renderer: ChatRenderer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playing]:
    world = Playing(tmp_path_factory.mktemp("world"), renderer)
    yield world
    world.close()


def test_the_usual_loop_is_one_sample_with_the_tokens_that_were_sampled(
    playing: Playing, renderer: ChatRenderer
) -> None:
    played = playing.play("calculate", CALL, "It is 5.")
    assert played.end is EpisodeEnd.ANSWERED and isinstance(played.reward, Reward) and played.reward.value == 1.0
    assert played.metrics["overridden_settings"] == 2 and "new_conversations" not in played.metrics
    assert [message.role for message in played.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert played.messages[3] == Message(role="tool", content="5", tool="add", call_id="000000000")
    (sample,) = sample_trajectory(played, 1.0)
    sampled = [token for turn in played.turns for token in turn.completion.token_ids.tolist()]
    assert sample.token_ids[sample.loss_mask].tolist() == sampled
    text = renderer.decode(sample.token_ids.tolist())
    assert '"name": "add"' in text and '"strict"' not in text
    assert played.turns[1].added_ids.tolist()[-1] == played.turns[0].added_ids.tolist()[-1]  # a turn is opened


def test_what_another_agent_was_asked_is_a_sample_of_its_own(playing: Playing) -> None:
    played = playing.play("delegate", "One.", "Two!", "Three.", "Four.")
    assert isinstance(played.reward, Reward) and played.reward.value == 0.5
    assert played.state is not None and played.state["returned"]["helped"] == "Two"
    assert played.state["returned"]["stop"] == "stop"
    assert [turn.completion.text for turn in played.turns] == ["Two!", "One.", "Three.", "Four."]
    assert [turn.starts_sample for turn in played.turns] == [True, True, False, True]
    assert [(turn.number, turn.begins) for turn in played.turns] == [
        *((1, SampleBegin.CONVERSATION), (0, SampleBegin.CONVERSATION), (2, None), (3, SampleBegin.RETOLD)),
    ]
    assert (played.metrics["new_conversations"], played.metrics["retold_messages"]) == (2, 1)
    contents = [message.content for message in played.messages[-4:]]
    assert contents == ["main?", "(the assistant's, as it was sent) (short)", "so?", "Four."]


def test_choices_and_parallel_requests_are_samples_behind_the_same_tokens(playing: Playing) -> None:
    played = playing.play("several", "One.", "Two!", "Three.", "Four.", "Five.")
    assert isinstance(played.reward, Reward) and played.reward.value == 4.0
    assert "new_conversations" not in played.metrics  # nothing was tokenised again
    first = played.turns[0].completion.token_ids.tolist()
    samples = sample_trajectory(played, 1.0)
    assert len(samples) == 4
    assert sum(sample.num_loss_tokens for sample in samples) == played.num_sampled
    assert all(str(first)[1:-1] in str(sample.token_ids.tolist()) for sample in samples)


def test_a_stream_has_calls_usage_and_log_probabilities(playing: Playing) -> None:
    played = playing.play("stream", CALL)
    assert played.state is not None and played.state["returned"] == "add True True"


def test_a_loop_over_responses_is_one_sample_streamed_or_not(playing: Playing) -> None:
    played = playing.play("respond", CALL, "It is 5.", "One.")
    assert played.end is EpisodeEnd.ANSWERED and isinstance(played.reward, Reward) and played.reward.value == 1.0
    assert played.metrics["overridden_settings"] == 3 and "new_conversations" not in played.metrics
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant"]
    assert [message.role for message in played.messages] == roles
    assert played.messages[3] == Message(role="tool", content="5", tool="add", call_id="000000000")
    (sample,) = sample_trajectory(played, 1.0)
    sampled = [token for turn in played.turns for token in turn.completion.token_ids.tolist()]
    assert sample.token_ids[sample.loss_mask].tolist() == sampled


def test_what_a_response_cannot_be_is_refused_by_its_name(playing: Playing) -> None:
    played = playing.play("unanswered", "One.")
    assert played.state is not None and played.state["returned"] == ["completed", *[True] * 7]
    assert played.metrics["refused_requests"] == 7


def test_what_would_change_the_distribution_is_refused_by_its_name(playing: Playing) -> None:
    played = playing.play("refused", "One.")
    assert played.state is not None
    statuses = ["stop", True, True, True, True, True, 400, 400, 400, 400, 400, 413, 401, ["policy"]]
    assert played.state["returned"] == statuses
    assert played.metrics["refused_requests"] == 11  # the one with another key is nobody's


@pytest.mark.parametrize("name, end", [("fail", "malformed"), ("leave", "malformed"), ("endless", "turn_limit")])
def test_an_agent_that_cannot_go_on_ends_its_episode(playing: Playing, name: str, end: str) -> None:
    played = playing.play(name, *["One."] * 6)
    assert played.end == end and isinstance(played.reward, Reward) and played.reward.value == 0.0
    assert played.metrics.get("agent_errors", 0) == (end == "malformed")
    failure = first_exception([summarize(played)])
    assert (failure is not None) == (end == "malformed")
    if failure is not None:
        says = {"fail": "KeyError: 'what the policy said' (", "leave": "code 3"}[name]
        assert (failure.kind, failure.where) == (FailureKind.DATA, "agent") and says in failure.detail
    if name == "fail":
        assert played.state is not None and played.state["output"].endswith("KeyError: 'what the policy said'\n")
        assert "keeper" not in played.state["output"]


@pytest.mark.parametrize(
    "name, kind, says",
    [
        ("crash", FailureKind.INFRA, "signal 11"),
        ("killed", FailureKind.INFRA, "signal 9"),
        ("bomb", FailureKind.DATA, "more than 64 processes"),
        ("eat", FailureKind.DATA, "more than 600 MiB"),
        ("flood", FailureKind.DATA, "256 of its requests were refused"),
        ("silent", FailureKind.DATA, "without a question"),
        ("huge", None, "more than 32 KiB"),
    ],
)
def test_harm_costs_its_own_episode(playing: Playing, name: str, kind: FailureKind | None, says: str) -> None:
    played = playing.play(name, "One.")
    if kind is None:
        assert played.state is not None and says in played.state["output"]
    else:
        assert isinstance(played.reward, Failure) and played.reward.kind is kind and says in played.reward.detail
    assert playing.play("shout", "One.").end is EpisodeEnd.ANSWERED  # the next one is whole, and its flood is cut


def test_an_agent_that_hangs_is_ended(renderer: ChatRenderer, tmp_path: Path) -> None:
    playing = Playing(tmp_path, renderer, idle_s=1.5)
    try:
        played = playing.play("hang", "One.")
        assert isinstance(played.reward, Failure) and played.reward.kind is FailureKind.TIMEOUT
        assert playing.play("shout", "One.").end is EpisodeEnd.ANSWERED
    finally:
        playing.close()


def test_nothing_of_an_agent_outlives_it(playing: Playing) -> None:
    assert playing.play("daemon", "One.").end is EpisodeEnd.ANSWERED
    assert playing.play("late", "One.").end is EpisodeEnd.ANSWERED
    assert playing.play("shout", "One.").num_sampled  # nothing was asked with the key that is gone
    children = psutil.Process().children(recursive=True)
    assert not [child for child in children if "4321" in " ".join(child.cmdline())]


def test_a_command_is_played_with_its_task_on_its_input(renderer: ChatRenderer, tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(
        "import json, sys\n"
        "from openai import OpenAI\n"
        "task = json.load(sys.stdin)\n"
        "question = [{'role': 'user', 'content': task['question']}]\n"
        "text = OpenAI().chat.completions.create(model='any', messages=question).choices[0].message.content\n"
        "print('noise', file=sys.stderr)\n"
        "print('some words')\n"
        "print(json.dumps({'reward': 0.25, 'text': text, 'row': task['row']}))\n"
    )
    playing = Playing(tmp_path, renderer, agent=f"{sys.executable} {script}")
    try:
        playing.check()
        played = playing.play("q", "One.")
        assert played.state is not None and isinstance(played.reward, Reward) and played.reward.value == 0.25
        assert played.state["returned"] == {"reward": 0.25, "text": "One.", "row": 1}
        assert played.state["output"] == "noise\n"
    finally:
        playing.close()


@pytest.mark.parametrize(
    "agent, says",
    [
        ("tests.fakes.agents.nobody", "no attribute 'nobody'"),
        ("tests.fakes.agents.ADD", "is no function"),
        ("nonesuch --now", "nonesuch: No such file or directory"),
        ("cat", "without a question"),
        ("", "module.function"),
    ],
)
def test_an_agent_that_cannot_be_played_is_bad_input(
    agent: str, says: str, renderer: ChatRenderer, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=says):
        playing = Playing(tmp_path, renderer, agent=agent)
        try:
            playing.check()
        finally:
            playing.close()


def test_the_page_on_own_agents_is_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, folder = Path("docs/tutorials/own-agent.md").read_text(), Path("docs/environments")
    for file in (folder / "own_agent.py", folder / "own_agent.yaml"):
        assert any(block in file.read_text() for block in re.findall(r"(?s)```(?:python|yaml)\n(.*?)```", page))
    made.jsonl(tmp_path / "tasks.jsonl", [{"question": f"{n} + 1?", "answer": f"{n + 1}.0"} for n in range(30)])
    (tmp_path / "said.txt").write_text("<math_exp>2 + 1</math_exp>\n<answer>3.0</answer>\n")
    argv = ["play", str(folder / "own_agent.yaml"), f"env.data={tmp_path / 'tasks.jsonl'}", "--split", "all"]
    tasks = AgentWorld(AgentConfig(agent="cat", data=str(tmp_path / "tasks.jsonl"))).tasks("all")
    task = next(task.task_id for task in tasks if task.question == "2 + 1?")
    assert run([*argv, "--task", task, "--answers", str(tmp_path / "said.txt")]) == 0
    output = capsys.readouterr().out
    assert "2 + 1 -> 3.0" in output and "returned 1 = 1" in output


def test_a_keeper_that_was_killed_costs_the_episodes_that_it_played(playing: Playing) -> None:
    for child in psutil.Process().children(recursive=True):
        if "keeping" in " ".join(child.cmdline()):
            child.kill()
    played = playing.play("shout", "One.", plan=replace(PLAN, infra_retries=2))
    assert played.end is EpisodeEnd.ANSWERED
