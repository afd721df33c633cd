"""DAPO's soft overlong punishment: equation 13 with the paper's numbers, and as a part of the rewards that have it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.papers.long_cot.reward import LongCotRewardConfig
from envs.rewards import counts_as_solved, make_reward
from envs.rewards.answer import AnswerRewardConfig
from envs.rewards.length import overlong
from rlsys.errors import BadInput
from tests.makers.made import transcript
from tests.refused import refused


@pytest.mark.parametrize(
    ("length", "expected"),
    [  # L_max 20480, L_cache 4096 (section 4.1): free up to 16384
        (0, 0.0),
        (16384, 0.0),
        (16385, -1 / 4096),
        (17408, -0.25),
        (18432, -0.5),
        (20479, -4095 / 4096),
        (20480, -1.0),
        (20481, -1.0),
        (99999, -1.0),
    ],
)
def test_the_papers_numbers(length: int, expected: float) -> None:
    assert overlong(length, limit=20480, buffer=4096, penalty=-1.0) == expected
    assert overlong(length, limit=20480, buffer=4096, penalty=-0.5) == expected / 2


@given(st.integers(0, 200), st.integers(1, 100), st.integers(0, 50))
def test_it_falls_by_equal_steps_and_stays_within_the_penalty(length: int, buffer: int, more: int) -> None:
    penalty, next_penalty = (
        overlong(n, limit=buffer + more, buffer=buffer, penalty=-1.0) for n in (length, length + 1)
    )
    assert -1.0 <= next_penalty <= penalty <= 0.0
    assert penalty - next_penalty == pytest.approx(1 / buffer if more <= length < more + buffer else 0.0)


@pytest.mark.parametrize("buffer", [0, 11])
def test_a_buffer_lies_within_the_limit(buffer: int) -> None:
    with pytest.raises(ValueError, match=f"buffer={buffer}: expected 1 to limit=10"):
        overlong(5, limit=10, buffer=buffer, penalty=-1.0)
    with refused("reward.overlong_buffer", found=buffer):
        AnswerRewardConfig(max_length=10, overlong_buffer=buffer)


def test_it_is_a_part_of_the_sum_and_says_why() -> None:
    config = AnswerRewardConfig(max_length=100, overlong_buffer=40, overlong_penalty=-0.5)
    reward = make_reward(config)
    answer = transcript("<answer>24</answer>", golds=("24",), token_ids=tuple(range(80)))
    scored = reward(answer)
    assert scored.parts == {"correct": 1.0, "format": 0.1, "overlong": -0.25} and scored.value == pytest.approx(0.85)
    assert counts_as_solved(config, scored)
    *_, finding = reward.findings(answer)
    assert finding.rule == "80 tokens: 20 past 60, -0.5 from 100 on" and finding.span is None
    short = transcript("<answer>24</answer>", golds=("24",), num_tokens=60)
    assert reward(short).parts["overlong"] == 0.0
    assert reward.findings(short)[-1].rule == "60 tokens, free up to 60"


@pytest.mark.parametrize(
    ("kind", "tokens", "outcome", "punished"),
    [
        ("classic", 60, 1.0, 0.0),
        ("classic", 80, 1.0, -0.5),
        ("classic", 100, 0.0, -1.0),
        ("base_model", 80, 1.0, -0.5),
        ("base_model", 100, 1.0, -1.0),
    ],
)
def test_long_cot_has_it_beside_the_outcome(kind: Any, tokens: int, outcome: float, punished: float) -> None:
    reward = make_reward(LongCotRewardConfig(kind=kind, max_length=100, margin=0, overlong_buffer=40))
    scored = reward(transcript("so \\boxed{24}", golds=("24",), num_tokens=tokens))
    assert scored.parts == {"outcome": outcome, "overlong": punished}


def test_only_where_it_is_asked_for_a_length_is_needed() -> None:
    answer = transcript("<answer>24</answer>", golds=("24",))
    plain, punishing = make_reward(AnswerRewardConfig()), AnswerRewardConfig(max_length=9, overlong_buffer=9)
    assert set(plain(answer).parts) == {"correct", "format"} and not plain.uses_tokens
    assert make_reward(punishing).uses_tokens
    with refused(where="task t", says="no length"):
        make_reward(punishing)(answer)


@pytest.mark.parametrize(
    ("config", "keys", "line"),
    [
        (AnswerRewardConfig, {"overlong_buffer": 5}, r"reward\.max_length=None"),
        (AnswerRewardConfig, {"max_length": 5}, r"reward\.max_length=5"),
        (AnswerRewardConfig, {"overlong_penalty": 1.0}, r"reward\.overlong_penalty=1\.0"),
        (LongCotRewardConfig, {"overlong_buffer": 5}, r"reward\.overlong_buffer=5"),
    ],
)
def test_keys_that_do_not_fit_are_named(config: Any, keys: dict[str, Any], line: str) -> None:
    with pytest.raises(BadInput, match=line):
        config(**keys)
