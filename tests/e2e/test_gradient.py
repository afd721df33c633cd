"""The gradient of one fixed batch does not depend on ranks, ZeRO stage, rows, packing or accumulation.

Policy and critic are compared with a plain PyTorch loop that shares nothing with the learner but the model's files:
padded batches, its own log-softmax, its own loss.
"""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import pvariance

import pytest
import torch

from learners.algorithms.base import REFERENCE, VALUES, Algorithm
from learners.algorithms.ppo import PPO, PPOConfig
from learners.rank import LearnerRank
from rlsys.batch import Batch, MicroBatch, make_row
from rlsys.config.learner import LearnerConfig
from rlsys.losses import LossOutput
from rlsys.reductions import weigh
from rlsys.types import Sample
from tests.device import name, need_gpus
from tests.e2e.learner_cases import bare_process, save_model, spawn, spec
from tests.makers import made
from tests.makers.made import make_batch, make_shards

TEMPERATURE = 0.8
ENTROPY, KL = 0.05, 0.2
# No clipping, no decay, steps too small for float32, and an Adam whose first moment is the gradient itself.
CONFIG = LearnerConfig(
    lr=1e-30, critic_lr=1e-30, betas=(0.0, 0.95), clip_grad=1e9, logit_chunk=7, reference="run", tokens_per_row=64
)
BUDGETS = (1, 48, 10**6)  # a row for each sample, some rows, one row
MINIBATCHES = 3  # of 11 samples: 3, 4 and 4
DISCOUNT, LAMBDA = 0.9, 0.95
PROBE = [[5, 6, 7, 8, 9], [10, 11, 12]]
TOLERANCE = {"cpu": 1e-5, "cuda": 1e-4}
Gradients = dict[str, torch.Tensor]  # by parameter name
Reported = tuple[float, float]  # norm of the policy's gradient, explained variance of the critic


@dataclasses.dataclass(frozen=True)
class Everything(Algorithm):
    """Whatever an algorithm may ask for, in a loss that is easily written twice."""

    reduction: str = "sequence_mean"
    needs: frozenset[str] = frozenset({REFERENCE, VALUES})
    entropy_coef: float = ENTROPY
    epochs: int = 1
    minibatches: int = 1

    def advantages(self, rewards):
        return list(rewards)

    def credit(self, rows, moments):
        """Advantages less their mean over all ranks; returns of one and a half times the reward so far."""
        mean, _, _ = moments([row.advantages for row in rows], [row.loss_mask for row in rows])
        return [
            dataclasses.replace(
                row,
                advantages=(row.advantages - mean - row.values.detach()) * row.loss_mask,
                returns=1.5 * row.advantages * row.loss_mask,
            )
            for row in rows
        ]

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        ratio = torch.exp(logp_T - row.behavior_logprobs)
        difference = logp_T - row.reference_logprobs
        loss_T = -ratio * row.advantages + KL * (torch.expm1(-difference) + difference) - ENTROPY * entropy_T
        return LossOutput(loss=(row.weights * loss_T).sum() / denominator, metrics={})

    def value_loss(self, values_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        return LossOutput(loss=(row.weights * (values_T - row.returns) ** 2).sum() / denominator, metrics={})


def trajectories(count: int = 11) -> list[list[Sample]]:
    """Samples of 6 to 33 tokens; every third trajectory has two of them; one has a response of one token."""
    per_trajectory: list[list[Sample]] = [[]]
    for index in range(count):
        length = 6 + (index * 7) % 28
        sampled = 1 if index == 4 else 3 + index % 3
        value = (-1) ** index * (1 + index / 10)
        sample = made.sample(
            (0,) * (length - sampled) + (1,) * sampled,
            token_ids=[(index * 131 + 17 * step) % 1000 for step in range(length)],
            logprobs=[-6.5 - step / 10 for step in range(sampled)],
            advantages=value,
            versions=0,
            reward=value,
        )
        if index % 3 != 2:
            per_trajectory.append([])
        per_trajectory[-1].append(sample)
    return [parts for parts in per_trajectory if parts]


def batch(tokens_per_row: int) -> Batch:
    return make_batch(weigh([trajectories()], "sequence_mean"), tokens_per_row, version=0)


def shard(tokens_per_row: int, ranks: int, rank: int, minibatches: int = 1) -> Batch:
    samples = weigh([trajectories()], "sequence_mean")
    return make_shards(samples, tokens_per_row, 0, ranks, minibatches=minibatches)[rank]


# -- the learner -------------------------------------------------------------------------------------------------------


def gradient(engine) -> Gradients:
    """Whole, by parameter name, at any ZeRO stage: a collective under stages 2 and 3."""
    from deepspeed.utils import safe_get_full_optimizer_state

    if hasattr(engine.optimizer, "_hp_optimizer_states_linked"):
        # stages 1 and 2 look for Adam's state once, after the first of two parameter groups has been stepped
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    return {
        name: safe_get_full_optimizer_state(parameter, "exp_avg").clone().cpu()
        for name, parameter in engine.module.named_parameters()
    }


def give_the_critic_a_head(learner: LearnerRank) -> None:
    """One that is not zero: else nothing below it would have a gradient. A step puts the optimizer's copy back."""
    import deepspeed

    head = learner.stage.models.critic_engine.module.head
    with deepspeed.zero.GatheredParameters([head.weight, head.bias], modifier_rank=0), torch.no_grad():
        if head.weight.numel():
            head.weight.copy_(head_weight(head.weight.shape[1]))
            head.bias.fill_(0.3)


def head_weight(width: int) -> torch.Tensor:
    return torch.linspace(-0.1, 0.1, width)[None]


def gradients(learner: LearnerRank, batch: Batch) -> tuple[Gradients, Gradients, Reported]:
    """(the policy's, the critic's, what the rank reports) of one update."""
    give_the_critic_a_head(learner)
    report = learner.update(batch)
    assert report.applied
    models = learner.stage.models
    reported = tuple(report.metrics[name].value for name in ("learner/grad_norm", "value/explained_variance"))
    return gradient(models.policy_engine), gradient(models.critic_engine), reported


def run_rank(rank: int, world_size: int, port: int, paths: tuple[str, str], folder: str) -> None:
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port))
    by_case: dict[str, object] = {}
    for zero_stage in (1, 2, 3):
        config = dataclasses.replace(CONFIG, zero_stage=zero_stage)
        learner.begin(paths[0], config, Everything(), 10, TEMPERATURE, reference_path=paths[1])
        for budget in BUDGETS if world_size < 4 else BUDGETS[::2]:
            case = f"ZeRO-{zero_stage}, budget {budget}"
            by_case[case] = gradients(learner, shard(budget, world_size, rank))
        if world_size == 2:
            by_case[f"ZeRO-{zero_stage}, unequal"] = gradients(learner, unequal(rank))
            refuse(learner, rank)
            with calls_of_a_layer(learner) as plainly:
                gradients(learner, unequal(rank))
            learner.spec = dataclasses.replace(learner.spec, gradient_checkpointing=True)
            learner.begin(paths[0], config, Everything(), 10, TEMPERATURE, reference_path=paths[1])
            learner.spec = dataclasses.replace(learner.spec, gradient_checkpointing=False)
            with calls_of_a_layer(learner) as recomputed:
                by_case[f"ZeRO-{zero_stage}, computed again"] = gradients(learner, unequal(rank))
            assert len(recomputed) == 2 * len(plainly)  # in the backward pass too
        if world_size == 2 and zero_stage == 3:
            algorithm = PPO(PPOConfig(discount=DISCOUNT, lam=LAMBDA))
            learner.begin(paths[0], config, algorithm, 10, TEMPERATURE)
            by_case["PPO, unequal"] = gradients(learner, unequal(rank))
        if zero_stage != 1:
            algorithm = Everything(epochs=2, minibatches=MINIBATCHES)
            learner.begin(paths[0], config, algorithm, 10, TEMPERATURE, reference_path=paths[1])
            give_the_critic_a_head(learner)
            mine = shard(20, world_size, rank, MINIBATCHES)
            assert learner.update(mine).metrics["learner/steps"].value == 2 * MINIBATCHES
            by_case[f"ZeRO-{zero_stage}, last minibatch"] = (gradient(learner.stage.models.policy_engine), None, None)
    if rank == 0:
        torch.save(by_case, folder)
    learner.close()


@contextmanager
def calls_of_a_layer(learner: LearnerRank) -> Iterator[list[int]]:
    """One entry for each time that the policy's first layer computes."""
    calls: list[int] = []
    layer = learner.stage.models.policy.model.model.layers[0]
    hook = layer.mlp.register_forward_pre_hook(lambda *_: calls.append(1))  # computing again stops before the end
    yield calls
    hook.remove()


def refuse(learner: LearnerRank, rank: int) -> None:
    """A reward that is not a number, and a batch without rows, on one rank: neither moves a weight on the other."""
    before = learner.logprobs(PROBE), gradient(learner.stage.models.policy_engine)
    report = learner.update(poisoned(rank))
    assert not report.applied and report.metrics["learner/skipped"].value == 1
    assert "loss/total" not in report.metrics and "loss/critic_total" in report.metrics  # on the sound rank as well
    after = learner.logprobs(PROBE), gradient(learner.stage.models.policy_engine)
    assert before[0] == after[0] and all(torch.equal(before[1][name], tensor) for name, tensor in after[1].items())
    with pytest.raises(ValueError, match="at least one on every rank"):
        learner.update(dataclasses.replace(batch(64), rows=batch(64).rows[:rank]))


def unequal(rank: int) -> Batch:
    """All rows but the last few on rank 0: without rows of no weight rank 1 would miss eight rounds of collectives."""
    samples = weigh([trajectories()], "sequence_mean")
    rows = [make_row([sample]) for sample in samples[:8]] + [make_row(samples[8:10])]
    mine = rows if rank == 0 else [make_row(samples[10:])]
    return dataclasses.replace(batch(64), rows=tuple(mine))


def poisoned(rank: int) -> Batch:
    batch = shard(48, 2, rank)
    if rank == 0:
        return batch
    first = dataclasses.replace(batch.rows[0], behavior_logprobs=batch.rows[0].behavior_logprobs * math.nan)
    return dataclasses.replace(batch, rows=(first, *batch.rows[1:]))


# -- the plain loop ----------------------------------------------------------------------------------------------------


def padded(samples: list[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(len(sample.token_ids) for sample in samples)
    ids = torch.zeros(len(samples), longest, dtype=torch.int64)
    real = torch.zeros(len(samples), longest, dtype=torch.int64)
    for row, sample in enumerate(samples):
        ids[row, : len(sample.token_ids)] = torch.tensor(sample.token_ids)
        real[row, : len(sample.token_ids)] = 1
    return ids, real


@dataclasses.dataclass
class Plain:
    """Policy and critic, and what they say about every sample, padded: logits and values, with gradient."""

    paths: tuple[str, str]

    def __post_init__(self) -> None:
        from transformers import AutoModelForCausalLM

        self.policy, reference, self.below = (
            AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32) for path in (*self.paths, self.paths[0])
        )
        self.weight = head_weight(self.policy.config.hidden_size).clone().requires_grad_()
        self.bias = torch.full((1,), 0.3, requires_grad=True)
        self.samples = [sample for parts in trajectories() for sample in parts]
        self.lengths = [sum(sum(sample.loss_mask) for sample in parts) for parts in trajectories() for _ in parts]
        ids, real = padded(self.samples)
        self.logits = self.policy(input_ids=ids, attention_mask=real).logits / TEMPERATURE
        with torch.no_grad():
            self.reference_logits = reference(input_ids=ids, attention_mask=real).logits / TEMPERATURE
        hidden = self.below.base_model(input_ids=ids, attention_mask=real).last_hidden_state
        self.values = (hidden * self.weight[0]).sum(-1) + self.bias

    def sampled(self, index: int) -> list[int]:
        return [step for step, on in enumerate(self.samples[index].loss_mask) if on]

    def gradients(self, policy_loss: torch.Tensor, critic_loss: torch.Tensor) -> tuple[Gradients, Gradients]:
        policy_loss.backward()
        critic_loss.backward()
        of_policy = {f"model.{name}": parameter.grad for name, parameter in self.policy.named_parameters()}
        of_critic = {f"model.{name}": parameter.grad for name, parameter in self.below.base_model.named_parameters()}
        return of_policy, of_critic | {"head.weight": self.weight.grad, "head.bias": self.bias.grad}


def plain_gradients(paths: tuple[str, str], indices: range) -> tuple[Gradients, Gradients, Reported]:
    """Of policy and critic, for the samples with these `indices`; a part of a trajectory counts as a part of one."""
    plain = Plain(paths)
    credits = [plain.samples[index].advantages[step] for index in range(11) for step in plain.sampled(index)]
    mean_credit = sum(credits) / len(credits)
    policy_loss, critic_loss, num_trajectories = torch.zeros(()), torch.zeros(()), 0.0
    targets, errors = [], []
    for index in indices:
        sample, length = plain.samples[index], plain.lengths[index]
        for step in plain.sampled(index):
            scores, reference_scores = plain.logits[index, step - 1], plain.reference_logits[index, step - 1]
            log_z = scores.logsumexp(0)
            logp = scores[sample.token_ids[step]] - log_z
            entropy = log_z - (torch.softmax(scores, 0) * scores).sum()
            reference_logp = reference_scores[sample.token_ids[step]] - reference_scores.logsumexp(0)
            value = plain.values[index, step - 1]
            advantage = sample.advantages[step] - mean_credit - value.detach()
            kl = torch.exp(reference_logp - logp) - (reference_logp - logp) - 1
            ratio = torch.exp(logp - sample.behavior_logprobs[step])
            policy_loss = policy_loss + (KL * kl - ratio * advantage - ENTROPY * entropy) / length
            critic_loss = critic_loss + (value - 1.5 * sample.advantages[step]) ** 2 / length
            num_trajectories += 1 / length
            targets.append(1.5 * sample.advantages[step])
            errors.append(targets[-1] - float(value))
    of_policy, of_critic = plain.gradients(policy_loss / num_trajectories, critic_loss / num_trajectories)
    return of_policy, of_critic, (norm(of_policy), 1 - pvariance(errors) / pvariance(targets))


def plain_ppo(paths: tuple[str, str]) -> tuple[Gradients, Gradients, Reported]:
    """PPO with lambda below 1 in its first step: errors of the critic added up from the end, advantages normalised."""
    plain = Plain(paths)
    credit: dict[tuple[int, int], float] = {}
    for index, sample in enumerate(plain.samples):
        later, later_value, reward = 0.0, 0.0, sample.reward
        for step in reversed(plain.sampled(index)):
            value = float(plain.values[index, step - 1])
            later = reward + DISCOUNT * later_value - value + DISCOUNT * LAMBDA * later
            later_value, reward = value, 0.0
            credit[index, step] = later
    mean, spread = sum(credit.values()) / len(credit), math.sqrt(pvariance(credit.values()))
    policy_loss, critic_loss, num_trajectories = torch.zeros(()), torch.zeros(()), 0.0
    targets, errors = [], []
    for (index, step), gain in credit.items():
        sample, length, value = plain.samples[index], plain.lengths[index], plain.values[index, step - 1]
        logp = plain.logits[index, step - 1].log_softmax(0)[sample.token_ids[step]]
        ratio, advantage = torch.exp(logp - sample.behavior_logprobs[step]), (gain - mean) / spread
        policy_loss = policy_loss - torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) / length
        targets.append(gain + float(value))
        errors.append(gain)
        critic_loss = critic_loss + 0.5 * (value - targets[-1]) ** 2 / length
        num_trajectories += 1 / length
    of_policy, of_critic = plain.gradients(policy_loss / num_trajectories, critic_loss / num_trajectories)
    return of_policy, of_critic, (norm(of_policy), 1 - pvariance(errors) / pvariance(targets))


def norm(gradients: Gradients) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in gradients.values()))


def relative_error(actual: Gradients, expected: Gradients) -> float:
    assert actual.keys() == expected.keys()
    return norm({name: actual[name] - tensor for name, tensor in expected.items()}) / norm(expected)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("models")
    return save_model(folder / "policy", seed=0), save_model(folder / "reference", seed=1)


@pytest.fixture(scope="module")
def expected(paths):
    torch.set_num_threads(1)
    return {
        "all": plain_gradients(paths, range(11)),
        "last minibatch": plain_gradients(paths, range(7, 11)),
        "PPO": plain_ppo(paths),
    }


SLOW = pytest.mark.slow  # several ranks are compared with the same plain loop


@pytest.mark.parametrize("world_size", [1, pytest.param(2, marks=SLOW), pytest.param(4, marks=SLOW)])
def test_the_gradient_is_that_of_a_plain_loop(paths, expected, world_size, tmp_path) -> None:
    need_gpus(world_size)
    spawn(run_rank, world_size, paths, str(tmp_path / "found.pt"), deadline_s=300)
    by_case = torch.load(tmp_path / "found.pt")
    assert len(by_case) == {1: 11, 2: 18, 4: 8}[world_size]
    for case, (ours, of_critic, reported) in by_case.items():
        kind = next((kind for kind in ("last minibatch", "PPO") if kind in case), "all")
        policy, critic, plain = expected[kind]
        assert relative_error(ours, policy) < TOLERANCE[name()], case
        if reported is not None:  # the critic's head is zero again after its first step
            assert relative_error(of_critic, critic) < TOLERANCE[name()], case
            assert reported == pytest.approx(plain, rel=1e-5), case
