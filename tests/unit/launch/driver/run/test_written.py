"""How many groups of a step are written: whole ones, within a number of episodes and a size."""

from __future__ import annotations

import pytest

from launch.driver.run.written import choose_written, line_bytes
from rlsys.config.output import TrajectoriesConfig
from rlsys.jsonl import json_line
from rlsys.records import make_record, to_json
from rlsys.summaries import GroupRef, summarize, summarize_group
from rlsys.types import Message
from tests.makers import made

GROUPS, SIZE = 16, 8


def step(sampled: int) -> list[GroupRef]:
    """Groups of 8 answers of so many tokens each."""
    turn = made.turn(tuple(range(100)), tuple(range(sampled)))
    groups = []
    for number in range(GROUPS):
        siblings = (made.trajectory(turn, sibling=sibling, reward=0.0) for sibling in range(SIZE))
        group = made.group(made.ticket(number), *siblings)
        groups.append(GroupRef(ticket=group.ticket, summaries=summarize_group(group), source=group))
    return groups


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        (TrajectoriesConfig(), 16),  # 128 episodes of 8k tokens: 14 MB
        (TrajectoriesConfig(keep_mb=7.3), 8),
        (TrajectoriesConfig(keep_mb=0.001), 1),
        (TrajectoriesConfig(keep=24, keep_mb=7.3), 3),
        (TrajectoriesConfig(keep=0, keep_mb=7.3), 0),
        (TrajectoriesConfig(keep=None, keep_mb=7.3), 8),
    ],
)
def test_the_smaller_of_both_limits_holds(config: TrajectoriesConfig, groups: int) -> None:
    """An episode is 1,500 + 100 x 4.5 + 8,000 x 13.9 = 113,150 bytes, and 128 of them are 14.48 MB."""
    played = step(8_000)
    assert line_bytes(played[0].summaries[0], True) == pytest.approx(113_150)
    chosen = choose_written(played, SIZE, config)
    assert [group.ticket.sequence for group in chosen] == [at * GROUPS // groups for at in range(groups)]


def test_the_size_is_a_limit_of_its_own_whatever_the_number_of_episodes_is() -> None:
    """128 episodes of 32k tokens are 58 MB eight times; 50 MiB are 115 of the 1,024, in 14 groups."""
    for keep in (1_024, 1_000, None):
        assert TrajectoriesConfig(keep=keep).most_bytes == 50 * 2**20
    assert TrajectoriesConfig(keep_mb=2.5).most_bytes == 2.5 * 2**20
    assert TrajectoriesConfig(keep_mb=None).most_bytes == float("inf")
    long = [group for _ in range(8) for group in step(32_768)]
    assert len(choose_written(long, SIZE, TrajectoriesConfig())) == 14
    assert len(choose_written(long, SIZE, TrajectoriesConfig(keep=None))) == 14
    assert len(choose_written(long, SIZE, TrajectoriesConfig(keep_mb=None))) == 128


def test_what_a_line_takes_is_known_before_it_is_written() -> None:
    """Text of four bytes a token, ids of five and six digits."""
    turn = made.turn(tuple(range(1_000)), tuple(range(60_000, 68_000)))
    messages = (Message(role="user", content="abc " * 1_000), Message(role="assistant", content="abc " * 8_000))
    trajectory = made.trajectory(turn, reward=0.0, messages=messages)
    group = made.group(made.ticket(3), trajectory)
    for logprobs in (True, False):
        written = len(json_line(to_json(make_record(trajectory, group, logprobs=logprobs))))
        assert line_bytes(summarize(trajectory), logprobs) == pytest.approx(written, rel=0.15)
