"""Which passes an update makes before its first gradient."""

from types import SimpleNamespace
from typing import Any

import pytest

from learners.algorithms.base import PROXIMAL, REFERENCE, VALUES
from learners.passes import forward_first


@pytest.mark.parametrize(
    ("behavior", "epochs", "minibatches", "needs", "expected"),
    [
        ("engine", 1, 1, (), False),
        ("engine", 2, 2, (REFERENCE, VALUES), False),
        ("engine", 1, 1, (PROXIMAL,), True),
        ("learner", 1, 1, (), False),  # its training pass gives the same numbers
        ("learner", 2, 1, (), True),
        ("learner", 1, 2, (), True),
        ("learner", 1, 1, (REFERENCE,), True),
    ],
)
def test_the_policy_makes_a_pass_of_its_own_where_training_would_change_it_before(
    behavior: str, epochs: int, minibatches: int, needs: tuple[str, ...], expected: bool
) -> None:
    algorithm = SimpleNamespace(epochs=epochs, minibatches=minibatches, needs=frozenset(needs))
    stage: Any = SimpleNamespace(algorithm=algorithm, learner=SimpleNamespace(behavior=behavior))
    assert forward_first(stage) == expected
