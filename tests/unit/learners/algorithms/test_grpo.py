import math
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch

from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.grpo import GRPO, GRPOConfig
from rlsys.batch import MicroBatch, make_row
from rlsys.choices import choose
from rlsys.errors import BadInput
from rlsys.metrics import merge, values
from rlsys.types import Sample
from tests.makers import made

NAN = float("nan")
NAMES = ", ".join(ALGORITHMS)


def sample(advantage: float, behavior: tuple[float, ...]) -> Sample:
    count = len(behavior)
    return made.sample((0,) + (1,) * count, logprobs=behavior, advantages=advantage)


def test_advantages_are_the_groups_z_scores() -> None:
    advantages = GRPO(GRPOConfig()).advantages([1, 0, 0, 0, 1])
    assert advantages == pytest.approx([1.09544, -0.73030, -0.73030, -0.73030, 1.09544], abs=1e-4)
    assert GRPO(GRPOConfig(normalize_std=False)).advantages([1, 0]) == pytest.approx([0.5, -0.5])


def test_a_failed_sibling_stays_nan() -> None:
    advantages = GRPO(GRPOConfig(normalize_std=False)).advantages([1, NAN, 0])
    assert advantages is not None
    assert advantages[0] == 0.5 and math.isnan(advantages[1]) and advantages[2] == -0.5


@pytest.mark.parametrize("rewards", [[1, 1, 1], [0.3, 0.1 + 0.2], [1.0], [1.0, NAN], [NAN, NAN], []])
def test_a_group_without_signal_has_no_advantages(rewards: list[float]) -> None:
    assert GRPO(GRPOConfig()).advantages(rewards) is None


def test_loss_by_hand_clips_high_at_one_point_two_eight() -> None:
    row = make_row([sample(1.0, (-1.0, -1.0)), sample(-1.0, (-1.0,))])
    logp = torch.tensor([0.0, -1.0, -1.0 + math.log(2), 0.0, -1.0 + math.log(0.5)], requires_grad=True)
    out = GRPO(GRPOConfig()).loss(logp, torch.full((5,), 0.5), row, denominator=3)
    out.loss.backward()
    assert out.loss.item() == pytest.approx(-(1.0 + 1.28 - 0.8) / 3, rel=1e-6)
    assert logp.grad.tolist() == pytest.approx([0, -1 / 3, 0, 0, 0])
    metrics = values(out.metrics)
    assert metrics["clip/high"] == pytest.approx(1 / 3) and metrics["clip/low"] == pytest.approx(1 / 3)
    assert metrics["entropy/mean"] == 0.5


def test_entropy_is_measured_on_sampled_tokens_only() -> None:
    row = make_row([sample(0.0, (-1.0, -1.0))])
    logp, entropy = torch.tensor([0.0, -1.0, -1.0]), torch.tensor([NAN, 2.0, 4.0])
    out = GRPO(GRPOConfig()).loss(logp, entropy, row, denominator=2)
    assert out.loss.item() == 0.0
    assert values(out.metrics)["entropy/mean"] == 3.0


def test_dual_clip_reaches_the_loss() -> None:
    row = make_row([sample(-1.0, (-5.0,))])
    logp = torch.tensor([0.0, -5.0 + math.log(8)])
    config = GRPOConfig(dual_clip=3.0)
    assert GRPO(config).loss(logp, torch.zeros(2), row, denominator=1).loss.item() == pytest.approx(3.0)
    assert GRPO(GRPOConfig()).loss(logp, torch.zeros(2), row, denominator=1).loss.item() == pytest.approx(8.0)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_rows_and_ranks_change_neither_loss_nor_metrics(ranks: int) -> None:
    samples = [
        sample(advantage, (-1.0, -0.5, -2.0)[:count]) for advantage, count in ((1, 3), (-1, 1), (0.5, 2), (-0.5, 3))
    ]
    grpo = GRPO(GRPOConfig())

    def total(tokens_per_row: int, world_size: int) -> tuple[float, dict[str, float]]:
        parts = made.make_shards(samples, tokens_per_row, 3, world_size)
        outs = [
            grpo.loss(-0.1 * row.token_ids, 0.2 * row.token_ids, row, denominator=part.denominators[0])
            for part in parts
            for row in part.rows
        ]
        return sum(out.loss.item() for out in outs), values(merge(out.metrics for out in outs))

    whole, whole_metrics = total(1000, 1)
    split, split_metrics = total(4, ranks)
    assert split == pytest.approx(whole, rel=1e-5)
    assert split_metrics == pytest.approx(whole_metrics, rel=1e-5)


@pytest.mark.parametrize(
    ("key", "value"),
    [("clip_low", 0.0), ("clip_low", 1.0), ("clip_high", 0.0), ("dual_clip", 1.0)],
)
def test_a_bad_value_names_its_key(key: str, value: float) -> None:
    with pytest.raises(BadInput, match=rf"^algorithm\.{key}={value}: expected"):
        GRPOConfig(**{key: value})


def test_the_configuration_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        GRPOConfig().clip_low = 0.1  # type: ignore[misc]


def test_the_table_builds_each_algorithm_from_its_default_configuration() -> None:
    for name in ALGORITHMS:
        choice = choose("algorithm", ALGORITHMS, name)
        config = choice.schema()
        assert config.name == name
        assert type(make_algorithm(config)) is choice.build


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            GRPOConfig(name="grop"),
            f"algorithm.name='grop': expected one of {NAMES}, or module.Class (did you mean 'grpo'?)",
        ),
        (GRPOConfig(name="sft"), "algorithm.name='sft': its keys are of a GRPOConfig, expected a SFTConfig"),
        (None, f"algorithm: nothing chosen, expected algorithm.name to be one of {NAMES}"),
    ],
)
def test_a_configuration_that_does_not_fit_its_name_is_refused(config: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        make_algorithm(config)
    assert str(caught.value) == message


def two_turn_row(**log_ratios: torch.Tensor) -> MicroBatch:
    """One sample of two versions, log-probabilities -1; other policies are given by their log-ratio to these."""
    row = make_row([made.sample((0, 1, 1, 1), advantages=(1.0, 1.0, -1.0), versions=(3, 3, 4))])
    return replace(row, **{name: row.behavior_logprobs + value for name, value in log_ratios.items()})


def test_kl_and_entropy_terms_by_hand() -> None:
    # the policy is the behaviour policy: the objective is the sum of advantages; k3 of a log-ratio d: exp(-d) + d - 1
    row = two_turn_row(reference_logprobs=torch.tensor([0.0, -0.5, 0.5, 0.0]))
    logp = row.behavior_logprobs.clone().requires_grad_()
    algorithm = GRPO(GRPOConfig(kl_coef=0.1, entropy_coef=0.01))
    out = algorithm.loss(logp, torch.tensor([NAN, 1.0, 2.0, 3.0]), row, denominator=2.0)
    out.loss.backward()
    divergence = (math.exp(-0.5) + 0.5 - 1) + (math.exp(0.5) - 0.5 - 1)
    assert out.loss.item() == pytest.approx((-1.0 + 0.1 * divergence - 0.01 * 6) / 2)
    metrics = values(out.metrics)
    assert metrics["loss/kl"] == pytest.approx(0.1 * divergence / 2) and metrics["loss/entropy"] == pytest.approx(-0.03)
    # the derivative of k3 is 1 - exp(-d)
    slopes = [0, (-1 + 0.1 * (1 - math.exp(-0.5))) / 2, (-1 + 0.1 * (1 - math.exp(0.5))) / 2, 0.5]
    assert logp.grad.tolist() == pytest.approx(slopes, rel=1e-5)


def test_the_entropy_term_has_a_gradient() -> None:
    row = two_turn_row()
    entropy = torch.ones(4, requires_grad=True)
    GRPO(GRPOConfig(entropy_coef=0.5)).loss(row.behavior_logprobs, entropy, row, denominator=2.0).loss.backward()
    assert entropy.grad.tolist() == [0.0, -0.25, -0.25, -0.25]
    without = GRPO(GRPOConfig()).loss(row.behavior_logprobs, entropy, row, denominator=2.0)
    assert not without.loss.requires_grad and "loss/entropy" not in without.metrics  # nor a number of it


def test_the_kl_term_needs_the_reference() -> None:
    row = two_turn_row()
    with pytest.raises(ValueError, match="row without reference_logprobs"):
        GRPO(GRPOConfig(kl_coef=0.1)).loss(row.behavior_logprobs, torch.zeros(4), row, denominator=1.0)


def test_decoupled_ppo_clips_the_ratio_to_the_proximal_policy() -> None:
    # proximal over behaviour: 2, 0.5, 4; policy over proximal: 1.5 (clipped at 1.28), 1.1, 0.9
    row = two_turn_row(proximal_logprobs=torch.tensor([1.0, 2.0, 0.5, 4.0]).log())
    assert row.proximal_logprobs is not None
    logp = row.proximal_logprobs + torch.tensor([1.0, 1.5, 1.1, 0.9]).log()

    def loss(**options: Any) -> float:
        config = GRPOConfig(epochs=2, **options)
        return GRPO(config).loss(logp, torch.zeros(4), row, denominator=1.0).loss.item()

    assert loss(is_correction="decoupled") == pytest.approx(-(2 * 1.28 + 0.5 * 1.1 - 4 * 0.9))
    assert loss(is_correction="tis", is_cap=3.0) == pytest.approx(-(2 * 1.28 + 0.5 * 1.1 - 3 * 0.9))
    assert loss(is_correction="mis", is_cap=3.0, is_floor=0.6) == pytest.approx(-2 * 1.28)
    assert loss(is_correction="tis", is_level="sequence", is_cap=3.0) == pytest.approx(-3 * (1.28 + 1.1 - 0.9))
    # without a correction the ratio is to the behaviour policy itself: 3, 0.55, 3.6
    assert loss() == pytest.approx(-(1.28 + 0.55 - 3.6))


def test_without_a_proximal_pass_the_policy_itself_is_the_proximal_one() -> None:
    row = two_turn_row()
    logp = (row.behavior_logprobs + torch.tensor([1.0, 2.0, 1.0, 8.0]).log()).requires_grad_()
    out = GRPO(GRPOConfig(is_correction="tis", is_cap=4.0)).loss(logp, torch.zeros(4), row, denominator=1.0)
    out.loss.backward()
    assert logp.grad.tolist() == pytest.approx([0, -2, -1, 4])
    metrics = values(out.metrics)
    assert metrics["correction/weight"] == pytest.approx(7 / 3)
    assert metrics["correction/stopped"] == pytest.approx(1 / 3)
    assert metrics["ratio/mean"] == 1.0 and metrics["kl/behavior"] > 0  # still measured against the behaviour policy


def test_the_printed_form_of_research_clips_whole_sequences() -> None:
    row = two_turn_row()
    logp = row.behavior_logprobs + torch.tensor([1.0, 1.2, 1.1, 1.0]).log()
    config = GRPOConfig(ratio_level="sequence", clip_high=0.5)
    assert GRPO(config).loss(logp, torch.zeros(4), row, denominator=3.0).loss.item() == pytest.approx(-1.32 / 3)
