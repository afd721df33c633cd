"""Into which learner a checkpoint fits: one line says what it was saved with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learners.algorithms.base import REFERENCE, VALUES
from learners.layout import layout_of, refuse_other_layout
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput


def ours(world_size: int = 2, zero_stage: Any = 1, critic: bool = False) -> dict[str, Any]:
    algorithm: Any = SimpleNamespace(needs=frozenset({REFERENCE, VALUES} if critic else {REFERENCE}))
    return layout_of(LearnerConfig(zero_stage=zero_stage), algorithm, world_size)


@pytest.mark.parametrize(
    ("saved", "key"),
    [
        (ours(), ""),
        (ours(world_size=3), "learner.ranks=3"),
        (ours(zero_stage=2), "learner.zero_stage=2"),
        (ours(critic=True), "with a critic"),
        ({}, "learner.ranks=None"),
        (None, "layout.json"),
    ],
)
def test_another_layout_is_refused_with_what_it_was(saved: dict[str, Any] | None, key: str, tmp_path: Path) -> None:
    if saved is not None:
        (tmp_path / "layout.json").write_text(json.dumps(saved))
    if not key:
        refuse_other_layout(tmp_path, ours())
        return
    with pytest.raises(BadInput) as caught:
        refuse_other_layout(tmp_path, ours())
    assert key in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_learner_with_a_critic_takes_no_checkpoint_without_one(tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text(json.dumps(ours()))
    with pytest.raises(BadInput, match="without a critic"):
        refuse_other_layout(tmp_path, ours(critic=True))
