"""What holds for every environment: the keys that they share, the sources of their tasks, how often a world is made."""

import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import envs
import learners.scratch
from envs import WORLDS
from envs.base import World
from envs.tasks import splits
from envs.tasks.config import TaskConfig
from envs.tools.search import SearchConfig
from launch.cli import run
from launch.config.compose import compose
from launch.driver.run import nodes, wire
from rlsys.choices import choose
from rlsys.errors import BadInput
from rlsys.types import Task
from tests.makers.made import jsonl
from tests.refused import refused

GRAPH = {"kind": "connectivity", "num_nodes": 40, "source": 0}
BLOCKS = ("red", "blue", "orange", "yellow", "green", "magenta")


def question(n: int) -> dict[str, Any]:
    return {"question": f"q{n}?", "answer": f"#### {n}"}


def graph(n: int) -> dict[str, Any]:
    return {**GRAPH, "edges": [[0, n + 1]], "target": n + 1}


def blocks(n: int) -> dict[str, Any]:
    top, under = BLOCKS[n], BLOCKS[n - 1]
    start = f"the {top} block is clear, the {under} block is clear, the hand is empty, "
    start += f"the {top} block is on the table and the {under} block is on the table"
    return {"initial": start, "goal": f"the {top} block is on top of the {under} block"}


def problem(n: int) -> dict[str, Any]:
    return {"question": f"q{n}?", "answer": str(n), "metadata": {"source_dataset": "gcd"}}


def game(n: int) -> dict[str, Any]:
    return {"seed": n}


# By environment: a record of its data, and what its config needs beside data.
RECORDS = {name: (question, {}) for name in WORLDS} | {"graph": (graph, {}), "blocksworld": (blocks, {})}
RECORDS["reasoning_gym"] = (problem, {})
RECORDS["games"] = (game, {})
RECORDS["agent"] = (question, {"agent": "cat"})
RECORDS["search_qa"] = (question, {"retriever": SearchConfig(url="http://127.0.0.1:9")})


SPLITS = {"train": range(3), "test": (3, 4)}


def make(name: str, **keys: Any) -> World:
    world: World = envs.new_world(choose("env", WORLDS, name).schema(**RECORDS[name][1], **keys))
    return world


def write(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    if path.suffix == ".parquet":
        import pyarrow as arrow  # type: ignore[import-untyped]
        import pyarrow.parquet as parquet  # type: ignore[import-untyped]

        parquet.write_table(arrow.Table.from_pylist(list(rows)), path)
        return str(path)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
        return str(path)
    return jsonl(path, rows)


def places(tasks: Sequence[Task]) -> set[str]:
    """The files that tasks come from."""
    return {task.task_id.partition(":")[0] for task in tasks}


@pytest.mark.parametrize("suffix", ["jsonl", "parquet", "jsonl.gz"])
@pytest.mark.parametrize("name", WORLDS)
def test_two_splits_of_one_data_set_are_told_apart(name: str, suffix: str, tmp_path: Path) -> None:
    record, _ = RECORDS[name]
    write(tmp_path / f"train.{suffix}", [record(n) for n in range(3)])
    write(tmp_path / f"test.{suffix}", [record(n) for n in (3, 4)])
    paths = {"data": str(tmp_path), "eval_data": str(tmp_path)}
    world = make(name, **paths, data_split="train", eval_split="test")
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (3, 2)
    assert places(world.tasks("train")) == {f"train.{suffix}"}
    assert places(world.tasks("held_out")) == {f"test.{suffix}"}


@pytest.mark.parametrize("name", WORLDS)
def test_a_name_on_the_hub_is_read_as_a_file_is(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, _ = RECORDS[name]
    local = {split: write(tmp_path / f"{split}.parquet", [record(n) for n in at]) for split, at in SPLITS.items()}
    monkeypatch.setattr("envs.tasks.files.download", lambda source, split: [local[split]])
    world = make(name, data="a/b:c", data_split="train", eval_data="a/b:c", eval_split="test")
    assert (len(world.tasks("train")), len(world.tasks("held_out"))) == (3, 2)


@pytest.mark.parametrize("name", WORLDS)
def test_a_split_is_read_that_is_not_the_usual_one(name: str, tmp_path: Path) -> None:
    record, _ = RECORDS[name]
    write(tmp_path / "train.jsonl", [record(0)])
    write(tmp_path / "extra.jsonl", [record(n) for n in range(1, 5)])
    world = make(name, data=str(tmp_path), data_split="extra", held_out_tasks=1)
    assert places(world.tasks("all")) == {"extra.jsonl"} and len(world.tasks("all")) == 4


@pytest.mark.parametrize("name", WORLDS)
def test_a_bad_record_is_named_by_file_and_line(name: str, tmp_path: Path) -> None:
    record, _ = RECORDS[name]
    path = write(tmp_path / "data.jsonl", [record(0), record(1), {"nothing": "of use"}])
    with refused(where="data.jsonl line 3"):
        make(name, data=path)
    with refused(where="gone.jsonl", says="cannot be read"):
        make(name, data=str(tmp_path / "gone.jsonl"))


@pytest.mark.parametrize("name", WORLDS)
def test_the_shared_keys_are_checked_once_for_all(name: str) -> None:
    schema = choose("env", WORLDS, name).schema
    assert issubclass(schema, TaskConfig) and schema().name == name
    for key, value in (("train_tasks", 0), ("held_out_tasks", 0), ("demo_error_rate", 1.5)):
        with pytest.raises(BadInput, match=rf"env\.{key}={value}: expected"):
            schema(**{key: value})


@pytest.mark.parametrize("name", WORLDS)
def test_texts_end_at_the_limit_and_show_tasks_without_a_demonstration(name: str, tmp_path: Path) -> None:
    record, _ = RECORDS[name]
    world = make(name, data=write(tmp_path / "data.jsonl", [record(n) for n in range(1, 5)]), held_out_tasks=1)
    texts = list(world.texts(10**6))
    assert list(world.texts(2)) == texts[:2]
    for task in world.tasks("train"):
        prompt = world.env(task).first_messages()[-1].content
        assert prompt in texts


def test_a_world_says_no_to_what_it_cannot_do() -> None:
    world, task = World(), Task(task_id="t", question="q")
    assert (world.service, dict(world.tool_stats()), world.max_turns) == ("", {}, 1)
    with refused(says="t: World has no demonstrations"):
        world.demonstration(task, 0)


def test_an_env_that_asks_to_be_begun_is_told_where_that_is_done_now() -> None:
    world = World()
    world.env = lambda task: SimpleNamespace(begin=None)  # type: ignore[assignment, return-value]
    with pytest.raises(TypeError, match="World.open_env"):
        asyncio.run(world.open_env(Task(task_id="t", question="q")))


# How often


def test_the_driver_makes_the_tasks_of_the_quickstart_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The arithmetic, the checks before a run, the services, the scratch policy: one config, one split."""
    configs: list[object] = []
    read = splits.read_split

    def counted(config: Any, *others: Any) -> Any:
        configs.append(config)
        return read(config, *others)

    monkeypatch.setattr(splits, "read_split", counted)
    monkeypatch.setattr(envs, "made_worlds", {})
    monkeypatch.setattr(learners.scratch, "build", lambda folder, scratch, texts, **_: None)
    small = ["env.train_tasks=64", "env.held_out_tasks=8"]
    assert run(["train", "quickstart", *small, "--dry-run"]) == 0
    config = compose("quickstart", small)
    for stage in config.stages:
        nodes.check_rollouts(stage.config)
    wire.services([stage.config for stage in config.stages])
    wire.build_scratch_model(config.recipe, tmp_path)
    assert len(config.stages) == 2 and configs == [config.recipe.env]


def test_a_world_is_remembered_by_its_config_and_the_oldest_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envs, "made_worlds", {})
    schema = choose("env", WORLDS, "questions").schema
    configs = [schema(train_tasks=1, held_out_tasks=1, seed=seed) for seed in range(envs.MAX_WORLDS + 1)]
    first = envs.make_world(configs[0])
    assert envs.make_world(schema(train_tasks=1, held_out_tasks=1, seed=0)) is first
    assert envs.new_world(configs[0]) is not first
    worlds = [envs.make_world(config) for config in configs]
    assert len(envs.made_worlds) == envs.MAX_WORLDS and envs.make_world(configs[-1]) is worlds[-1]
    assert envs.make_world(configs[0]) is not first
