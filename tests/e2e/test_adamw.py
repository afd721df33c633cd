"""A step of the learner's engine is one of torch's AdamW, with the betas and the weight decay of the configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch

from learners.rank import LearnerRank
from rlsys.config.learner import LearnerConfig
from tests.e2e.learner_cases import save_model, spec
from tests.e2e.test_gradient import TEMPERATURE, Everything, batch, gradient

BETAS, DECAY, LR, STEPS = (0.9, 0.999), 0.01, 1e-3, 3
CONFIG = LearnerConfig(lr=LR, betas=BETAS, weight_decay=DECAY, clip_grad=1e9, reference="run", tokens_per_row=64)


def weights(engine) -> dict[str, torch.Tensor]:
    from deepspeed.utils import safe_get_full_fp32_param

    return {name: safe_get_full_fp32_param(each).clone().cpu() for name, each in engine.module.named_parameters()}


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_steps_are_those_of_torchs_adamw(zero_stage: int, tmp_path: Path) -> None:
    """The gradient of each step follows from the first moments before and after it."""
    path = save_model(tmp_path / "model")
    learner = LearnerRank(spec())
    learner.begin(path, dataclasses.replace(CONFIG, zero_stage=zero_stage), Everything(), STEPS, TEMPERATURE,
                  reference_path=path)  # fmt: skip
    engine = learner.stage.models.policy_engine
    plain = {name: torch.nn.Parameter(each) for name, each in weights(engine).items()}
    groups = [
        {"params": [each for each in plain.values() if each.dim() >= 2], "weight_decay": DECAY},
        {"params": [each for each in plain.values() if each.dim() < 2], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, betas=BETAS)
    moments = {name: torch.zeros_like(each) for name, each in plain.items()}
    for step in range(STEPS):
        before = weights(engine)
        assert learner.update(batch(64)).applied
        after = gradient(engine)  # the first moments
        for name, each in plain.items():
            each.grad = (after[name] - BETAS[0] * moments[name]) / (1 - BETAS[0])
        adamw.step()
        moments, moved = after, weights(engine)
        for name, each in plain.items():
            torch.testing.assert_close(moved[name], each.detach(), rtol=0, atol=2e-2 * LR)
        assert any((moved[name] - before[name]).abs().max() > 0.5 * LR for name in plain), step
    learner.close()
