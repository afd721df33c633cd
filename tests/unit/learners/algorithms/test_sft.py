import math

import pytest
import torch

from learners.algorithms.sft import SFT, SFTConfig
from rlsys.batch import make_row
from rlsys.metrics import values
from tests.makers.made import sample

DEMONSTRATION = sample((0, 0, 1, 1), logprobs=0.0, advantages=1.0, versions=0)


def test_prompt_tokens_get_no_loss_and_no_gradient() -> None:
    logp = torch.tensor([0.0, -9.0, -1.0, -2.0], requires_grad=True)
    out = SFT(SFTConfig()).loss(logp, torch.tensor([9.0, 9.0, 0.25, 0.75]), make_row([DEMONSTRATION]), denominator=2)
    out.loss.backward()
    assert out.loss.item() == 1.5
    assert logp.grad.tolist() == [0.0, 0.0, -0.5, -0.5]
    assert values(out.metrics) == {"loss/nll": 1.5, "entropy/mean": 0.5}


def test_every_demonstration_counts_the_same_and_a_failed_one_not_at_all() -> None:
    advantages = SFT(SFTConfig()).advantages([0.0, math.nan, 3.0])
    assert advantages is not None
    assert advantages[0] == advantages[2] == 1.0 and math.isnan(advantages[1])


@pytest.mark.parametrize("rewards", [[], [math.nan]])
def test_nothing_but_failures_is_no_signal(rewards: list[float]) -> None:
    assert SFT(SFTConfig()).advantages(rewards) is None
