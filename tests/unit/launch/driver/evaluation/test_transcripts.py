"""Episodes on disk as they end: whole tasks only, continued by what they were begun with, never written over."""

import json
from pathlib import Path

from launch.driver.evaluation.transcripts import Transcripts, transcript_folder
from rlsys.types import Failure, FailureKind, Group
from tests.makers.made import group, ticket, trajectory, turn
from tests.refused import refused

BEGUN = {"weights": "abc", "greedy": {"seed": 0}}
GONE = Failure(kind=FailureKind.INFRA, where="rollout:0", detail="gone")


def opened(folder: Path, begun: object = None) -> Transcripts:
    return Transcripts(folder, begun or BEGUN, {"greedy": 1, "hotpotqa/sampled": 2})  # type: ignore[arg-type]


def pair(sequence: int, reward: float | Failure = 1.0) -> Group:
    exchange = turn((1, 2), (7, 8))
    return group(ticket(sequence), *(trajectory(exchange, sibling=at, reward=reward) for at in range(2)))


def test_what_was_played_is_read_back_without_its_tokens(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    first.add("hotpotqa/sampled", pair(3))
    first.close()
    (line, _) = (tmp_path / "a" / "hotpotqa-sampled.jsonl").read_text().splitlines()
    assert json.loads(line)["token_ids"] == [[7, 8]]
    again = opened(tmp_path / "a")
    assert (list(again.played["hotpotqa/sampled"]), again.played["greedy"]) == ([3], {})
    (record, other) = again.records("hotpotqa/sampled")
    assert (record.reward, record.num_tokens, record.token_ids, other.sibling) == (1.0, 2, (), 1)
    again.close()


def test_what_a_kill_tore_and_what_nobody_could_grade_is_owed(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    for sequence, reward in ((0, 1.0), (1, GONE), (2, 0.0), (3, 0.5)):
        first.add("hotpotqa/sampled", pair(sequence, reward))
    first.close()
    path = tmp_path / "a" / "hotpotqa-sampled.jsonl"
    path.write_bytes(path.read_bytes()[:-30])  # the second sample of the last task
    again = opened(tmp_path / "a")
    assert sorted(again.played["hotpotqa/sampled"]) == [0, 2]
    again.add("hotpotqa/sampled", pair(3))
    again.close()
    assert [json.loads(line)["sequence"] for line in path.read_text().splitlines()] == [0, 0, 2, 2, 3, 3]


def test_another_evaluation_is_not_continued_nor_one_that_goes_on(tmp_path: Path) -> None:
    first = opened(tmp_path / "a")
    with refused(says="another process is writing it"):
        opened(tmp_path / "a")
    first.close()
    with refused("--resume", says="was begun with weights='abc', not"):
        opened(tmp_path / "a", BEGUN | {"weights": "xyz"})
    (tmp_path / "a" / "greedy.jsonl").write_text("{}\n")
    with refused(where="greedy.jsonl line 1", says="not a trajectory"):
        opened(tmp_path / "a")


def test_each_evaluation_has_a_folder_of_its_own(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    with refused("--resume", says="there is no result.transcripts"):
        transcript_folder(output, resume=True)
    assert transcript_folder(output, resume=False).name == "result.transcripts"
    (tmp_path / "result.transcripts").mkdir()
    assert transcript_folder(output, resume=True).name == "result.transcripts"
    assert transcript_folder(output, resume=False).name == "result.transcripts-2"
    (tmp_path / "result.transcripts-2").mkdir()
    assert transcript_folder(output, resume=True).name == "result.transcripts-2"
