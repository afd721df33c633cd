"""How far an engine may be from the learner, by what the learner measured of its own rounding."""

from __future__ import annotations

from typing import Any

import pytest

from actors.weights.check import LEAST_LIMIT, TAIL, WeightUpdate, allowed_gap, differs, measure
from actors.worker import LoadResult
from rlsys.probe import logprob_gaps, mean_gap
from rlsys.system.weight_folder import WeightManifest

INF, NAN = float("inf"), float("nan")
# SmolLM2-135M in bfloat16: rounding that the learner measures, gap of a right engine; then of engines in which one
# thing is wrong (a RoPE base ten times as large, another scale, a layer without attention, another layer's keys).
ROUNDING, RIGHT = 0.059, 0.072
WRONG = (0.284, 0.287, 0.345, 0.398)


def test_a_right_engine_passes_and_one_with_anything_wrong_does_not() -> None:
    limit = allowed_gap(ROUNDING)
    assert limit == pytest.approx(2 * ROUNDING)
    assert RIGHT < limit < min(WRONG)


@pytest.mark.parametrize(
    ("rounding", "configured", "moved", "perturbed", "limit"),
    [
        (1e-6, None, 7.0, False, LEAST_LIMIT),  # float32
        (0.05, 0.5, 0.6, False, 0.5),  # as the user says
        (0.05, 0.01, 7.0, False, 0.01),
        (3.0, None, 7.0, False, 3.5),  # coarse numbers: not so far that nothing could be told apart
        (0.2, None, 7.0, True, 0.4),
        (0.2, 0.01, 7.0, True, 0.4),  # weights that round more coarsely than those that the user thought of
        (0.2, None, 0.6, True, 0.3),  # what moved little allows little: stale and fresh can be told apart
        (NAN, None, INF, False, LEAST_LIMIT),  # broken weights pass nowhere
        (INF, None, 7.0, True, LEAST_LIMIT),
    ],
)
def test_the_limit_by_hand(
    rounding: float, configured: float | None, moved: float, perturbed: bool, limit: float
) -> None:
    gap = allowed_gap(rounding, configured=configured, moved=moved, perturbed=perturbed)
    assert gap == pytest.approx(limit)


def test_a_gap_is_of_every_token_and_of_as_many_on_both_sides() -> None:
    assert logprob_gaps([[1.0, 2.0], [3.0]], [[1.5, 1.0], [3.0]]) == [0.5, 1.0, 0.0]
    assert mean_gap([[1.0, 2.0], [3.0]], [[1.5, 1.0], [3.0]]) == 0.5
    assert logprob_gaps([[NAN]], [[1.0]]) == [INF]
    for ours, theirs in (([[1.0]], [[1.0], [2.0]]), ([[1.0]], [[1.0, 2.0]])):
        with pytest.raises(ValueError, match="shorter|longer"):
            logprob_gaps(ours, theirs)


def delivery(*logprobs: tuple[float, ...]) -> LoadResult:
    return LoadResult(version=3, seconds=1.0, probe_logprobs=logprobs)


def update(*expected: tuple[float, ...], **limits: Any) -> WeightUpdate:
    probe = tuple(tuple(range(len(values) + 1)) for values in expected)
    return WeightUpdate(published=WeightManifest(version=3), probe=probe, expected=expected, **limits)


def test_the_mean_over_the_probe_is_compared_with_the_limit() -> None:
    publication = update((1.5, 1.0), (3.0, 1.0), limit=0.375)
    check = measure(delivery((1.0, 2.0), (3.0, 1.0)), publication)
    assert (check.gap_mean, check.gap_max, check.refusal, publication.version) == (0.375, 1.0, "", 3)
    assert measure(delivery((1.0, 2.0), (3.0, 1.1)), publication).refusal
    assert measure(delivery((NAN, 2.0), (3.0, 1.0)), publication).refusal
    assert "on version 0 " in differs("w0", 0, "1, the limit is 0.5")
    assert "start-up check" in differs("w0", -1, "1, the limit is 0.5")


def test_the_end_of_a_long_sample_stands_for_itself() -> None:
    """What is wrong at a distance is thinned out by all that stands before it."""
    right, wrong = (0.0,) * 4000, (0.0,) * (4000 - TAIL) + (0.3,) * TAIL
    publication = update((1.0, 1.0), right, limit=0.1, tail_limit=0.2)
    passed = measure(delivery((1.1, 1.0), right), publication)
    assert (passed.gap_mean, passed.refusal) == (pytest.approx(0.05), "")  # the long one is not in the mean
    assert "4001 tokens" in measure(delivery((1.0, 1.0), wrong), publication).refusal
    assert measure(delivery((1.0, 1.0), wrong), update((1.0, 1.0), right, limit=0.1)).refusal == ""
