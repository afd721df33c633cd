"""What holds for every algorithm of the table, with every correction and reduction that it offers."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, get_args

import pytest
import torch

from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.base import PROXIMAL, REFERENCE, VALUES, moments
from learners.algorithms.terms import PolicyGradientConfig
from rlsys.batch import MicroBatch, padding_row
from rlsys.choices import choose
from rlsys.config.learner import Correction
from rlsys.errors import BadInput
from rlsys.metrics import values
from rlsys.reductions import Reduction, weigh
from rlsys.types import Sample, TokenStream
from tests.makers import made
from tests.makers.made import make_batch

GRADIENT = [
    name for name in ALGORITHMS if issubclass(choose("algorithm", ALGORITHMS, name).schema, PolicyGradientConfig)
]
WITH_GROUPS = ["grpo", "gspo", "rloo", "swirl"]


def build(name: str, **options: Any) -> Any:
    return make_algorithm(choose("algorithm", ALGORITHMS, name).schema(name=name, **options))


def groups_of(rewards: Sequence[Sequence[float]], seed: int = 0) -> list[list[Sample]]:
    """A group of samples for each list of rewards: two turns, tool text between them, versions 3 and 4."""
    draw = random.Random(seed)

    def sample(reward: float) -> Sample:
        first, second = draw.randint(1, 4), draw.randint(1, 3)
        mask = (0, 0, *[1] * first, 0, 0, *[1] * second)
        stream = TokenStream(name="repetition", values=(-0.1,) * (first + second), discount=0.9)
        return made.sample(
            mask,
            logprobs=[logp for logp, flag in [(-draw.random() * 3, flag) for flag in mask] if flag],
            token_ids=[draw.randrange(50) for _ in mask],
            versions=[3] * first + [4] * second,
            reward=reward,
            streams=(stream,),
        )

    return [[sample(reward) for reward in group] for group in rewards]


def credited(groups: Sequence[Sequence[Sample]], algorithm: Any) -> list[Sample]:
    """What the driver makes of groups."""
    batch = []
    for group in groups:
        credit = algorithm.advantages([sample.reward for sample in group])
        if credit is not None:
            batch.append([[with_advantage(sample, value)] for sample, value in zip(group, credit, strict=True)])
    return weigh(batch, algorithm.reduction, length=9)


def with_advantage(sample: Sample, advantage: float) -> Sample:
    return replace(sample, advantages=tuple(advantage * mask for mask in sample.loss_mask))


def rows_of(samples: Sequence[Sample], algorithm: Any, tokens_per_row: int = 1000) -> tuple[list[MicroBatch], float]:
    """Rows after the learner's passes and credit, and their denominator. The models' numbers depend on tokens alone."""
    together = (
        2
        if REFERENCE in algorithm.needs and not isinstance(getattr(algorithm, "terms", None), PolicyGradientConfig)
        else 1
    )
    batch = make_batch(samples, tokens_per_row, version=4, samples_per_unit=together)
    rows = []
    for row in batch.rows:
        noise = [torch.sin(row.token_ids * factor) * row.loss_mask for factor in (1.0, 2.0, 3.0)]
        row = replace(row, reference_logprobs=row.behavior_logprobs + 0.1 * noise[0])
        if PROXIMAL in algorithm.needs:
            row = replace(row, proximal_logprobs=row.behavior_logprobs + 0.2 * noise[1])
        rows.append(replace(row, values=noise[2]) if VALUES in algorithm.needs else row)
    return algorithm.credit(rows, moments), batch.denominators[0]


def gradients(
    rows: Sequence[MicroBatch], denominator: float, algorithm: Any, drift: float = 0.3
) -> tuple[float, list[float]]:
    """Loss of all rows, and its gradient by token id and position, for a policy that drifted from the behaviour's."""
    total = 0.0
    slopes: dict[tuple[float, ...], list[float]] = {}
    for row in rows:
        logp = (row.behavior_logprobs + drift * torch.cos(row.token_ids.float()) * row.loss_mask).requires_grad_()
        entropy = torch.ones_like(logp)
        out = algorithm.loss(logp, entropy, row, denominator=denominator)
        out.loss.backward()
        total += out.loss.item()
        assert all(math.isfinite(value) for value in values(out.metrics).values())
        for *key, slope in torch.stack([row.token_ids, row.position_ids, logp.grad.double()], dim=1).tolist():
            slopes.setdefault(tuple(key), []).append(slope)
    return total, [slope for key in sorted(slopes) for slope in sorted(slopes[key])]


OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *[(name, {}) for name in ALGORITHMS],
    *[("grpo", {"reduction": reduction}) for reduction in get_args(Reduction)],
    *[(name, {"is_correction": kind, "epochs": 2}) for kind in get_args(Correction) for name in ("ppo", "rloo")],
    *[("grpo", {"is_correction": "mis", "is_level": level}) for level in ("sequence", "geometric")],
    ("grpo", {"kl_coef": 0.1, "entropy_coef": 0.1, "ratio_level": "sequence"}),
    ("ppo", {"kl_coef": 0.1, "kl_in": "loss", "kl_kind": "k2"}),
    ("reinforce_pp", {"kl_coef": 0.1, "group_baseline": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_the_loss_adds_up_over_any_split_into_rows(name: str, options: dict[str, Any]) -> None:
    algorithm = build(name, **options)
    rewards = [[1.0, 0.25], [0.5, 0.0]] if name == "dpo" else [[1.0, 0.25, 0.0], [0.5, 0.0, 0.5, 1.0]]
    samples = credited(groups_of(rewards), algorithm)
    whole, whole_slopes = gradients(*rows_of(samples, algorithm), algorithm)
    rows, denominator = rows_of(samples, algorithm, tokens_per_row=24)
    split, split_slopes = gradients(rows, denominator, algorithm)
    assert len(rows) > 1 and whole != 0
    assert split == pytest.approx(whole, rel=1e-5, abs=1e-6)
    assert split_slopes == pytest.approx(whole_slopes, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_the_tools_said_has_no_gradient_whatever_it_is(name: str) -> None:
    algorithm = build(name)
    samples = credited(groups_of([[1.0, 0.0]]), algorithm)
    rows, denominator = rows_of(samples, algorithm)

    def slopes(poison: float) -> torch.Tensor:
        (row,) = rows
        context = row.loss_mask == 0
        spoiled = {
            key: torch.where(context, poison, getattr(row, key))
            for key in ("behavior_logprobs", "advantages", "reference_logprobs", "weights")
        }
        logp = (torch.where(context, poison, row.behavior_logprobs + 0.1)).requires_grad_()
        out = algorithm.loss(logp, torch.full_like(logp, poison), replace(row, **spoiled), denominator=denominator)
        out.loss.backward()
        assert (logp.grad[context] == 0).all() and (logp.grad[~context] != 0).any()
        return logp.grad

    assert torch.equal(slopes(0.0), slopes(math.nan))


@pytest.mark.parametrize("name", WITH_GROUPS)
@pytest.mark.parametrize("rewards", [[1, 1, 1], [0.3, 0.1 + 0.2], [1.0], [1.0, math.nan], [math.nan, math.nan], []])
def test_a_group_without_signal_has_no_advantages(name: str, rewards: list[float]) -> None:
    assert build(name).advantages(rewards) is None


@pytest.mark.parametrize("name", WITH_GROUPS)
def test_a_failed_sibling_stays_nan_and_moves_nobody(name: str) -> None:
    algorithm = build(name)
    with_failure, without = algorithm.advantages([1.0, math.nan, 0.0]), algorithm.advantages([1.0, 0.0])
    assert math.isnan(with_failure[1]) and [with_failure[0], with_failure[2]] == without


@pytest.mark.parametrize("name", ["ppo", "reinforce_pp"])
def test_with_global_normalization_equal_rewards_have_no_gradient(name: str) -> None:
    algorithm = build(name)
    groups = [[replace(sample, streams=()) for sample in group] for group in groups_of([[0.7, 0.7], [0.7, 0.7]])]
    rows, denominator = rows_of(credited(groups, algorithm), algorithm)
    if name == "ppo":
        rows = algorithm.credit([replace(row, values=0.2 * row.loss_mask) for row in rows], moments)
    loss, slopes = gradients(rows, denominator, algorithm)
    assert loss == 0 and not any(slopes)


@pytest.mark.parametrize("name", GRADIENT)
@pytest.mark.parametrize("kind", get_args(Correction))
def test_on_policy_every_correction_is_the_plain_policy_gradient(name: str, kind: str) -> None:
    """Ratios and weights are exactly 1: each token's gradient is its weight times its advantage."""
    algorithm = build(name, is_correction=kind)
    rows, denominator = rows_of(credited(groups_of([[1.0, 0.0, 0.5]]), algorithm), algorithm)
    for row in rows:
        logp = row.behavior_logprobs.clone().requires_grad_()
        out = algorithm.loss(logp, torch.zeros_like(logp), row, denominator=denominator)
        out.loss.backward()
        expected = -row.weights * row.advantages / denominator
        torch.testing.assert_close(logp.grad, expected, rtol=1e-5, atol=1e-8)
        assert values(out.metrics)["kl/behavior"] == 0
        assert values(out.metrics).get("correction/weight", 1.0) == 1.0
        assert values(out.metrics).get("ratio/mean", 1.0) == 1.0


@pytest.mark.parametrize(
    ("name", "options"), [*OPTIONS, ("ppo", {"lam": 0.95}), ("ppo", {"lam": 0.95, "kl_coef": 0.1})]
)
def test_a_row_without_weight_adds_nothing_and_backward_runs_through_it(name: str, options: dict[str, Any]) -> None:
    algorithm = build(name, **options)
    groups = groups_of([[1.0, 0.0]])
    if "lam" in options:  # for a reward without streams
        groups = [[replace(sample, streams=()) for sample in group] for group in groups]
    rows, denominator = rows_of(credited(groups, algorithm), algorithm)
    nothing = torch.zeros(2)
    empty = replace(
        padding_row(rows[0].minibatch, rows[0].discounts),
        reference_logprobs=nothing,
        proximal_logprobs=nothing,
        values=nothing,
    )
    credited_alone = algorithm.credit(rows, moments)
    *credited_rows, empty = algorithm.credit([*rows, empty], moments)
    assert all(
        torch.equal(ours.advantages, other.advantages)
        for ours, other in zip(credited_alone, credited_rows, strict=True)
    )
    logp = torch.zeros(2, requires_grad=True)
    out = algorithm.loss(logp, nothing, empty, denominator=denominator)
    out.loss.backward()
    assert out.loss.item() == 0 and logp.grad.tolist() == [0, 0]
    assert all(name.startswith("loss/") for name in out.metrics)
    if VALUES in algorithm.needs:
        value = torch.zeros(2, requires_grad=True)
        algorithm.value_loss(value, empty, denominator=denominator).loss.backward()
        assert value.grad.tolist() == [0, 0]


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "dpo"])
def test_a_response_of_one_token_is_trained(name: str) -> None:
    algorithm = build(name)
    short = made.sample((0, 1), versions=4, reward=1.0)
    groups = [[short, replace(short, token_ids=(1, 3), reward=0.0)]]
    rows, denominator = rows_of(credited(groups, algorithm), algorithm)
    _, slopes = gradients(rows, denominator, algorithm, drift=0.0)
    assert sum(slope != 0 for slope in slopes) == 2 and all(map(math.isfinite, slopes))


def test_the_proximal_pass_is_asked_for_only_where_several_steps_follow() -> None:
    def needs(name: str, **options: Any) -> frozenset[str]:
        return build(name, **options).needs

    assert needs("grpo") == needs("grpo", epochs=4) == needs("grpo", is_correction="tis") == frozenset()
    assert needs("grpo", is_correction="tis", minibatches=2) == {PROXIMAL}
    assert needs("grpo", kl_coef=0.1) == {REFERENCE}
    assert needs("rloo", epochs=2) == frozenset()  # no ratio: corrected by the policy of each step
    assert needs("ppo", kl_coef=0.1, is_correction="decoupled", epochs=2) == {VALUES, REFERENCE, PROXIMAL}
    assert needs("dpo") == {REFERENCE} and needs("sft") == frozenset()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("grpo", {"epochs": 0}, "algorithm.epochs=0: expected at least 1"),
        ("rloo", {"minibatches": 0}, "algorithm.minibatches=0: expected at least 1"),
        ("swirl", {"kl_coef": -1.0}, "algorithm.kl_coef=-1.0: expected at least 0"),
        ("gspo", {"entropy_coef": -1.0}, "algorithm.entropy_coef=-1.0: expected at least 0"),
        ("gspo", {"clip_low": 1.0}, "algorithm.clip_low=1.0: expected above 0 and below 1"),
        ("grpo", {"kl_clamp": 0.0}, "algorithm.kl_clamp=0.0: expected null, or above 0"),
        ("grpo", {"is_cap": 0.0}, "algorithm.is_cap=0.0: expected above 0"),
        ("grpo", {"is_floor": 3.0}, "algorithm.is_floor=3.0: expected at least 0 and below is_cap"),
        ("ppo", {"lam": 1.1}, "algorithm.lam=1.1: expected from 0 to 1"),
        ("ppo", {"value_clip": 0.0}, "algorithm.value_clip=0.0: expected null, or above 0"),
        ("ppo", {"dual_clip": 1.0}, "algorithm.dual_clip=1.0: expected null, or above 1"),
        ("reinforce_pp", {"discount": -0.1}, "algorithm.discount=-0.1: expected from 0 to 1"),
        ("reinforce_pp", {"reward_clip": -1.0}, "algorithm.reward_clip=-1.0: expected null, or above 0"),
        ("dpo", {"beta": 0.0}, "algorithm.beta=0.0: expected above 0"),
        (
            "ppo",
            {"kl_coef": 0.1, "kl_in": "loss"},
            "algorithm.kl_kind='k1': expected k2 or k3 in the loss: k1's mean gradient is zero",
        ),
    ],
)
def test_a_bad_value_names_its_key(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        build(name, **options)
    assert str(caught.value) == message


# Key: values that are just right, and values that are just wrong.
BOUNDS: dict[str, tuple[list[float], list[float]]] = {
    "epochs": ([1], [0]),
    "minibatches": ([1], [0]),
    "kl_coef": ([0.0], [-0.01]),
    "entropy_coef": ([0.0], [-0.01]),
    "kl_clamp": ([0.01], [0.0]),
    "is_cap": ([0.01], [0.0]),
    "is_floor": ([0.0, 1.99], [-0.01, 2.0]),
    "clip_low": ([0.01, 0.99], [0.0, 1.0]),
    "clip_high": ([0.01, 1.5], [0.0]),
    "dual_clip": ([1.01], [1.0]),
    "value_clip": ([0.01], [0.0]),
    "reward_clip": ([0.01], [0.0]),
    "advantage_clip": ([0.01], [0.0]),
    "discount": ([0.0, 1.0], [-0.01, 1.01]),
    "lam": ([0.0, 1.0], [-0.01, 1.01]),
    "beta": ([0.01, 1.5], [0.0]),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_number_is_taken_up_to_its_bounds_and_no_further(name: str) -> None:
    schema = choose("algorithm", ALGORITHMS, name).schema
    numbers = [field.name for field in fields(schema) if "int" in str(field.type) or "float" in str(field.type)]
    assert set(numbers) <= set(BOUNDS)
    for key in numbers:
        right, wrong = BOUNDS[key]
        for value in right:
            assert getattr(schema(**{key: value}), key) == value
        for value in wrong:
            with pytest.raises(BadInput, match=rf"^algorithm\.{key}={value}: expected"):
                schema(**{key: value})


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_says_whether_its_credit_depends_on_token_rewards(name: str) -> None:
    algorithm = build(name)
    groups = groups_of([[1.0, 0.0]])
    without = [
        [
            replace(sample, streams=(replace(sample.streams[0], values=(0.0, *sample.streams[0].values[1:])),))
            for sample in group
        ]
        for group in groups
    ]
    advantages = [
        torch.cat([row.advantages for row in rows_of(credited(variant, algorithm), algorithm)[0]])
        for variant in (groups, without)
    ]
    assert torch.equal(*advantages) != algorithm.reads_streams


def test_the_name_is_the_first_key_of_every_algorithm() -> None:
    assert all(fields(choose("algorithm", ALGORITHMS, name).schema)[0].name == "name" for name in ALGORITHMS)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name != "ppo"])
def test_only_ppo_has_a_critic(name: str) -> None:
    refused: Callable[..., Any] = build(name).value_loss
    with pytest.raises(NotImplementedError, match="has no critic"):
        refused(torch.zeros(2), None, denominator=1.0)
