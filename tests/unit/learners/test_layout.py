"""Into which learner a checkpoint fits: one line says what it was saved with."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from learners.algorithms.base import REFERENCE, VALUES
from learners.layout import layout_of, other_division
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput


def ours(world_size: int = 2, zero_stage: Any = 1, critic: bool = False) -> dict[str, Any]:
    algorithm: Any = SimpleNamespace(needs=frozenset({REFERENCE, VALUES} if critic else {REFERENCE}))
    return layout_of(LearnerConfig(zero_stage=zero_stage), algorithm, world_size)


@pytest.mark.parametrize(
    ("saved", "found"),
    [
        (ours(), None),
        (ours(world_size=3), (3, 1)),
        (ours(zero_stage=2), (2, 2)),
        ({**ours(world_size=1, zero_stage=3), "lora": 0}, (1, 3)),
    ],
)
def test_another_division_is_told(saved: dict[str, Any], found: tuple[int, int] | None, tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text(json.dumps(saved))
    assert other_division(tmp_path, ours()) == found


@pytest.mark.parametrize(
    ("saved", "key"),
    [
        (ours(critic=True), "with a critic"),
        ({**ours(), "lora": 8}, "model.lora.rank=8"),
        ({**ours(), "world_size": 0}, "learner.ranks=0"),
        ({**ours(), "world_size": True}, "learner.ranks=True"),
        ({**ours(), "zero_stage": 4}, "learner.zero_stage=4"),
        ({**ours(), "zero_stage": [1]}, r"learner.zero_stage=[1]"),
        ({}, "learner.ranks=None"),
        (None, "layout.json"),
    ],
)
def test_what_no_division_makes_right_is_refused(saved: dict[str, Any] | None, key: str, tmp_path: Path) -> None:
    if saved is not None:
        (tmp_path / "layout.json").write_text(json.dumps(saved))
    with pytest.raises(BadInput) as caught:
        other_division(tmp_path, ours())
    assert key in str(caught.value) and str(tmp_path) in str(caught.value)


def test_a_learner_with_a_critic_takes_no_checkpoint_without_one(tmp_path: Path) -> None:
    (tmp_path / "layout.json").write_text(json.dumps(ours()))
    with pytest.raises(BadInput, match="without a critic"):
        other_division(tmp_path, ours(critic=True))
