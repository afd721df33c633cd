"""How far an engine may be from the learner: numbers measured in bf16 with two implementations of one model."""

from __future__ import annotations

import pytest

from actors.weights.check import WeightUpdate, allowed_gap, differs, logprob_gaps, measure
from actors.worker import LoadResult
from rlsys.system.device import MISMATCH_LIMIT
from rlsys.system.weight_folder import WeightManifest

# Gap of the true weights, gap of the perturbed ones, what the perturbation moved: small logits, a trained model's.
MEASURED = [(0.016, 0.033, 1.1), (0.10, 0.23, 8.4)]


@pytest.mark.parametrize(("true", "perturbed", "moved"), MEASURED)
def test_a_healthy_bf16_engine_passes_and_a_stale_one_does_not(true: float, perturbed: float, moved: float) -> None:
    limit = MISMATCH_LIMIT["bfloat16"]
    assert true <= allowed_gap(limit, 0.0) == limit
    assert perturbed <= allowed_gap(limit, moved)
    assert moved > 2 * allowed_gap(limit, moved) - 1e-9  # an engine that kept its old weights


def test_a_trained_models_canary_would_have_failed_by_a_fixed_limit() -> None:
    _, perturbed, moved = MEASURED[1]
    assert perturbed > MISMATCH_LIMIT["float32"]
    assert allowed_gap(MISMATCH_LIMIT["float32"], moved) == pytest.approx(0.84)


def test_what_moved_little_allows_little() -> None:
    """However wide the limit is, stale and fresh can be told apart."""
    assert allowed_gap(0.5, 0.6) == pytest.approx(0.3)
    assert allowed_gap(0.1, 0.3) == pytest.approx(0.1)


def test_a_gap_is_of_every_token_and_of_as_many_on_both_sides() -> None:
    nan = float("nan")
    assert logprob_gaps([[1.0, 2.0], [3.0]], [[1.5, 1.0], [3.0]]) == [0.5, 1.0, 0.0]
    assert logprob_gaps([[nan]], [[1.0]]) == [float("inf")]
    for ours, theirs in (([[1.0]], [[1.0], [2.0]]), ([[1.0]], [[1.0, 2.0]])):
        with pytest.raises(ValueError, match="shorter|longer"):
            logprob_gaps(ours, theirs)
    delivery = LoadResult(version=3, seconds=1.0, probe_logprobs=((1.0, 2.0), (3.0, 1.0)))
    publication = WeightUpdate(
        published=WeightManifest(version=3), probe=((1, 2, 3), (4, 5, 6)), expected=((1.5, 1.0), (3.0, 1.0))
    )
    found = measure(delivery, publication)
    assert (found.gap_mean, found.gap_max, publication.version) == (0.375, 1.0, 3)
    assert "on version 0 " in differs("w0", 0, 1.0, 0.5)
    assert "start-up check" in differs("w0", -1, 1.0, 0.5)
