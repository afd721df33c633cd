"""What an evaluation comes to: a number that is called what it is, and failures that are counted and shown."""

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.rewards.answer import AnswerRewardConfig
from launch.commands.eval import table
from launch.run.evaluate import score, told
from launch.run.rundir import RunDir
from rlsys.errors import RunFailed
from rlsys.harvest import check_failed
from rlsys.types import (
    EpisodeEnd,
    Failure,
    FailureKind,
    Group,
    Reward,
    Task,
    Ticket,
    Timings,
    Trajectory,
)

BROKEN = Failure(kind=FailureKind.DATA, where="reward", detail="ValueError: it\nbroke")
MAZE = SimpleNamespace(name="tests.unit.launch.run.test_evaluate.MazeReward")


@dataclass(frozen=True)
class MazeConfig:
    name: str = ""


class MazeReward:
    """Somebody's own: the exit, and something for form. It does not say which part is right."""

    def __init__(self, config: MazeConfig) -> None: ...


def group(*rewards: Reward | Failure) -> Group:
    task = Task(task_id="t:1", question="2 + 3?", answers=("5",))
    trajectories = tuple(
        Trajectory(
            task=task,
            sibling=index,
            turns=(),
            messages=(),
            end=EpisodeEnd.FAILED if isinstance(reward, Failure) else EpisodeEnd.ANSWERED,
            reward=reward,
            timings=Timings(generate_s=0.0, tool_s=0.0, score_s=0.0),
            discarded_tokens=2,
        )
        for index, reward in enumerate(rewards)
    )
    ticket = Ticket(sequence=0, epoch=0, task=task, attempt=0, start_version=0)
    return Group(ticket=ticket, trajectories=trajectories, worker="w")


def reward(goal: float, form: float, right: str = "correct") -> Reward:
    return Reward(value=goal + form, parts={right: goal, "format": form})


def test_an_accuracy_is_over_those_that_were_graded() -> None:
    found = score([group(reward(1.0, 0.1), reward(0.0, 0.1), BROKEN)], AnswerRewardConfig(), 0.5)
    assert (found.measure, found.value, found.accuracy, found.mean_reward) == ("accuracy", 0.5, 0.5, pytest.approx(0.6))
    assert (found.episodes, found.failures, found.discarded) == (3, 1, 6)
    assert found.row() == {"accuracy": 0.5, "mean_reward": pytest.approx(0.6), "episodes": 3, "failures": 1}


def test_without_a_word_on_what_is_right_the_number_is_a_mean_reward() -> None:
    """The maze of a newcomer: 4 of 30 at the exit, and an answer tag for all. It was reported as an accuracy of 1."""
    played = [group(*[reward(1.0, 0.1, "goal")] * 4, *[reward(0.0, 0.1, "goal")] * 26)]
    found = score(played, MAZE, 0.5)
    assert (found.measure, found.accuracy, found.value) == ("mean reward", None, pytest.approx(7 / 30))
    assert "accuracy" not in found.row()
    head, line = table({"greedy": found})
    assert "mean reward" in head and "accuracy" not in head and line.startswith("greedy           0.233        30")
    assert "accuracy" in table({"greedy": score(played, AnswerRewardConfig(), 0.5)})[0]


def test_failures_are_told_with_the_first_reason() -> None:
    whole = score([group(reward(1.0, 0.0))] * 3, AnswerRewardConfig(), 0.5)
    assert told({"greedy": whole, "sampled": whole}) == "greedy 1.000, sampled 1.000"
    some = score([group(reward(1.0, 0.0), reward(0.0, 0.0), BROKEN)] * 8, AnswerRewardConfig(), 0.5)
    assert told({"greedy": some, "sampled": whole}) == (
        "greedy 0.500, sampled 1.000; greedy: 16 of 24 graded, 8 failed; "
        "the first: data in reward: ValueError: it broke"
    )


def test_an_evaluation_that_is_made_again_has_one_line_and_a_lost_one_none(tmp_path: Path) -> None:
    directory = RunDir(tmp_path / "run")

    def lines() -> list[tuple[str, int, float]]:
        rows = map(json.loads, (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines())
        return [(row["when"], row["step"], row["greedy/accuracy"]) for row in rows]

    for when, step, accuracy in (("before", 150, 0.1), ("after", 162, 0.9), ("before", 150, 0.2)):
        directory.save_evaluation({"step": step, "stage": "rl", "when": when, "greedy/accuracy": accuracy})
    assert lines() == [("before", 150, 0.2), ("after", 162, 0.9)]
    directory.rewind_metrics(156)  # to the newest checkpoint
    assert lines() == [("before", 150, 0.2)]
    directory.close()


def test_above_the_limit_there_is_no_number() -> None:
    most = score([group(reward(1.0, 0.0), BROKEN, BROKEN)] * 8, AnswerRewardConfig(), 0.5)
    assert (most.value, most.accuracy, most.mean_reward) == (None, None, None)
    assert most.row() == {"episodes": 24, "failures": 16}
    assert told({"greedy": most}).startswith(
        "greedy none; greedy: 8 of 24 graded, 16 failed, above loop.max_failed_share=0.5; the first:"
    )
    with pytest.raises(RunFailed, match=r"^16 of 24 episodes failed \(limit .*=0.5\); the first: .* it broke$"):
        check_failed(most.failed, most.episodes, most.limit, "episodes")  # as `rlsys eval` does
    assert table({"greedy": most})[1].split()[:4] == ["greedy", "-", "24", "16"]
