"""On-policy distillation: the teacher's opinion on each token is its advantage."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from learners.algorithms import make_algorithm
from learners.algorithms.base import REFERENCE, moments
from learners.algorithms.opd import OPDConfig
from rlsys.batch import MicroBatch
from rlsys.losses import kl_loss
from rlsys.summaries import can_lack_signal, never_has_signal
from tests.makers import made

MASK = (0, 0, 1, 1, 0, 1)
POLICY, TEACHER = [-1.0, -2.0, -0.5], [-0.5, -2.25, -20.0]


def row(behavior: list[float] = POLICY) -> MicroBatch:
    (built,) = made.make_batch([made.sample(MASK, logprobs=behavior, reward=1.0)], 100, 0).rows
    reference_T = torch.full_like(built.behavior_logprobs, 7.0)  # elsewhere it is not looked at
    reference_T[torch.tensor(MASK).bool()] = torch.tensor(TEACHER)
    return replace(built, reference_logprobs=reference_T)


def credited(given: MicroBatch, **options: Any) -> MicroBatch:
    (batch,) = make_algorithm(OPDConfig(**options)).credit([given], moments)
    return batch


def test_the_advantage_is_what_the_teacher_finds_more_likely() -> None:
    assert credited(row(), advantage_clip=None).advantages.tolist() == [0, 0, 0.5, -0.25, 0, -19.5]
    assert credited(row()).advantages.tolist() == [0, 0, 0.5, -0.25, 0, -10.0]
    with pytest.raises(ValueError, match="the pass of the teacher"):
        credited(replace(row(), reference_logprobs=None))


def test_on_policy_its_gradient_is_that_of_the_squared_log_ratio() -> None:
    batch, algorithm = credited(row(), advantage_clip=None), make_algorithm(OPDConfig(advantage_clip=None))
    ours = batch.behavior_logprobs.clone().requires_grad_()
    algorithm.loss(ours, torch.zeros_like(ours), batch, denominator=3.0).loss.backward()
    theirs = batch.behavior_logprobs.clone().requires_grad_()
    reference = batch.reference_logprobs
    assert reference is not None
    keep = batch.loss_mask.bool()
    kl_loss(theirs, reference, keep, kind="k2", coef=1.0, denominator=3.0, weights=batch.weights).loss.backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad is not None and ours.grad.tolist() == pytest.approx([0, 0, -0.5 / 3, 0.25 / 3, 0, 19.5 / 3])


@pytest.mark.parametrize("versions", [1, 4])
def test_of_samples_that_are_older_its_gradient_is_that_of_the_reverse_kl(versions: int) -> None:
    """In expectation over all tokens of a small vocabulary, each weighed by how often the older policy samples it."""
    draw = torch.Generator().manual_seed(0)
    size, steps = 8, 0.3 * torch.randn(versions, 8, generator=draw)  # what the policy has moved by since
    logits, teacher = torch.randn(size, generator=draw), torch.randn(size, generator=draw).log_softmax(-1)
    behavior = (logits - steps.sum(0)).log_softmax(-1)
    algorithm = make_algorithm(OPDConfig(advantage_clip=None, is_correction="decoupled"))
    (built,) = made.make_batch([made.sample((0, *[1] * size), logprobs=behavior.tolist(), reward=1.0)], 100, 0).rows
    batch = replace(
        built,
        reference_logprobs=torch.cat([torch.zeros(1), teacher]),
        weights=torch.cat([torch.zeros(1), behavior.exp()]),
    )
    (batch,) = algorithm.credit([batch], moments)
    ours = logits.clone().requires_grad_()
    logp_T = torch.cat([torch.zeros(1), ours.log_softmax(-1)])
    algorithm.loss(logp_T, torch.zeros_like(logp_T), batch, denominator=1.0).loss.backward()
    exact = logits.clone().requires_grad_()
    policy = exact.log_softmax(-1)
    (policy.exp() * (policy - teacher)).sum().backward()
    torch.testing.assert_close(ours.grad, exact.grad)


def test_every_group_is_trained_whatever_its_rewards_are() -> None:
    algorithm = make_algorithm(OPDConfig())
    assert algorithm.advantages([1.0, 1.0]) == [0.0, 0.0] and not can_lack_signal(algorithm, 4)
    assert not never_has_signal(algorithm, 1) and REFERENCE in algorithm.needs
    advantages = algorithm.advantages([0.5, math.nan])
    assert advantages is not None and advantages[0] == 0 and math.isnan(advantages[1])
