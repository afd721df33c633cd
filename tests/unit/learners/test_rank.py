"""What a rank keeps from call to call, with engines that are only named: DeepSpeed has tests in tests/ray."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners import rank
from learners.rank import LearnerRank


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A rank in the middle of a stage. `loaded`: what was loaded into which engine."""
    made: Any = object.__new__(LearnerRank)
    made.loaded = []

    def load(engine: str, folder: Path, tag: str) -> dict[str, Any]:
        made.loaded.append((engine, tag))
        return {"step": 7, "rng": torch.Generator().manual_seed(5).get_state()}

    monkeypatch.setattr(rank.zero, "load", load)
    monkeypatch.setattr(rank.layouts, "refuse_other_layout", lambda folder, layout: None)
    monkeypatch.setattr(LearnerRank, "_layout", lambda self: {})
    made._stage = SimpleNamespace(models=SimpleNamespace(policy_engine="policy", critic_engine="critic"))
    made.step = 2
    state = torch.get_rng_state()
    yield made
    torch.set_rng_state(state)


@pytest.mark.parametrize("alone", [False, True])
def test_optimizers_of_the_stage_before_leave_schedule_and_draws_to_this_stage(
    learner: Any, alone: bool, tmp_path: Path
) -> None:
    before = torch.get_rng_state()
    learner.load(tmp_path, optimizers_alone=alone)
    assert [engine for engine, _ in learner.loaded] == ["policy", "critic"] and len(set(learner.loaded)) == 2
    assert learner.step == (2 if alone else 7)
    assert torch.equal(torch.get_rng_state(), before) == alone


def test_a_step_that_was_skipped_leaves_the_schedule_where_it_was(
    learner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    reports = iter([SimpleNamespace(applied=3), SimpleNamespace(applied=0), SimpleNamespace(applied=1)])

    def update(stage: Any, batch: str, step: int) -> Any:
        seen.append(step)
        return next(reports)

    monkeypatch.setattr(rank, "run_update", update)
    assert [learner.update("batch").applied for _ in range(3)] == [3, 0, 1]
    assert (seen, learner.step) == ([2, 5, 5], 6)


def test_before_a_stage_there_is_nothing_to_train(learner: Any) -> None:
    learner._stage = None
    with pytest.raises(RuntimeError):
        learner.update("batch")
