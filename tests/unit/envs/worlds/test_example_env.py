"""docs/environments: the page shows the example's own code, and that plays with all real parts but the engine."""

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.renderer import ChatRenderer
from envs import WORLDS, make_reward
from launch.config.compose import compose, to_yaml
from rlsys.choices import construct
from rlsys.config.recipe import RunConfig
from rlsys.samples import sample_trajectory
from rlsys.types import EpisodeEnd, Reward, Task, Trajectory, Transcript
from tests import made
from tests.made import plan
from tests.paths import ROOT
from tests.played import episode, tokenizer_in

DOCS = ROOT / "docs" / "environments"


@pytest.fixture(scope="module")
def run() -> RunConfig:
    """As `cd docs/environments && rlsys train example.yaml` reads it; the import path is put back afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [entry for entry in sys.path if Path(entry or ".").resolve() != DOCS])
        patch.chdir(DOCS)
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


def test_the_page_shows_the_code_that_is_tested() -> None:
    page, code = (DOCS / "writing.md").read_text(), (DOCS / "example_env.py").read_text()
    blocks = re.findall(r"^ *```python\n(.*?)^ *```$", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    for block in blocks:
        assert block in code
    (recipe,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert recipe == (DOCS / "example.yaml").read_text()


def test_the_page_names_every_member_of_the_contract() -> None:
    page = (DOCS / "writing.md").read_text()
    contract = (DOCS.parents[1] / "envs" / "base.py").read_text()
    methods = re.findall(r"^    (?:async )?def (\w+)\(", contract, re.MULTILINE)
    assert "def url" in contract  # an attribute: the page writes it as one
    assert [name for name in methods if f"{name}(" not in page and f"`{name}`" not in page] == []


def test_the_recipe_loads_by_dotted_path_and_reads_back(run: RunConfig, tmp_path: Path) -> None:
    assert [stage.kind for stage in run.stages] == ["sft", "rl"]
    assert type(run.recipe.env).__name__ == "GuessConfig" and run.recipe.env.width == 15
    (tmp_path / "again.yaml").write_text(to_yaml(run))
    assert compose(str(tmp_path / "again.yaml"), []) == run


def test_held_out_secrets_are_never_trained_on(world: Any) -> None:
    train, held_out = world.tasks("train"), world.tasks("held_out")
    assert (len(train), len(held_out)) == (300, 40)
    assert len({task.task_id for task in world.tasks("all")}) == 340
    assert type(world)(world._config).tasks("all") == world.tasks("all")


def test_the_transcript_of_the_page_is_an_episode(run: RunConfig, world: Any, renderer: ChatRenderer) -> None:
    shown = re.search(r"```\n(user .*?)```", (DOCS / "writing.md").read_text(), re.DOTALL)
    assert shown is not None
    lines = [line.split(maxsplit=1) for line in shown[1].splitlines()]
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
