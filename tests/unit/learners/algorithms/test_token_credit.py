"""PPO and REINFORCE++: token-level credit on the learner."""

import math
from dataclasses import replace

import pytest
import torch

from learners.algorithms.base import moments
from learners.algorithms.ppo import PPO, PPOConfig
from learners.algorithms.reinforce_pp import ReinforcePP, ReinforcePPConfig
from rlsys.batch import MicroBatch, make_row
from rlsys.metrics import values
from rlsys.types import Sample, TokenStream
from tests.makers import made
from tests.refused import refused

NAN = float("nan")


def sample(reward: float, stream: tuple[float, ...] = (), discount: float = 0.99, advantage: float = 0.0) -> Sample:
    """Two prompt tokens, two sampled ones, a tool's token, two sampled ones."""
    streams = (TokenStream(name="repetition", values=stream, discount=discount),) if stream else ()
    return made.sample((0, 0, 1, 1, 0, 1, 1), advantages=advantage, reward=reward, streams=streams)


def sampled(row: MicroBatch, name: str) -> list[float]:
    assert (getattr(row, name)[row.loss_mask == 0] == 0).all()
    return getattr(row, name)[row.loss_mask == 1].tolist()


def ppo(**options) -> PPO:
    return PPO(PPOConfig(**{"normalize_advantages": False, **options}))


def valued(row: MicroBatch, value: float) -> MicroBatch:
    return replace(row, values=torch.where(row.loss_mask.bool(), value, NAN))


def test_ppo_discounts_each_stream_by_its_own_factor() -> None:
    """Long CoT's estimator (arXiv 2502.03373, section 3) by hand; a tool's token in the middle takes no time."""
    row = valued(make_row([sample(2.0, (0.0, -0.05, -0.05, 0.0))]), 0.5)
    (credited,) = ppo().credit([row], moments)
    assert sampled(credited, "returns") == pytest.approx([1.901495, 1.9005, 1.95, 2.0])
    assert sampled(credited, "advantages") == pytest.approx([1.401495, 1.4005, 1.45, 1.5])


def test_samples_of_a_row_are_episodes_of_their_own() -> None:
    row = valued(make_row([sample(2.0), sample(1.0)]), 0.0)
    (credited,) = ppo(discount=0.5).credit([row], moments)
    assert sampled(credited, "returns") == pytest.approx([0.25, 0.5, 1.0, 2.0, 0.125, 0.25, 0.5, 1.0])


def test_lambda_below_one_is_gae_on_one_stream_and_refused_on_two() -> None:
    row = valued(make_row([sample(1.0)]), 0.5)
    (credited,) = ppo(lam=0.5, discount=0.9).credit([row], moments)
    # errors: -0.05, -0.05, -0.05, 0.5; each advantage is its error plus 0.45 times the next
    expected = [0.5]
    for _ in range(3):
        expected.insert(0, -0.05 + 0.45 * expected[0])
    assert sampled(credited, "advantages") == pytest.approx(expected)
    with refused("algorithm.lam", found=0.5):
        ppo(lam=0.5).credit([valued(make_row([sample(1.0, (0.0,) * 4)]), 0.5)], moments)


@pytest.mark.parametrize("streams", [(), (0.0, 0.0, 0.0, 0.0)])
def test_the_kl_penalty_is_paid_once_however_many_streams_there_are(streams: tuple[float, ...]) -> None:
    row = valued(make_row([sample(1.0, streams, discount=1.0)]), 0.0)
    row = replace(row, reference_logprobs=row.behavior_logprobs - torch.tensor([NAN, NAN, 0.1, 0.2, NAN, 0.3, 0.4]))
    (credited,) = ppo(kl_coef=0.5).credit([row], moments)
    assert sampled(credited, "returns") == pytest.approx([0.5, 0.55, 0.65, 0.8])
    if streams:  # half of each token's penalty is discounted by the stream's factor
        (half,) = ppo(kl_coef=0.5).credit([replace(row, discounts=(1.0, 0.0))], moments)
        assert sampled(half, "returns") == pytest.approx([0.75 - 0.025, 0.775 - 0.05, 0.825 - 0.075, 0.9 - 0.1])


def test_the_penalty_is_the_proximal_policys_where_there_is_a_pass_and_clamped() -> None:
    row = valued(make_row([sample(0.0)]), 0.0)
    far = replace(row, reference_logprobs=row.behavior_logprobs, proximal_logprobs=row.behavior_logprobs + 50.0)
    (credited,) = ppo(kl_coef=0.1, kl_clamp=2.0).credit([far], moments)
    assert sampled(credited, "returns") == pytest.approx([-0.8, -0.6, -0.4, -0.2])


@pytest.mark.parametrize("algorithm", [ppo, lambda **options: ReinforcePP(ReinforcePPConfig(**options))])
def test_the_kl_is_in_the_loss_or_in_the_rewards_and_never_in_both(algorithm) -> None:
    row = valued(make_row([sample(1.0)]), 0.0)
    row = replace(row, reference_logprobs=row.behavior_logprobs - 0.5)
    in_loss, in_reward = algorithm(kl_coef=0.5, kl_in="loss", kl_kind="k2"), algorithm(kl_coef=0.5)
    (credited,) = in_loss.credit([row], moments)
    assert sampled(credited, "returns") == [1.0] * 4
    out = in_loss.loss(row.behavior_logprobs, torch.zeros(7), credited, denominator=4.0)
    assert values(out.metrics)["loss/kl"] == pytest.approx(0.5 * 0.125)
    (credited,) = in_reward.credit([row], moments)
    assert sampled(credited, "returns") == pytest.approx([0.0, 0.25, 0.5, 0.75])
    assert "loss/kl" not in in_reward.loss(row.behavior_logprobs, torch.zeros(7), credited, denominator=4.0).metrics
    with refused("algorithm.kl_kind", found="k1"):
        algorithm(kl_coef=0.5, kl_in="loss")


def test_the_value_is_clipped_and_streams_are_not() -> None:
    row = valued(make_row([sample(-50.0, (0.0, -20.0, 0.0, 0.0), discount=1.0)]), 0.0)
    (credited,) = ppo(reward_clip=10.0).credit([row], moments)
    assert sampled(credited, "returns") == [-30.0, -30.0, -10.0, -10.0]


def test_advantages_are_normalized_over_the_tokens_of_the_whole_batch() -> None:
    rows = [valued(make_row([sample(reward)]), 0.25) for reward in (1.0, 0.0, 0.5)]
    credited = PPO(PPOConfig(discount=0.9)).credit(rows, moments)
    everything = torch.tensor([number for row in credited for number in sampled(row, "advantages")])
    assert float(everything.mean()) == pytest.approx(0, abs=1e-6)
    assert float(everything.std(correction=0)) == pytest.approx(1)
    assert sampled(credited[0], "returns") == pytest.approx(
        [0.729, 0.81, 0.9, 1.0]
    )  # the critic learns them as they are


def test_rows_without_rewards_or_a_critics_pass_are_refused() -> None:
    demonstration = make_row([replace(sample(1.0), reward=None)])
    with pytest.raises(ValueError, match="row without rewards"):
        ppo().credit([demonstration], moments)
    with pytest.raises(ValueError, match="row without reference_logprobs"):
        ppo(kl_coef=0.1).credit([valued(make_row([sample(1.0)]), 0.0)], moments)
    row = make_row([sample(1.0)])
    for half in (row, replace(row, values=torch.zeros(7)), replace(row, returns=torch.zeros(7))):
        with pytest.raises(ValueError, match="row without values"):
            ppo().value_loss(torch.zeros(7), half, denominator=1.0)


def test_the_critics_loss_is_clipped_around_its_former_values_and_weighed() -> None:
    row = make_row([replace(sample(1.0), weight=0.25, share=1.0)])
    (row,) = ppo().credit([valued(row, 0.5)], moments)
    new = torch.where(row.loss_mask.bool(), 1.0, 0.0).requires_grad_()
    # returns are 1: the new value's error is 0, that of the value kept within 0.2 of 0.5 is 0.09
    assert ppo().value_loss(new, row, denominator=1.0).loss.item() == pytest.approx(0.5 * 0.09)
    free = ppo(value_clip=None).value_loss(new + 1.0, row, denominator=1.0)
    assert free.loss.item() == pytest.approx(0.5)


@pytest.mark.parametrize("algorithm", [ppo(), ReinforcePP(ReinforcePPConfig())])
def test_rewards_reach_the_learner_as_they_are_even_where_all_are_equal(algorithm) -> None:
    assert algorithm.advantages([1.0, 1.0]) == [1.0, 1.0]
    assert algorithm.advantages([NAN, NAN]) is None
    first, second = algorithm.advantages([NAN, 0.5])
    assert math.isnan(first) and second == 0.5


# -- REINFORCE++ -------------------------------------------------------------------------------------------------------


def test_reinforce_pp_normalizes_the_sum_of_the_streams_returns() -> None:
    (credited,) = ReinforcePP(ReinforcePPConfig()).credit([make_row([sample(2.0, (0.0, -0.05, -0.05, 0.0))])], moments)
    returns = torch.tensor([1.901495, 1.9005, 1.95, 2.0], dtype=torch.float64)
    expected = (returns - returns.mean()) / returns.std(correction=0)
    assert sampled(credited, "advantages") == pytest.approx(expected.tolist(), rel=1e-4)


def test_the_group_baseline_takes_the_groups_mean_before_the_batchs() -> None:
    algorithm = ReinforcePP(ReinforcePPConfig(group_baseline=True))
    assert algorithm.advantages([1.0, 0.0]) == [0.5, -0.5]
    assert algorithm.advantages([1.0, 1.0]) is None
    easy, hard = algorithm.advantages([1.0, 0.5]), algorithm.advantages([0.5, 0.0])
    assert easy is not None and easy == hard
    rows = [make_row([sample(reward, advantage=value)]) for reward, value in ((1.0, 0.25), (0.5, -0.25), (0.0, -0.25))]
    plus, *minus = [sampled(row, "advantages") for row in algorithm.credit(rows, moments)]
    # 0.25, -0.25, -0.25: mean -1/12, standard deviation sqrt(1/18)
    assert plus == pytest.approx([math.sqrt(2)] * 4)
    assert minus == [pytest.approx([-math.sqrt(0.5)] * 4)] * 2


def test_the_group_baseline_keeps_the_streams() -> None:
    algorithm = ReinforcePP(ReinforcePPConfig(group_baseline=True))
    row = make_row([sample(9.0, (0.0, -1.0, 0.0, 0.0), discount=1.0, advantage=0.5)])
    (credited,) = algorithm.credit([row], moments)
    assert sampled(credited, "returns") == [-0.5, -0.5, 0.5, 0.5]


def test_the_clips_of_reinforce_pp_reach_the_loss() -> None:
    row = make_row([sample(1.0, advantage=1.0)])
    logp = row.behavior_logprobs + 0.5 * row.loss_mask
    narrow = ReinforcePP(ReinforcePPConfig(clip_high=0.1)).loss(logp, torch.zeros(7), row, denominator=4.0)
    assert narrow.loss.item() == pytest.approx(-1.1)
