import math
from dataclasses import FrozenInstanceError

import pytest
import torch

from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.grpo import GRPO, GRPOConfig
from rlsys.errors import BadInput
from rlsys.metrics import merge, values
from rlsys.packing import make_batch, make_row, split_rows
from rlsys.types import Sample

NAN = float("nan")


def sample(advantage: float, behavior: tuple[float, ...]) -> Sample:
    count = len(behavior)
    return Sample(
        token_ids=(1, *range(2, 2 + count)),
        loss_mask=(0,) + (1,) * count,
        behavior_logprobs=(0.0, *behavior),
        advantages=(0.0,) + (advantage,) * count,
        versions=(-1,) + (3,) * count,
    )


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
    found = values(out.metrics)
    assert found["clip/high"] == pytest.approx(1 / 3) and found["clip/low"] == pytest.approx(1 / 3)
    assert found["entropy/mean"] == 0.5


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
        parts = split_rows(make_batch(samples, tokens_per_row, version=3), world_size)
        outs = [
            grpo.loss(-0.1 * row.token_ids, 0.2 * row.token_ids, row, denominator=part.num_loss_tokens)
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
    for name, (config_class, build) in ALGORITHMS.items():
        config = config_class()
        assert config.name == name
        assert type(make_algorithm(config)) is build


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (GRPOConfig(name="grop"), "algorithm.name='grop': expected one of grpo, sft; nearest is grpo"),
        (GRPOConfig(name="sft"), "algorithm.name='sft' in a GRPOConfig: expected a SFTConfig"),
        (None, "algorithm: nothing chosen, expected algorithm.name to be one of grpo, sft"),
    ],
)
def test_a_configuration_that_does_not_fit_its_name_is_refused(config: object, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        make_algorithm(config)
    assert str(caught.value) == message
