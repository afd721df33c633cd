"""Deadlines and numbers that follow from the work: a 7B on 8 cards, a 32B on 32 and a small model on two cores."""

from __future__ import annotations

import pytest

from rlsys.deadlines import (
    SLOW_TOKENS,
    Derived,
    download_s,
    episode_s,
    episodes_at_once,
    evaluation_s,
    hung_s,
    is_tight,
    moved_s,
    start_s,
)

GB = 1_000_000_000


@pytest.mark.parametrize(
    ("messages", "reply_s", "tokens", "seconds"),
    [
        (1, 30.0, 14_336, 1792.0),  # 7B: 448 s where an answer gets 32 a second
        (1, 30.0, 32_768, 4096.0),  # 32B
        (1, 30.0, 64, 300.0),  # SmolLM2
        (7, 30.0, 14_336, 1792.0 + 6 * 30.0),  # six searches
        (1_000_000, 30.0, 8_192, 1024.0 + 10 * 30.0),  # as many calls as the tokens allow
        (2, 600.0, 512, 64.0 + 600.0),
    ],
)
def test_an_episode_has_the_time_of_its_longest_response_at_a_slow_rate(
    messages: int, reply_s: float, tokens: int, seconds: float
) -> None:
    assert episode_s(messages, reply_s, tokens).value == seconds
    assert SLOW_TOKENS * 4 == 32


def test_evaluations_fill_the_engines() -> None:
    assert episodes_at_once(3, 128, 1).value == 384  # 7B: 256 were two thirds of it
    assert episodes_at_once(3, 128, 2).value == 480  # tools: a part of them waits without a seat
    assert episodes_at_once(31, 128, 8).value == 4960  # configs/research: 22,500 episodes in 5 waves, not 88
    assert episodes_at_once(8, 120, 1).value == 960  # 30 questions 32 times, at once
    assert episodes_at_once(1, 128, 1).value == 128


def test_an_evaluation_has_the_time_of_its_waves_and_of_those_under_way() -> None:
    # 7B: 200 greedy and 200 sampled answers; 900 s ended the 144 last ones, the longest
    assert evaluation_s(400, 480, 1792.0).value == 2 * 1792.0
    assert evaluation_s(400, 384, 1792.0).value == 3 * 1792.0
    assert evaluation_s(64, 256, 300.0).value == 600.0
    assert evaluation_s(0, 256, 300.0).value == 600.0


def test_a_start_has_the_time_in_which_its_bytes_arrive() -> None:
    assert start_s(15 * GB).value == 300.0 + 3 * 150.0  # 7B
    assert start_s(65 * GB).value == 300.0 + 3 * 650.0  # 32B: 300 s would be over at half of it
    assert start_s(0).value == 300.0
    assert moved_s(15_200_000_000) == 3 * 152.0 and moved_s(GB, rate=1e9) == 3.0
    assert download_s(65 * GB).value == 300.0 + 13_000.0


def test_what_hangs_is_found_within_an_hour_and_a_slow_start_is_none() -> None:
    assert hung_s(1792.0, 750.0).value == 3584.0  # 7B: it was 22 h
    assert hung_s(300.0, 300.0) == Derived(600.0, "2 x rollout.episode_timeout_s")
    assert hung_s(300.0, 2250.0) == Derived(2250.0, "rollout.start_timeout_s")


def test_more_than_half_of_a_deadline_is_tight() -> None:
    assert is_tight(3050.0, 1800.0) and is_tight(901.0, 1800.0) and not is_tight(900.0, 1800.0)
