"""Which episodes stand in the table of samples, and what a cell holds."""

import pytest

from launch.driver.observe.trackers.samples import COLUMNS, cells, choose_samples
from rlsys.types import EpisodeEnd, Failure, FailureKind, Message, Reward, Task, Timings, Trajectory


def outcome(value: float | None) -> Reward | Failure:
    failure = Failure(kind=FailureKind.INFRA, where="w", detail="d")
    return failure if value is None else Reward(value=value, parts={})


@pytest.mark.parametrize(
    ("groups", "count", "expected"),
    [
        ([[3, 1, 2, 0, 4]], 1, [0]),
        ([[3, 1, 2, 0, 4]], 9, [0, 1, 2, 3, 4]),
        ([[1, 1, 1]], 2, [1, 1]),
        ([[None, 5]], 2, [5]),
        ([[None], []], 2, []),
        ([], 2, []),
        ([[0, 9], [4, 5], [7, 8]], 0, []),
        ([[0, 9], [4, 6], [7, 8]], 3, [0, 4, 8]),  # means 4.5, 5, 7.5: one of each, from low to high
        ([[0, 9], [4, 6], [7, 8]], 5, [0, 4, 7, 8, 9]),  # then the hardest and the easiest once more
        ([[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]], 3, [0, 2, 4]),
    ],
)
def test_a_table_shows_different_prompts_from_the_lowest_reward_to_the_highest(
    groups: list[list[float | None]], count: int, expected: list[float]
) -> None:
    chosen = choose_samples([[outcome(value) for value in group] for group in groups], count)
    assert [groups[group][sibling] for group, sibling in chosen] == expected
    assert len(set(chosen)) == len(chosen)


def test_no_group_comes_twice_before_every_one_came_once() -> None:
    chosen = choose_samples([[outcome(value) for value in range(8)] for _ in range(5)], 5)
    assert sorted(group for group, _ in chosen) == [0, 1, 2, 3, 4]


def test_a_cell_is_bounded_and_can_be_written() -> None:
    messages = (Message(role="user", content="q \ud800"), Message(role="assistant", content="a" * 20_000))
    episode = Trajectory(
        task=Task(task_id="t", question=""),
        sibling=0,
        turns=(),
        messages=messages,
        end=EpisodeEnd.ANSWERED,
        reward=Reward(value=1.0, parts={"found": 1.0}),
        timings=Timings(generate_s=0, tool_s=0, score_s=0),
        num_prompt=1,
    )
    row = dict(zip(COLUMNS, [7, *cells(episode)], strict=True))
    assert row["prompt"] == "user: q \\ud800" and len(row.pop("messages")) == 10_000
    assert row | {"prompt": ""} == {
        "step": 7, "task": "t", "prompt": "", "end": "answered", "reward": 1.0, "parts": '{"found": 1.0}', "tokens": 0,
    }  # fmt: skip
