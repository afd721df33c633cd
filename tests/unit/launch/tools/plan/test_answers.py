"""Lengths of answers that are assumed: their mean, their limit, and what an average token has before it."""

from __future__ import annotations

import math
from statistics import median

import pytest

from launch.config.compose import compose
from launch.tools.plan.answers import Answers, assume_answers, draw_lengths, group_lengths, stopping_rate
from tests.refused import refused


@pytest.mark.parametrize(
    ("mean", "limit"), [(1, 4096), (100, 100_000), (795, 3964), (3251, 3992), (4095, 4096), (8192, 14_336)]
)
def test_lengths_have_the_mean_that_is_asked_for_and_end_at_their_limit(mean: float, limit: float) -> None:
    lengths = draw_lengths(mean, limit, 2048)
    assert len(lengths) == 2048 and lengths == sorted(lengths) and lengths[0] > 0
    assert lengths[-1] == limit or mean / limit < 1e-3  # cut off where that leaves the others half of the tokens
    assert sum(lengths) / 2048 == pytest.approx(mean, rel=0.02)


def test_one_at_the_limit_leaves_the_others_half_of_the_tokens() -> None:
    """Without a limit half of them are shorter than log(2) of the mean: 45 of 65, and half of that with a cut one."""
    for mean in (64, 65, 127, 128, 200):
        assert median(draw_lengths(mean, 32_768, 512)) > mean * math.log(2) / 2 * 0.98, mean


def test_all_are_at_the_limit_where_the_mean_is() -> None:
    assert draw_lengths(4096, 4096, 3) == draw_lengths(5000, 4096, 3) == [4096, 4096, 4096]


def test_the_chance_to_stop_is_that_of_hand_computed_means() -> None:
    """Without a limit the mean is 1 / rate; at a rate of 1 / limit it is limit x (1 - 1/e)."""
    assert stopping_rate(100, 1e5) == pytest.approx(0.01)
    assert stopping_rate(1000 * (1 - 1 / math.e), 1000) == pytest.approx(1e-3)


def test_an_average_token_has_half_of_a_length_before_it_where_all_are_alike_and_more_where_they_differ() -> None:
    alike = Answers(groups=[[(1000.0, 0.0)] * 4], packed=1000.0, said="")
    assert alike.context == 500
    mixed = Answers(groups=[[(100.0, 0.0), (300.0, 0.0)]], packed=200.0, said="", prefilled=50.0)
    assert mixed.context == 50 + (100**2 + 300**2) / (2 * 400)
    assert mixed.packed_context == (150**2 + 350**2) / (2 * 500)  # the same, of prompts too


def test_groups_hold_every_length_once_and_mix_long_with_short() -> None:
    lengths = draw_lengths(500, 4000, 64)
    groups = group_lengths(lengths, 8)
    assert sorted(length for group in groups for length, _ in group) == lengths
    assert len(groups) == 8 and all(max(group) > min(group) for group in groups)
    assert groups == group_lengths(lengths, 8)  # the same at every plan


def test_a_mean_below_the_limit_is_played_by_lengths_that_differ() -> None:
    recipe = compose("gpu/qwen2.5-7b-16xa100-short", []).stages[0].config
    limit = max(assume_answers(recipe, None).lengths)
    answers = assume_answers(recipe, 1000)
    assert limit == 3072 and max(answers.lengths) == limit and len(set(answers.lengths)) > 100
    assert answers.packed == 1000 and answers.mean_tokens == pytest.approx(1000, rel=0.01)
    assert set(assume_answers(recipe, None).lengths) == {limit}


def test_what_is_prefilled_is_packed_and_never_sampled() -> None:
    recipe = compose("gpu/qwen2.5-7b-16xa100-short", []).stages[0].config
    answers = assume_answers(recipe, 1000, 400)
    assert answers.packed == 1000 and answers.mean_tokens == pytest.approx(600, rel=0.01)
    assert max(answers.lengths) == 3072 - 400  # the whole ends where the recipe ends it
    window = compose("icrl/tiny", []).stages[0].config.engine.max_model_len
    with refused("--prefill-tokens", found=window):
        assume_answers(compose("icrl/tiny", []).stages[0].config, 2 * window, window)  # nothing is left to sample
