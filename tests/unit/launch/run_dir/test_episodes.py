"""The index of episodes: what stands in it, when it is not trusted, and that it is the same made from the files."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from launch.run_dir.directory import read_directory
from launch.run_dir.episodes import Episodes, read_episodes
from rlsys.episode_index import EpisodePlace, index_row
from tests.makers.made import jsonl
from tests.makers.run_directory import episode, run_directory

EVALUATION = {"step": 0, "stage": "rl", "when": "before", "set/greedy/episodes": 1}
PLACE = EpisodePlace(file="step-000001.jsonl", offset=5, length=9, step=1, stage="rl")


def made(path: Path, by_step: Mapping[int, Sequence[Mapping[str, Any]]]) -> Path:
    run_directory(path, [{"step": step} for step in by_step], evaluations=[EVALUATION])
    for step, lines in by_step.items():
        jsonl(path / "trajectories" / f"step-{step:06d}.jsonl", lines)
    return path


def opened(path: Path) -> Episodes:
    return read_episodes(read_directory(path))


def indexed(path: Path) -> list[dict[str, Any]]:
    """Write the index as a run does, and return its rows."""
    rows = []
    for file in sorted((path / "trajectories").glob("step-*")):
        offset = 0
        for line in (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).splitlines(
            True
        ):
            step = int(file.name[5:11])
            place = EpisodePlace(file=file.name, offset=offset, length=len(line), step=step, stage="rl")
            rows.append(index_row(json.loads(line), place))
            offset += len(line)
    jsonl(path / "trajectories" / "index.jsonl", rows)
    return rows


def test_a_row_of_the_index() -> None:
    line = episode(
        messages=[{"role": "assistant"}, {"role": "user"}, {"role": "assistant"}],
        weight_versions=[[[2, 0, 5]], [[1, 0, 2], [3, 2, 5]]],
        metrics={"calls": 1.0},
        seconds={"generate": 1.5, "tool": 0.25},
    )
    row = index_row(line, PLACE)
    assert {key: row[key] for key in ("turns", "calls", "first_version", "last_version", "seconds", "correct")} == {
        "turns": 2, "calls": 1, "first_version": 1, "last_version": 3, "seconds": 1.75, "correct": True
    }  # fmt: skip
    assert (row["file"], row["offset"], row["play"], row["failure"]) == ("step-000001.jsonl", 5, None, None)


def test_a_verdict_counts_before_a_part_of_the_reward() -> None:
    assert index_row(episode(correct=False), PLACE)["correct"] is False
    assert index_row(episode(parts={"correct": 0.0}), PLACE)["correct"] is False
    assert index_row(episode(parts={"format": 1.0}), PLACE)["correct"] is None


def test_a_line_of_any_shape_has_a_row_of_strict_json() -> None:
    odd = {"task": 3, "reward": 1e999, "parts": {"x": float("nan")}, "messages": "x", "weight_versions": [[[]], 3]}
    row = index_row({**odd, "advantage": 10**400, "failure": {"kind": ["x"]}, "sequence": 1.5}, PLACE)
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert (row["reward"], row["advantage"], row["parts"], row["sequence"]) == (None, None, {}, None)


def test_episodes_without_an_index_are_the_same_as_with_one(tmp_path: Path) -> None:
    failed = episode(sibling=1, reward=None, parts={}, failure={"kind": "timeout", "where": "x", "detail": "y"})
    path = made(tmp_path / "a", {2: [episode(), failed], 1: [episode(sequence=7)]})
    jsonl(path / "trajectories" / "eval-rl-before-set-greedy.jsonl", [episode(sequence=9, advantage=None)])
    jsonl(path / "trajectories" / "step-000003.jsonl", [episode()])  # its step was taken back: it has no row
    without = opened(path)
    assert [without.text("file", row) for row in range(len(without))] == [
        "eval-rl-before-set-greedy.jsonl", "step-000001.jsonl", "step-000002.jsonl", "step-000002.jsonl"
    ]  # fmt: skip
    assert without.in_training.tolist() == [False, True, True, True]
    assert (without.text("play", 0), without.text("when", 0), without.text("failure", 3)) == (
        "set/greedy", "before", "timeout"
    )  # fmt: skip
    assert without.has("failure", "timeout").tolist() == [False, False, False, True]
    (path / "trajectories" / "step-000003.jsonl").unlink()
    indexed(path)
    episodes = opened(path)
    for name, column in without.columns.items():
        if name not in without.texts:
            assert np.array_equal(column, episodes.columns[name], equal_nan=True), name
    assert [json.loads(line)["sequence"] for _, line in episodes.lines([1, 0])] == [9, 7]


def test_a_file_that_the_index_does_not_fit_is_read_itself(tmp_path: Path) -> None:
    path = made(tmp_path / "a", {1: [episode(), episode(sibling=1)], 2: [episode()], 3: [episode()]})
    rows = indexed(path)
    jsonl(path / "trajectories" / "index.jsonl", [*rows[1:], {**rows[-1], "file": "../config.yaml"}])
    jsonl(path / "trajectories" / "step-000002.jsonl", [episode(reward=0.25)])  # taken again
    episodes = opened(path)
    assert episodes.columns["step"].tolist() == [1, 1, 2, 3]
    assert episodes.columns["sibling"].tolist() == [0, 1, 0, 0]
    assert episodes.columns["reward"].tolist() == [1.0, 1.0, 0.25, 1.0]


def test_compressed_torn_and_damaged_files(tmp_path: Path) -> None:
    path = made(tmp_path / "a", {1: [episode()], 2: [], 3: [episode()]})
    folder = path / "trajectories"
    lines = (json.dumps(episode(sequence=n)) + "\n" for n in range(3))
    (folder / "step-000002.jsonl").unlink()
    (folder / "step-000002.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    with (folder / "step-000003.jsonl").open("a") as file:
        file.write("damaged\n" + json.dumps(episode(sibling=5)) + '\n{"torn')
    (folder / "step-000001.jsonl").unlink()
    (folder / "step-000001.jsonl").symlink_to(path / "config.yaml")
    episodes = opened(path)
    assert episodes.columns["step"].tolist() == [2, 2, 2, 3, 3]
    assert [json.loads(line)["sequence"] for _, line in episodes.lines(range(3))] == [0, 1, 2]
    assert [json.loads(line)["sibling"] for _, line in episodes.lines([4])] == [5]
    assert any("step-000003.jsonl line 2" in line for line in episodes.damage)
    assert any("step-000001.jsonl" in line for line in episodes.damage)


ANSWER = {"label": "sums", "reward": {"name": "answer"}}
OTHER = {"label": "maps", "reward": {"name": "blocksworld"}}


def test_a_set_with_a_reward_of_its_own_is_judged_by_that_one_without_an_index(tmp_path: Path) -> None:
    sets = {"hard": {"reward": {"name": "blocksworld"}}, "sums": {"reward": {"name": "blocksworld"}}, "maps": {}}
    plays = ("hard", "sums", "maps", "none")
    rows = [{"step": 0, "stage": "rl", "when": "before", **{f"{name}/greedy/episodes": 1 for name in plays}}]
    several = {"envs": [ANSWER, OTHER], "env": None, "reward": None}
    for name, config, solved in (
        ("mixture", several, [True, True, True, None, True]),
        ("alone", {"reward": {"name": "answer"}}, [True, True, None, None, True]),
    ):
        path = run_directory(tmp_path / name, [{"step": 1}], evaluations=rows, eval={"sets": sets}, **config)
        for play in plays:
            line = episode(parts={"valid": 1.0}, advantage=None)
            jsonl(path / "trajectories" / f"eval-rl-before-{play}-greedy.jsonl", [line])
        own = episode(task={"task_id": "sums/t:1"}, parts={"correct": 1.0})
        jsonl(path / "trajectories" / "step-000001.jsonl", [own])
        episodes = opened(path)
        by_play = {episodes.text("play", row): int(episodes.columns["correct"][row]) for row in range(len(episodes))}
        names = [*(f"{label}/greedy" for label in plays), None]
        assert [{1: True, 0: False, -1: None}[by_play[label]] for label in names] == solved
