"""Environments of other hubs, unchanged: the adapters of docs/environments play them from a venv of their own.

Each plays its environment's own tasks by its hub's own loop, is one sample, and the hub's own reward arrives.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.renderer import ChatRenderer
from envs.protocols.families.tagged import HERMES
from rlsys.samples import sample_trajectory
from rlsys.types import EpisodeEnd, Failure, FailureKind, Reward, Task, ToolCall, Trajectory
from tests.makers.agents import Playing, install
from tests.makers.played import tokenizer_in
from tests.paths import ROOT

PAGES = ROOT / "docs" / "environments"
VERIFIERS, OPENENV = "verifiers==0.3.0", "openenv==0.10.0"
ADD = HERMES.write("Let me add.", (ToolCall(name="add", arguments={"a": 2, "b": 3}),))
ACTS = [HERMES.write("Let me try.", (ToolCall(name="act", arguments={"value": value}),)) for value in (4, 5, -1)]
OF_VERIFIERS = '''
import verifiers as vf
from datasets import Dataset


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def correct(completion, answer) -> float:
    return float(answer in completion[-1]["content"])


def called(state) -> float:
    return float(len(state["trajectory"]) == 2)


def alike(completions) -> list[float]:
    return [1.0 for _ in completions]


class Gone(vf.ToolEnv):
    async def env_response(self, messages, state, **_):
        raise vf.SandboxError("its machine is gone")


def load_environment(kind: str = "", count: int = 20) -> vf.Environment:
    rows = [{"question": f"{n} + 3?", "answer": str(n + 3)} for n in range(count)]
    rubric = vf.Rubric(funcs=[correct, called], weights=[0.5, 0.25])
    if kind == "groups":
        rubric = vf.Rubric(funcs=[alike])
    env = Gone if kind == "gone" else vf.ToolEnv
    return env(dataset=Dataset.from_list(rows), system_prompt="Add.", tools=[add], rubric=rubric)
'''
OF_OPENENV = '''
import os
import socket
import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from openenv.core.rubrics import Rubric


class Answer(Action):
    """Say a number."""

    value: int


class Told(Observation):
    text: str


class Correct(Rubric):
    def forward(self, action, observation):
        return 0.75 if observation.text == "yes" else 0.25


class Adder(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self):
        super().__init__(rubric=Correct())
        self.index = self.steps = 0

    def reset(self, seed=None, episode_id=None, split="", index=0, **_):
        self.index = index
        return Told(text=f"{index} + 3?")

    def step(self, action, timeout_s=None, **_):
        if action.value < 0:
            os._exit(1)
        right = action.value == self.index + 3
        told = Told(text="yes" if right else "no", done=right)
        told.reward = self._apply_rubric(action, told)
        return told

    @property
    def state(self):
        return State()

    def num_tasks(self, split):
        return 20


app = create_app(Adder, Answer, Told, env_name="adder", max_concurrent_envs=4)
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
'''


@pytest.fixture
def renderer(tmp_path: Path) -> ChatRenderer:
    texts = ['Add. 2 + 3? Let me add. It is 5. add two numbers {"text": "yes"}', ADD, *ACTS]
    return ChatRenderer(str(tokenizer_in(tmp_path / "model", texts, HERMES.tags)))


@contextmanager
def playing(folder: Path, renderer: ChatRenderer, command: str, *tasks: str) -> Iterator[Playing]:
    """command: of the agent. tasks: what is added to it so that it writes its tasks."""
    words = [*command.split(), *tasks]
    written = subprocess.run(words, check=True, capture_output=True, text=True)
    (folder / "tasks.jsonl").write_text(written.stdout)
    plays = Playing(folder, renderer, agent=command, data=str(folder / "tasks.jsonl"), memory_mb=2048, idle_s=300)
    try:
        yield plays
    finally:
        plays.close()


def task_of(plays: Playing, question: str) -> Task:
    tasks = plays.world.tasks("all")
    assert len(tasks) == 20
    return next(task for task in tasks if task.question == question)


def check(played: Trajectory, reward: float, roles: str) -> None:
    assert played.end is EpisodeEnd.ANSWERED
    assert isinstance(played.reward, Reward) and played.reward.value == reward
    assert [message.role for message in played.messages] == roles.split()
    assert not {"new_conversations", "retold_messages", "refused_requests"} & {*played.metrics}
    (sample,) = sample_trajectory(played, 1.0)
    assert sample.num_loss_tokens == played.num_sampled


@pytest.mark.slow
def test_an_environment_of_verifiers(tmp_path: Path, renderer: ChatRenderer) -> None:
    python = install(VERIFIERS, tmp_path)
    (tmp_path / "adder.py").write_text(OF_VERIFIERS)
    command = f"{python} {shutil.copy(PAGES / 'verifiers_agent.py', tmp_path)}"
    with playing(tmp_path, renderer, command, "adder") as plays:
        task = task_of(plays, "2 + 3?")
        played = plays.play(task, ADD, "It is 5.")
        check(played, 0.75, "system user assistant tool assistant")
        assert played.messages[3].content == "5" and "overridden_settings" not in played.metrics
        check(plays.play(task, "It is 4."), 0.0, "system user assistant")
        empty = plays.play(task, "")
        assert empty.end is EpisodeEnd.MALFORMED and isinstance(empty.reward, Reward) and empty.reward.value == 0.0
    with playing(tmp_path, renderer, command, "adder", '{"kind": "gone"}') as plays:
        gone = plays.play(task_of(plays, "2 + 3?"), ADD)
        assert isinstance(gone.reward, Failure) and gone.reward.kind is FailureKind.INFRA
    groups = subprocess.run([*command.split(), "adder", '{"kind": "groups"}'], capture_output=True, text=True)
    assert groups.returncode == 1 and not groups.stdout


@pytest.mark.slow
def test_an_environment_of_openenv(tmp_path: Path, renderer: ChatRenderer) -> None:
    python = install(OPENENV, tmp_path)
    (tmp_path / "server.py").write_text(OF_OPENENV)
    server = subprocess.Popen([python, tmp_path / "server.py"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        with playing(tmp_path, renderer, f"{python} {PAGES / 'openenv_agent.py'} {url}", "train") as plays:
            task = task_of(plays, "adder train 2")
            played = plays.play(task, *ACTS[:2])
            check(played, 0.75, "user assistant tool assistant")
            assert "yes" not in played.messages[2].content and "reward" not in played.messages[2].content
            check(plays.play(task, ACTS[0], "It is 5."), 0.25, "user assistant tool assistant")
            check(plays.play(task, "It is 5."), 0.0, "user assistant")
            assert played.metrics["overridden_settings"] == 2
            for texts in ([ACTS[2]], []):  # the server ends in the middle of an episode, and is gone before the next
                gone = plays.play(task, *texts)
                assert isinstance(gone.reward, Failure) and gone.reward.kind is FailureKind.INFRA
    finally:
        server.kill()
        server.communicate()
