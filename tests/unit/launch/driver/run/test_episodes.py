"""The files of episodes and their index: a row leads to its line, and none to a line that is not there any more."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launch.driver.run.episodes import EpisodeFiles, Played
from launch.driver.run.rundir import RunDir
from launch.run_dir.directory import read_directory
from launch.run_dir.episodes import read_episodes
from rlsys.config.output import TrajectoriesConfig
from rlsys.records import unpack_floats
from rlsys.seals import digest_of
from rlsys.types import Finding, Group, Reward, Span
from tests.makers import made
from tests.makers.made import records
from tests.makers.run_directory import run_directory

REWARD = Reward(
    value=0.75,
    parts={"correct": 1.0, "format": -0.25},
    findings=(
        Finding(part="correct", rule="equal", value=1.0, span=Span(message=0, start=0, end=3), text="Ans"),
        Finding(part="format", rule="no box", value=-0.25),
    ),
)


def group(sequence: int, siblings: int = 2) -> Group:
    turns = [made.turn((1, 2), (5, 6))]
    return made.group(
        made.ticket(sequence), *(made.trajectory(*turns, sibling=sibling, reward=REWARD) for sibling in range(siblings))
    )


def save(files: EpisodeFiles, step: int, *groups: Group, name: str = "", **played: Any) -> None:
    of = Played(step=step, stage="rl", **played)
    files.save(name or f"step-{step:06d}", groups, {(3, 0): 0.5}, TrajectoriesConfig(), of)


def index(folder: Path) -> list[dict[str, Any]]:
    return records(folder / "index.jsonl")


def follow(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    """The episode that a row leads to."""
    path = folder / row["file"]
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    episode: dict[str, Any] = json.loads(content[row["offset"] : row["offset"] + row["length"]])
    return episode


def test_a_large_file_of_trajectories_is_compressed_and_there_is_one_of_a_step(tmp_path: Path) -> None:
    files = EpisodeFiles(tmp_path)
    plain, packed = (tmp_path / name for name in ("step-000001.jsonl", "step-000001.jsonl.gz"))
    for limit, written, other in ((None, plain, packed), (0, packed, plain), (1.0, plain, packed)):
        config = TrajectoriesConfig(compress_mb=limit)
        files.save("step-000001", [group(3)], {(3, 0): 0.5}, config, Played(step=1, stage="rl"))
        content = written.read_bytes() if written is plain else gzip.decompress(written.read_bytes())
        lines = [json.loads(line) for line in content.splitlines()]
        assert [(line["sequence"], line["advantage"]) for line in lines] == [(3, 0.5), (3, None)]
        assert not other.exists()
        rows = index(tmp_path)
        assert [row["file"] for row in rows] == [written.name] * 2
        assert [follow(tmp_path, row) for row in rows] == lines


def test_a_compressed_file_is_read_whole_by_anyone_and_a_line_of_it_from_its_member_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 lines in members of at least 10,000 bytes, of which all but one are then damaged."""
    monkeypatch.setattr("rlsys.files.MEMBER", 10_000)
    run, groups = run_directory(tmp_path / "run", [{"step": 1}]), [group(number) for number in range(30)]
    folder, files = run / "trajectories", EpisodeFiles(run / "trajectories")
    for packed in (True, False):
        of = Played(step=1, stage="rl")
        digest = files.save("step-000001", groups, {}, TrajectoriesConfig(compress_mb=0 if packed else None), of)
        file = folder / f"step-000001.jsonl{'.gz' if packed else ''}"
        content = gzip.decompress(file.read_bytes()) if packed else file.read_bytes()
        assert digest_of(content) == digest
        rows = index(folder)
        assert [follow(folder, row)["sequence"] for row in rows] == [number for number in range(30) for _ in range(2)]
        assert [row["packed"] is None for row in rows] == [not packed] * 60
        if packed:
            first = [row["packed"] for row in rows if row["packed"][2] == 0]
            assert [begin for begin, _, _ in first[1:]] == [end for _, end, _ in first[:-1]] and first[0][0] == 0
            assert first[-1][1] == file.stat().st_size and 2 < len(first) <= len(content) / 10_000 + 1
            position = rows.index(next(row for row in rows if row["packed"][0] == first[1][0]))
            own, stored = rows[position]["packed"], file.read_bytes()
            opened = read_episodes(read_directory(run))
            assert [json.loads(line)["sequence"] for _, line in opened.lines(range(60))] == [n // 2 for n in range(60)]
            file.write_bytes(b"?" * own[0] + stored[own[0] : own[1]] + b"?" * (len(stored) - own[1]))
            ((row, line),) = opened.lines([position])
            assert (row, json.loads(line)["sequence"]) == (position, position // 2)
            assert list(opened.lines([0])) == []  # and of what is damaged nothing


def test_rows_of_a_compressed_file_that_lack_its_end_do_not_stand_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines are of one length: the end of the file has as many bytes as the last member that has a row."""
    monkeypatch.setattr("rlsys.files.MEMBER", 1)
    run = run_directory(tmp_path / "run", [{"step": 1}])
    folder = run / "trajectories"
    of = Played(step=1, stage="rl")
    EpisodeFiles(folder).save("step-000001", [group(3)] * 4, {}, TrajectoriesConfig(compress_mb=0), of)
    lines = (folder / "index.jsonl").read_text().splitlines(keepends=True)
    (folder / "index.jsonl").write_text("".join(lines[:6]))
    episodes = read_episodes(read_directory(run))
    assert len(episodes) == 8 and len(list(episodes.lines(range(8)))) == 8


def test_a_line_is_on_its_way_to_the_disk_before_the_next_group_comes(tmp_path: Path) -> None:
    """A step of 32k tokens is half a gigabyte: a writer that has 40 groups behind it holds no text of them."""
    writer = EpisodeFiles(tmp_path).begin("step-000001", {}, TrajectoriesConfig(), Played(step=1, stage="rl"))
    for number in range(40):
        writer.add(group(number))
    (temporary,) = tmp_path.iterdir()
    assert temporary.stat().st_size > 0 and temporary.name.startswith(".")  # no reader takes it for a file of episodes
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_a_row_says_what_lists_and_filters_need(tmp_path: Path) -> None:
    files = EpisodeFiles(tmp_path)
    save(files, 2, group(3), group(4))
    save(files, 2, group(0), name="eval-rl-before-greedy", play="greedy", when="before", solved_by={"format": 0.0})
    rows = index(tmp_path)
    assert [
        (row["file"], row["sequence"], row["sibling"], row["play"], row["when"], row["correct"]) for row in rows
    ] == [
        ("step-000002.jsonl", 3, 0, None, None, True),
        ("step-000002.jsonl", 3, 1, None, None, True),
        ("step-000002.jsonl", 4, 0, None, None, True),
        ("step-000002.jsonl", 4, 1, None, None, True),
        ("eval-rl-before-greedy.jsonl", 0, 0, "greedy", "before", False),
        ("eval-rl-before-greedy.jsonl", 0, 1, "greedy", "before", False),
    ]
    assert all(follow(tmp_path, row)["sibling"] == row["sibling"] for row in rows)
    assert (rows[0]["reward"], rows[0]["advantage"], rows[0]["tokens"], rows[0]["stage"]) == (0.75, 0.5, 2, "rl")


def test_going_back_drops_the_rows_of_later_steps_and_a_torn_one(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for step in (1, 2, 3):
        save(run.episodes, step, group(step))
    folder = tmp_path / "trajectories"
    with (folder / "index.jsonl").open("a") as file:
        file.write('{"file": "step-000001.jsonl", "offset"')
    run.rewind_metrics(2)
    assert [row["step"] for row in index(folder)] == [1, 1, 2, 2]
    whole = (folder / "index.jsonl").stat()
    run.rewind_metrics(2)
    assert (folder / "index.jsonl").stat().st_ino == whole.st_ino  # nothing to drop: not written again
    run.close()


def test_a_step_that_is_taken_again_has_the_rows_of_its_new_file_alone(tmp_path: Path) -> None:
    save(EpisodeFiles(tmp_path), 5, group(3), name="eval-rl-before-greedy", play="greedy", when="before")
    again = EpisodeFiles(tmp_path)  # a process that continues from step 5, and evaluates once more
    again.rewind(5)
    save(again, 5, group(3, siblings=1), name="eval-rl-before-greedy", play="greedy", when="before")
    save(again, 6, group(4))
    rows = index(tmp_path)
    assert [(row["file"], row["offset"]) for row in rows[:1]] == [("eval-rl-before-greedy.jsonl", 0)]
    assert [row["step"] for row in rows] == [5, 6, 6]
    assert all(follow(tmp_path, row)["sequence"] == row["sequence"] for row in rows)


def test_a_kill_between_the_two_files_leaves_no_row_that_leads_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = EpisodeFiles(tmp_path)
    save(files, 1, group(3))

    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(EpisodeFiles, "index", killed)
        with pytest.raises(KeyboardInterrupt):
            save(files, 2, group(4))
    assert (tmp_path / "step-000002.jsonl").exists()
    assert [row["step"] for row in index(tmp_path)] == [1, 1]


@pytest.mark.parametrize("kept", [True, False])
def test_log_probabilities_are_kept_by_turn_if_asked_for(tmp_path: Path, kept: bool) -> None:
    trajectory = made.trajectory(made.turn((1, 2), (5, 6, 7)), made.turn((3,), (8,)), reward=REWARD)
    played = made.group(made.ticket(3), trajectory)
    EpisodeFiles(tmp_path).save("x", [played], {}, TrajectoriesConfig(logprobs=kept), Played(step=1, stage="rl"))
    line = json.loads((tmp_path / "x.jsonl").read_text())
    if not kept:
        assert "logprobs" not in line
        return
    assert [len(unpack_floats(turn)) for turn in line["logprobs"]] == [3, 1]
    for turn, text in zip(trajectory.turns, line["logprobs"], strict=True):
        np.testing.assert_allclose(unpack_floats(text), turn.completion.logprobs, rtol=1e-3)


def test_findings_point_into_prompt_and_messages_together(tmp_path: Path) -> None:
    save(EpisodeFiles(tmp_path), 1, group(3, siblings=1), name="x")
    line = json.loads((tmp_path / "x.jsonl").read_text())
    first = len(line["prompt"])
    assert line["findings"] == [
        {"message": first, "start": 0, "end": 3, "part": "correct", "rule": "equal", "value": 1.0},
        {"part": "format", "rule": "no box", "value": -0.25},
    ]
