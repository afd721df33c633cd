"""Answers that were given to one prompt, taught under another: what follows the prompt stays as it was sampled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from actors.renderer import ChatRenderer
from envs.episode import ToolEpisode
from envs.protocols import PROTOCOLS
from envs.tasks.prompts import ExamplesConfig
from envs.worlds.search import SearchQAWorld
from envs.worlds.search_config import SearchQAConfig
from launch.cli import run as rlsys
from launch.config.compose import compose, to_yaml
from launch.driver.stages import own_prompts
from launch.driver.stages.datasets import Data, open_data
from launch.driver.stages.own_prompts import (
    PromptAccount,
    check_other_prompts,
    prompts_differ,
    under_own_prompts,
    with_prompt,
)
from launch.driver.stages.supervised import keep_fitting, samples_of
from launch.driver.stages.trajectories import group_record
from rlsys.config.evaluation import EvalConfig
from rlsys.config.recipe import RecipeConfig
from rlsys.errors import RunFailed
from rlsys.examples import Example, read_answer
from rlsys.records import Tokens, to_json
from rlsys.types import Reward, Sample, Task, Trajectory, Transcript
from tests.makers import made
from tests.makers.played import episode, tokenizer_in
from tests.refused import refused

OLD, NEW = (1, 2, 3), (9,)
SHOWN, ALONE = ExamplesConfig(count=2), ExamplesConfig(count=0)


def recipe(demonstrations: ExamplesConfig, **env: Any) -> RecipeConfig:
    settings = {"train_tasks": 8, "held_out_tasks": 2, "protocol": "icrl", "topk": 1} | env
    return RecipeConfig(env=SearchQAConfig(demonstrations=demonstrations, **settings))


def test_the_prompt_is_replaced_and_the_spans_move_with_what_was_sampled() -> None:
    """4 5 and 7 are the model's, 6 is a tool's."""
    played = [Tokens(token_ids=(*OLD, 4, 5, 6, 7), sampled=((3, 5), (6, 7)))]
    assert with_prompt(played, NEW) == (Tokens(token_ids=(9, 4, 5, 6, 7), sampled=((1, 3), (4, 5))),)
    longer = with_prompt(played, (9, 9, 9, 9))
    assert longer == (Tokens(token_ids=(9, 9, 9, 9, 4, 5, 6, 7), sampled=((4, 6), (7, 8))),)


def test_a_later_sample_that_continues_the_prompt_gets_the_new_one_too() -> None:
    """Its context holds what was said before: 4 without its end 5, and the tool's 6."""
    first, second = (
        Tokens(token_ids=(*OLD, 4, 5), sampled=((3, 5),)),
        Tokens(token_ids=(*OLD, 4, 6, 7), sampled=((5, 6),)),
    )
    assert with_prompt([first, second], NEW) == (
        Tokens(token_ids=(9, 4, 5), sampled=((1, 3),)),
        Tokens(token_ids=(9, 4, 6, 7), sampled=((3, 4),)),
    )


def test_a_context_that_was_written_anew_has_no_prompt_to_take_the_place_of() -> None:
    first, other = Tokens(token_ids=(*OLD, 4), sampled=((3, 4),)), Tokens(token_ids=(1, 8, 4, 6), sampled=((3, 4),))
    assert with_prompt([first, other], NEW) == ()


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> ChatRenderer:
    world = SearchQAWorld(recipe(SHOWN).env)
    return ChatRenderer(str(tokenizer_in(tmp_path_factory.mktemp("tokenizer"), world.texts(8), world.tags, 512)))


async def right(_: Transcript) -> Reward:
    return Reward(value=1.0, parts={})


class Answered(SearchQAWorld):
    """Every search finds the same: no server is started."""

    def env(self, task: Task) -> ToolEpisode:
        async def search(query: str) -> str:
            return "Doc 1(Title: Kakate) The founder of Kakate is Supedi."

        return ToolEpisode(super().env(task).first_messages(), PROTOCOLS["icrl"], search)


def play(world: SearchQAWorld, task: Task, renderer: ChatRenderer) -> Trajectory:
    """What the demonstration says."""
    turns = [message.content for message in world.demonstration(task, 0).messages if message.role == "assistant"]
    return asyncio.run(episode(world, task, turns, renderer, score=right, plan=made.plan(max_context=4096)))


def line(played: Trajectory, task: Task, tokenizer: str = "mine") -> dict[str, Any]:
    group = group_record(made.group(made.ticket(task=task), played), tokenizer)
    record: dict[str, Any] = json.loads(json.dumps(to_json(group.trajectories[0])))
    return record


def test_it_is_the_sample_of_an_episode_with_the_own_prompt_in_which_the_same_was_said(renderer: ChatRenderer) -> None:
    shown, alone = Answered(recipe(SHOWN).env), Answered(recipe(ALONE).env)
    task = shown.tasks("train")[3]
    with_examples, without = (line(play(world, task, renderer), task) for world in (shown, alone))
    example = under_own_prompts(read_answer, recipe(ALONE))(with_examples, "line 1")
    ((taught,),) = samples_of(example, renderer, "mine", ())
    (expected,) = without["samples"]
    assert len(with_examples["samples"][0]["token_ids"]) > len(expected["token_ids"]) + 50
    assert taught.token_ids.tolist() == expected["token_ids"]
    trained = [at for start, end in expected["sampled"] for at in range(start, end)]
    assert taught.loss_mask.nonzero()[0].tolist() == trained
    ((sample,),) = samples_of(read_answer(with_examples, "line 1"), renderer, "mine", ())  # without the key, as it was
    assert sample.token_ids.tolist() == with_examples["samples"][0]["token_ids"]


def test_answers_of_another_tokenizer_are_spelled_after_the_own_prompt(renderer: ChatRenderer) -> None:
    world = Answered(recipe(SHOWN).env)
    task = world.tasks("train")[0]
    example = under_own_prompts(read_answer, recipe(ALONE))(line(play(world, task, renderer), task), "line 1")
    stop = tuple(world.env(task).stop_strings)
    ((taught,),) = samples_of(example, renderer, "another", stop)
    prompt = SearchQAWorld(recipe(ALONE).env).env(task).first_messages()
    own = renderer.prompt_ids(prompt)
    assert taught.token_ids.tolist()[: len(own)] == list(own)
    assert taught.loss_mask.argmax() == len(own)


@pytest.mark.parametrize(
    ("change", "says"),
    [({"task_id": "nowhere"}, "no training task"), ({"question": "Who?"}, "another question")],
)
def test_an_answer_to_a_task_that_the_environment_lacks_is_refused_with_its_line(
    change: dict[str, str], says: str
) -> None:
    task = SearchQAWorld(recipe(ALONE).env).tasks("train")[0]
    record = {"prompt": "?", "response": "x", "task": {"task_id": task.task_id, "question": task.question} | change}
    with refused(where="line 7", says=says):
        under_own_prompts(read_answer, recipe(ALONE))(record, "line 7")


def opened(records: list[dict[str, Any]], folder: Path, held: int) -> Data:
    """The last `held` of them are held out."""
    (folder / "answers.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    parse = under_own_prompts(read_answer, recipe(ALONE))
    whole = open_data(parse, {folder / "answers.jsonl": None}, EvalConfig(), seed=0).train
    return Data(train=whole[: len(records) - held], held_out=whole[len(records) - held :])


def test_answers_that_do_not_fit_are_counted_and_none_of_them_is_drawn(renderer: ChatRenderer, tmp_path: Path) -> None:
    """Of four, one is longer than the window, one was written anew, and one is of another tokenizer."""
    world = Answered(recipe(SHOWN).env)
    tasks = world.tasks("train")[:4]
    records = [line(play(world, task, renderer), task) for task in tasks]
    records[1]["samples"].append({"token_ids": [5, 6, 7], "sampled": [[2, 3]]})
    ids, last = records[2]["samples"][0]["token_ids"], records[2]["samples"][0]["token_ids"][-1:]
    records[2]["samples"][0]["token_ids"] = ids + last * 2000
    records[3]["tokenizer"] = "another"
    data = opened(records, tmp_path, held=1)

    def read(example: Example) -> list[list[Sample]]:
        return samples_of(example, renderer, "mine", tuple(world.env(tasks[0]).stop_strings))

    counted: list[tuple[int, int]] = []
    fitting, account = keep_fitting("stages.distil", data, read, 1000, "mine", lambda *at: counted.append(at))
    assert (account.taught, account.too_long, account.rewritten) == (2, 1, 1)
    assert [place.number for place in fitting.train.places] == [1] and len(fitting.held_out) == 1
    assert counted == [(0, 4), (1, 4), (2, 4), (3, 4)]
    before = records[0]["samples"][0]["sampled"][0][0]
    assert (account.sampled, account.before) == (1, before)  # the mean is of those that say it
    assert f"take the place of {before};" in account.describe()
    with pytest.raises(RunFailed, match="stages.distil: no answer fits"):
        keep_fitting("stages.distil", data, read, 10, "mine")


def test_epochs_go_over_the_answers_that_fit_which_is_known_when_the_stage_begins(tmp_path: Path) -> None:
    keys = ["stages.distil.data=answers.jsonl", "stages.distil.steps=null", "stages.distil.epochs=2"]
    (tmp_path / "distil.yaml").write_text(STAGES)
    distil = compose(str(tmp_path / "distil.yaml"), keys).stages[-1]
    assert (distil.steps, distil.epochs, distil.prompts) == (0, 2, "env")


STAGES = """
extends: icrl/tiny
stages:
  - {name: tries, kind: generate, env: {demonstrations: {count: 2}}, generate: {tasks: 8}}
  - {name: distil, kind: sft, data: tries, prompts: env, steps: 2}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "distil.yaml"
    path.write_text(STAGES)
    return str(path)


def test_the_key_survives_the_runs_own_configuration(config: str, tmp_path: Path) -> None:
    read = compose(config, [])
    assert [stage.prompts for stage in read.stages] == [None, "env"]
    (tmp_path / "config.yaml").write_text(to_yaml(read))
    assert compose(str(tmp_path / "config.yaml"), [], saved=True) == read


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["stages.distil.prompts=own"], "distil.prompts"),
        (["stages.distil.data=null"], "null without data"),
        (["stages.tries.prompts=env"], "sft stage with data"),
        (["stages.distil.kind=dpo"], "sft stage with data"),
        (["stages.distil.env.protocol=rag"], "retriever"),
    ],
)
def test_where_the_key_has_no_meaning_it_is_refused(config: str, changes: list[str], says: str) -> None:
    with refused(says=says):
        compose(config, changes)


def test_prompts_that_are_the_same_or_of_other_tasks_are_refused_before_anything_starts() -> None:
    check_other_prompts("stages.distil", recipe(SHOWN), recipe(ALONE))
    with refused("stages.distil.prompts", says="that are played"):
        check_other_prompts("stages.distil", recipe(ALONE), recipe(ALONE))
    with refused(where="stages.distil", says="no training task"):
        check_other_prompts("stages.distil", recipe(SHOWN), recipe(ALONE, train_tasks=4))


def test_prompts_that_cannot_be_made_are_not_called_the_same_and_one_task_of_many_may_differ(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prompts(own: RecipeConfig) -> Any:
        def of(task: Task) -> tuple[str, str]:
            last = task.task_id == SearchQAWorld(recipe(ALONE).env).tasks("train")[-1].task_id
            return task.question, "shown" if last and own.env.demonstrations.count else ""

        return of

    monkeypatch.setattr(own_prompts, "own_prompt", prompts)
    assert prompts_differ(recipe(SHOWN), recipe(ALONE)) is True
    assert prompts_differ(recipe(ALONE), recipe(ALONE)) is False

    def breaks(own: RecipeConfig) -> Any:
        raise KeyError("no corpus yet")

    monkeypatch.setattr(own_prompts, "own_prompt", breaks)
    assert prompts_differ(recipe(ALONE), recipe(ALONE)) is None
    check_other_prompts("stages.distil", recipe(ALONE), recipe(ALONE))


@pytest.mark.parametrize(("key", "says"), [("env", "of this stage's environment"), ("null", "that stage tries plays")])
def test_a_dry_run_says_which_prompts_are_taught(config: str, key: str, says: str, capsys: Any) -> None:
    assert rlsys(["train", config, "--dry-run", f"stages.distil.prompts={key}"]) == 0
    assert any("prompts =" in text and says in text for text in capsys.readouterr().out.splitlines())


def test_an_account_of_nothing_divides_by_nothing() -> None:
    assert "0 answers" in PromptAccount(too_long=3).describe()
