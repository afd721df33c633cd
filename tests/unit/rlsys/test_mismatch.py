"""The gap between engine and learner, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rlsys.batch import make_row
from rlsys.metrics import Max, Mean, merge, values
from rlsys.mismatch import DEPTH_NAMES, mismatch_metrics, turns
from rlsys.samples import sample_trajectory
from tests.makers.made import sample, trajectory, turn


def test_only_tokens_of_the_version_being_trained_are_compared() -> None:
    row = make_row([sample((0, 1, 1, 1), versions=(6, 7, 7))])
    logp = torch.tensor([50.0, 50.0, -1.05, -0.8])
    metrics = mismatch_metrics(logp, row, 7)
    assert metrics["mismatch/mean"].value == pytest.approx(0.125)
    assert metrics["mismatch/max"] == Max(pytest.approx(0.2))
    assert metrics["mismatch/outside_0.1"] == Mean(1.0, 2)  # exp(0.2) is outside, exp(-0.05) is not
    assert mismatch_metrics(logp, row, 8) == {}


def test_the_gap_by_turn_and_by_whether_older_weights_sampled_too() -> None:
    """A has three messages, the first partly by older weights; the sample B begins with its trajectory's second."""
    a = sample((0, 1, 1, 0, 1, 0, 1), versions=(6, 7, 7, 7))
    b = replace(sample((0, 0, 1, 1, 0, 1), versions=7), first_turn=2)
    row = make_row([a, b])
    assert turns(row)[row.loss_mask.bool()].tolist() == [1, 1, 2, 3, 2, 2, 3]
    gap = torch.tensor([0, 9, 0.1, 9, 0.2, 9, 0.3] + [9, 9, 0.4, 0.6, 9, 0.7])
    metrics = mismatch_metrics(gap - 1, row, 7)
    by_hand = {"turn_1": (0.1, 1), "turn_2": (0.2 + 0.4 + 0.6, 3), "turn_3": (0.3 + 0.7, 2)}
    by_hand |= {"mixed_versions": (0.6, 3), "one_version": (1.7, 3), "depth_0_1k": (2.3, 6)}
    for name, (total, count) in by_hand.items():
        assert metrics[f"mismatch/{name}"] == Mean(pytest.approx(total), count), name
    assert "mismatch/turn_4" not in metrics and "mismatch/depth_1k_2k" not in metrics


def test_the_gap_by_depth_counts_the_tokens_before_in_its_own_sample() -> None:
    """Of 70,000 tokens four are compared, the first of a bin and the last of another; a sample before them in the row
    adds nothing to their depth. Rows add up token by token."""
    at = {1023: 0.1, 1024: 0.2, 32768: 0.3, 65536: 0.4}
    mask = [int(position in at) for position in range(70_000)]
    row = make_row([sample((0, 1), versions=6), sample(mask, versions=7)])
    gap = torch.zeros(row.num_tokens)
    for position, size in at.items():
        gap[2 + position] = size
    metrics = mismatch_metrics(gap - 1, row, 7)
    depths = {name: metric for name, metric in metrics.items() if name.startswith("mismatch/depth")}
    bins = ("0_1k", "1k_2k", "32k_64k", "64k_up")
    assert depths == {
        f"mismatch/depth_{name}": Mean(pytest.approx(size), 1) for name, size in zip(bins, at.values(), strict=True)
    }
    assert set(bins) < set(DEPTH_NAMES)
    short = mismatch_metrics(torch.tensor([9, -0.6, -0.7]), make_row([sample((0, 1, 1), versions=7)]), 7)
    assert values(merge([metrics, short]))["mismatch/depth_0_1k"] == pytest.approx((0.1 + 0.4 + 0.3) / 3)


def test_late_turns_share_a_bin_and_keep_their_number_where_the_context_was_rewritten() -> None:
    """Nine messages of a token each; the context of the ninth no longer has what was said before, so it is a sample of
    its own."""
    spoken = [turn([1, *([5, 2] * index)], [5]) for index in range(8)]
    rewritten = turn([1, 7], [5, 5])
    samples = sample_trajectory(trajectory(*spoken, rewritten), 1.0)
    assert [part.first_turn for part in samples] == [1, 9]
    row = make_row(samples)
    assert turns(row)[row.loss_mask.bool()].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 9]
    metrics = mismatch_metrics(row.behavior_logprobs + 0.5, row, 1)
    assert metrics["mismatch/turn_8"] == Mean(pytest.approx(0.5), 1)
    assert metrics["mismatch/turn_9_up"] == Mean(pytest.approx(1.0), 2)
