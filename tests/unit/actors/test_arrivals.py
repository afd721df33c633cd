"""How far an engine may be from the learner: numbers measured in bf16 with two implementations of one model."""

from __future__ import annotations

import pytest

from actors.arrivals import allowed_gap
from rlsys.device import MISMATCH_LIMIT

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
