"""RLOO, GSPO, SWiRL and DPO: whole responses by hand."""

import math
from dataclasses import replace

import pytest
import torch

from learners.algorithms.dpo import DPO, DPOConfig
from learners.algorithms.gspo import GSPO, GSPOConfig
from learners.algorithms.rloo import RLOO, RLOOConfig
from learners.algorithms.sft import SFT, SFTConfig
from learners.algorithms.swirl import SWiRL, SWiRLConfig
from rlsys.batch import MicroBatch, padding_row
from rlsys.metrics import merge, values
from rlsys.reductions import Reduction, weigh
from rlsys.types import Sample
from tests.makers import made
from tests.makers.made import make_batch

NAN = float("nan")


def sample(count: int, advantage: float = 0.0) -> Sample:
    return made.sample((0,) + (1,) * count, advantages=advantage)


def one_row(samples: list[Sample], reduction: Reduction, samples_per_unit: int = 1) -> tuple[MicroBatch, float]:
    """All samples are one group, a trajectory each."""
    batch = make_batch(weigh([[[part] for part in samples]], reduction), 1000, 3, samples_per_unit=samples_per_unit)
    (row,) = batch.rows
    return row, batch.denominators[0]


def test_rloo_is_the_advantage_times_the_sum_of_log_probabilities() -> None:
    algorithm = RLOO(RLOOConfig())
    assert algorithm.advantages([1, 0, 0]) == [1.0, -0.5, -0.5]
    row, denominator = one_row([sample(3, 1.0), sample(1, -0.5)], algorithm.reduction)
    assert denominator == 2.0
    logp = row.behavior_logprobs.clone().requires_grad_()
    out = algorithm.loss(logp, torch.zeros(6), row, denominator=denominator)
    out.loss.backward()
    assert out.loss.item() == pytest.approx((1.0 * 3 - 0.5 * 1) / 2)
    assert logp.grad.tolist() == pytest.approx([0, -0.5, -0.5, -0.5, 0, 0.25])


def test_rloo_weighs_older_tokens_by_their_truncated_ratio_in_every_epoch() -> None:
    algorithm = RLOO(RLOOConfig(epochs=2))
    row, denominator = one_row([sample(2, 1.0)], algorithm.reduction)
    row = replace(row, proximal_logprobs=row.behavior_logprobs)  # of the first epoch: it is not what counts now
    logp = (row.behavior_logprobs + torch.tensor([0.0, math.log(1.5), math.log(5.0)])).requires_grad_()
    algorithm.loss(logp, torch.zeros(3), row, denominator=denominator).loss.backward()
    assert logp.grad.tolist() == pytest.approx([0, -1.5, -2.0])


def test_gspo_clips_whole_sequences_each_of_which_counts_the_same() -> None:
    algorithm = GSPO(GSPOConfig(clip_low=0.1, clip_high=0.2))
    assert algorithm.advantages([1, 0, 0, 0, 1]) == pytest.approx([1.0954, -0.7303, -0.7303, -0.7303, 1.0954], abs=1e-4)
    row, denominator = one_row([sample(4, 1.0), sample(1, -1.0), sample(2, 1.0)], algorithm.reduction)
    ratios = [1, 1.4, 1.4, 1.0, 1.0, 1, 1.5, 1, 1.05, 1.05]
    logp = (row.behavior_logprobs + torch.tensor(ratios).log()).requires_grad_()
    out = algorithm.loss(logp, torch.zeros(10), row, denominator=denominator)
    out.loss.backward()
    first = 1.4**0.5  # above 1.183: inside the clip, and close to it
    assert out.loss.item() == pytest.approx(-(min(first, 1.2) - 1.5 + 1.05) / 3, rel=1e-5)
    slopes = [0, *[-first / 12] * 4, 0, 0.5, 0, *[-1.05 / 6] * 2]
    assert logp.grad.tolist() == pytest.approx(slopes, rel=1e-5)


@pytest.mark.parametrize(
    ("baseline", "rewards", "expected"),
    [
        ("leave_one_out", [1, 0, 0], [1, -0.5, -0.5]),
        ("group_mean", [1, 0, 0, 0], [0.75, -0.25, -0.25, -0.25]),
        ("none", [1, 0], [1, 0]),
        ("none", [0, 0], None),
        ("leave_one_out", [1], None),
    ],
)
def test_the_baselines_of_swirl(baseline, rewards: list[float], expected: list[float] | None) -> None:
    advantages = SWiRL(SWiRLConfig(baseline=baseline)).advantages(rewards)
    assert advantages == (expected if expected is None else pytest.approx(expected))


def test_swirl_trains_the_last_action_and_its_states_are_context() -> None:
    """K actions are K samples, each with the earlier actions and results as context."""
    algorithm = SWiRL(SWiRLConfig(kl_coef=0.1))
    state = replace(
        sample(5, 0.75),
        loss_mask=(0, 0, 0, 0, 1, 1),
        advantages=(0, 0, 0, 0, 0.75, 0.75),
        behavior_logprobs=(0, 0, 0, 0, -1, -1),
    )
    row, denominator = one_row([state], algorithm.reduction)
    row = replace(row, reference_logprobs=row.behavior_logprobs)
    logp = row.behavior_logprobs.clone().requires_grad_()
    out = algorithm.loss(logp, torch.zeros(6), row, denominator=denominator)
    out.loss.backward()
    assert out.loss.item() == pytest.approx(0.75 * 2) and values(out.metrics)["loss/kl"] == 0.0
    assert logp.grad.tolist() == [0, 0, 0, 0, -0.75, -0.75]


def test_dpo_without_a_margin_is_log_two_and_by_hand_over_two_pairs() -> None:
    algorithm = DPO(DPOConfig(beta=0.5))
    samples = [sample(2), sample(1), sample(3), sample(2)]
    row, denominator = one_row(samples, algorithm.reduction, samples_per_unit=2)
    reference = row.behavior_logprobs
    row = replace(row, reference_logprobs=reference)
    even = algorithm.loss(reference.clone(), torch.zeros(12), row, denominator=denominator)
    assert even.loss.item() == pytest.approx(math.log(2))
    # pair 0: chosen +2, rejected -1, margin 0.5 * 3; pair 1: chosen 0, rejected +2, margin 0.5 * -2
    change = torch.tensor([NAN, 1, 1, NAN, -1, NAN, 1, -2, 1, NAN, 1, 1])
    out = algorithm.loss(reference + change, torch.zeros(12), row, denominator=denominator)
    assert out.loss.item() == pytest.approx((math.log(1 + math.exp(-1.5)) + math.log(1 + math.exp(1.0))) / 2)
    metrics = values(out.metrics)
    assert metrics["dpo/accuracy"] == 0.5
    # both may fall while the margin grows: chosen 0.5 * (2 + 0) and rejected 0.5 * (-1 + 2), over two pairs
    assert (metrics["dpo/chosen_reward"], metrics["dpo/rejected_reward"], metrics["dpo/margin"]) == (0.5, 0.25, 0.25)


def test_dpo_measures_the_same_however_pairs_are_packed() -> None:
    algorithm = DPO(DPOConfig(beta=0.5))
    samples = weigh(
        [[[sample(2)], [sample(1)]], [[sample(3)], [sample(2)]], [[sample(1)], [sample(1)]]], "sequence_sum"
    )
    measured = []
    for tokens_per_row in (1000, 12, 1):  # one row, two of unequal numbers of pairs, three
        batch = make_batch(samples, tokens_per_row, 3, samples_per_unit=2)
        parts = []
        for row in (*batch.rows, padding_row(0, batch.rows[0].discounts)):
            gains = row.token_ids * row.loss_mask  # token n gains n
            row = replace(row, reference_logprobs=row.behavior_logprobs)
            out = algorithm.loss(row.behavior_logprobs + gains, gains * 0, row, denominator=batch.denominators[0])
            parts.append(out.metrics)
        measured.append({name: metric for name, metric in values(merge(parts)).items() if name.startswith("dpo/")})
    # gains 2 + 3, 2 + 3 + 4, 2 against 2, 2 + 3, 2
    expected = {"dpo/chosen_reward": 0.5 * 16 / 3, "dpo/rejected_reward": 0.5 * 9 / 3, "dpo/margin": 0.5 * 7 / 3}
    assert measured == [pytest.approx(expected | {"dpo/accuracy": 2 / 3})] * 3


def test_dpo_counts_a_pair_once_however_the_pair_was_weighed() -> None:
    """As two trajectories of a group, or as two samples of one."""
    algorithm = DPO(DPOConfig())
    losses = []
    for groups in ([[[sample(2)], [sample(1)]]], [[[sample(2), sample(1)]]]):
        batch = make_batch(weigh(groups, algorithm.reduction), 1000, 3, samples_per_unit=2)
        (row,) = batch.rows
        row = replace(row, reference_logprobs=row.behavior_logprobs)
        out = algorithm.loss(row.behavior_logprobs, torch.zeros(5), row, denominator=batch.denominators[0])
        losses.append(out.loss.item())
    assert losses == [pytest.approx(math.log(2))] * 2


def test_dpo_drops_ties_and_failures_and_refuses_a_broken_pair() -> None:
    algorithm = DPO(DPOConfig())
    assert algorithm.advantages([1.0, 0.5]) == [1.0, -1.0]
    for pair in ([1.0, 1.0], [0.0, 1.0], [NAN, 0.0], [1.0, NAN]):
        assert algorithm.advantages(pair) is None
    row, denominator = one_row([sample(2)], algorithm.reduction)
    with pytest.raises(ValueError, match="row without reference_logprobs"):
        algorithm.loss(row.behavior_logprobs, torch.zeros(3), row, denominator=denominator)
    with pytest.raises(ValueError, match="1 samples in a row of preference pairs"):
        row = replace(row, reference_logprobs=row.behavior_logprobs)
        algorithm.loss(row.behavior_logprobs, torch.zeros(3), row, denominator=denominator)


@pytest.mark.parametrize(("reduction", "expected"), [("token_mean", 10 / 3), ("sequence_mean", 6.0)])
def test_the_reductions_vector_of_verl_issue_593(reduction: Reduction, expected: float) -> None:
    """Losses 2 2 2 2 2 of one sequence and 10 of another: 3.3333 per token, 6.0 per sequence."""
    row, denominator = one_row([sample(5), sample(1)], reduction)
    logp = -torch.tensor([99.0, 2, 2, 2, 2, 2, 99, 10])
    out = SFT(SFTConfig()).loss(logp, torch.zeros(8), row, denominator=denominator)
    assert out.loss.item() == pytest.approx(expected)
