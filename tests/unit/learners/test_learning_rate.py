"""The learning rate of each step, by hand."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from learners.update import lr_at, set_learning_rates
from learners.zero import parameter_groups
from rlsys.config.learner import LearnerConfig
from rlsys.metrics import values
from tests.refused import refused


def rates(schedule: str, warmup_steps: int, total_steps: int) -> list[float]:
    config = LearnerConfig(schedule=schedule, warmup_steps=warmup_steps, final_lr_ratio=0.1)
    return [lr_at(step, 2.0, config, total_steps) for step in range(total_steps)]


def test_a_constant_rate_is_constant_after_a_linear_warm_up() -> None:
    assert rates("constant", 0, 3) == [2.0, 2.0, 2.0]
    assert rates("constant", 4, 6) == [0.5, 1.0, 1.5, 2.0, 2.0, 2.0]


def test_a_warm_up_may_be_a_share_of_the_steps() -> None:
    config = LearnerConfig(warmup_ratio=0.3)
    assert [lr_at(step, 2.0, config, 7) for step in range(4)] == pytest.approx([2 / 3, 4 / 3, 2.0, 2.0])  # 2.1: three
    with refused("learner.warmup_ratio", found=0.1):
        LearnerConfig(warmup_ratio=0.1, warmup_steps=2)


def test_a_cosine_starts_at_the_rate_passes_half_way_and_ends_at_its_share() -> None:
    # half way: 0.1 + 0.9 * (1 + cos(pi / 2)) / 2 = 0.55; a quarter: 0.1 + 0.9 * (1 + 0.7071068) / 2 = 0.8681981
    assert rates("cosine", 0, 5) == pytest.approx([2.0, 1.7363961, 1.1, 0.4636039, 0.2])
    assert rates("cosine", 2, 7) == pytest.approx([1.0, 2.0, 2.0, 1.7363961, 1.1, 0.4636039, 0.2])


def test_a_cosine_stays_at_its_end_and_survives_a_stage_of_one_step() -> None:
    assert lr_at(99, 1.0, LearnerConfig(schedule="cosine", final_lr_ratio=0.1), 5) == pytest.approx(0.1)
    assert rates("cosine", 0, 1) == [2.0]
    assert rates("cosine", 5, 3) == pytest.approx([0.4, 0.8, 1.2])


def test_a_line_falls_by_equal_steps_to_its_share() -> None:
    assert rates("linear", 0, 4) == pytest.approx([2.0, 1.4, 0.8, 0.2])
    assert rates("linear", 2, 5) == pytest.approx([1.0, 2.0, 2.0, 1.1, 0.2])


def test_weight_decay_is_for_matrices_only() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    matrices, vectors = parameter_groups(model, 0.1)
    assert [p.shape for p in matrices["params"]] == [(4, 3)] and matrices["weight_decay"] == 0.1
    assert [p.shape for p in vectors["params"]] == [(4,), (4,), (4,)] and vectors["weight_decay"] == 0.0


def test_each_optimizer_gets_the_rate_of_its_own_and_what_does_not_train_says_none() -> None:
    def engine() -> Any:
        return SimpleNamespace(optimizer=SimpleNamespace(param_groups=[{"lr": 0.0}, {"lr": 0.0}]))

    policy, critic = engine(), engine()
    models = SimpleNamespace(policy_engine=policy, critic_engine=critic)
    config = LearnerConfig(lr=2.0, critic_lr=3.0, schedule="constant", warmup_steps=4)
    stage: Any = SimpleNamespace(learner=config, models=models, total_steps=9)
    assert values(set_learning_rates(stage, 0)) == {"learner/lr": 0.5, "critic/lr": 0.75}
    rates_set = [group["lr"] for model in (policy, critic) for group in model.optimizer.param_groups]
    assert rates_set == [0.5, 0.5, 0.75, 0.75]
    models.critic_engine = None
    assert values(set_learning_rates(stage, 3)) == {"learner/lr": 2.0}
