"""One learner rank with the real DeepSpeed: what a step does, that it can be repeated, moved, saved and taken apart."""

import dataclasses
import json
import math
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learners.algorithms import ALGORITHMS, make_algorithm
from learners.algorithms.base import PROXIMAL, REFERENCE, VALUES, Algorithm
from learners.algorithms.grpo import GRPO, GRPOConfig
from learners.algorithms.terms import KLTerm
from learners.export import gather_parameters, weights
from learners.hub_folder import INDEX, copy_hf
from learners.rank import LearnerRank
from learners.snapshot import Snapshot
from rlsys.batch import Batch, MicroBatch, masked_means
from rlsys.choices import choose
from rlsys.config.learner import LearnerConfig
from rlsys.errors import BadInput
from rlsys.losses import LossOutput
from rlsys.metrics import finite
from rlsys.probe import mean_gap
from rlsys.reductions import weigh
from rlsys.system.weight_folder import WeightFolder
from rlsys.types import Sample
from tests.e2e.learner_cases import SHAPE, bare_process, save_model, spawn, spec
from tests.e2e.learner_cases import learner as learner
from tests.e2e.learner_cases import path as path
from tests.makers import made
from tests.makers.made import make_batch, make_shards

CONFIG = LearnerConfig(lr=1e-3, schedule="cosine", warmup_steps=2, weight_decay=0.1, clip_grad=0.5, logit_chunk=16)
PROBE = [[5, 6, 7, 8, 9], [10, 11], [12], [13, 14, 15, 16, 17, 18, 19]]


@dataclasses.dataclass(frozen=True)
class WeightedLogprob(Algorithm):
    """The simplest algorithm: minus advantage times log-probability."""

    def advantages(self, rewards):
        return list(rewards)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        return LossOutput(loss=-(logp_T * row.advantages * row.loss_mask).sum() / denominator, metrics={})


@dataclasses.dataclass(frozen=True)
class ActorCritic(Algorithm):
    """Every model and every pass: six steps per batch."""

    needs: frozenset[str] = frozenset({REFERENCE, VALUES, PROXIMAL})
    epochs: int = 2
    minibatches: int = 3
    seen: list[Sequence[MicroBatch]] = dataclasses.field(default_factory=list)  # what `credit` was given

    def advantages(self, rewards):
        return list(rewards)

    def credit(self, rows, moments):
        self.seen.append(rows)
        return [
            dataclasses.replace(row, advantages=(row.rewards[0] - row.values) * row.loss_mask, returns=row.rewards[0])
            for row in rows
        ]

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        ratio = torch.exp(logp_T - row.proximal_logprobs)
        kl = (logp_T - row.reference_logprobs).square()
        loss = ((0.1 * kl - ratio * row.advantages) * row.weights).sum() / denominator
        return LossOutput(loss=loss, metrics=masked_means(row.loss_mask.bool(), {"ratio/mean": ratio}))

    def value_loss(self, values_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        return LossOutput(loss=((values_T - row.returns).square() * row.weights).sum() / denominator, metrics={})


@dataclasses.dataclass(frozen=True)
class Ratio(Algorithm):
    """One step, and how far the policy is from what is taken for the behaviour policy."""

    needs: frozenset[str] = frozenset()

    def advantages(self, rewards):
        return list(rewards)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        ratio = torch.exp(logp_T - row.behavior_logprobs)
        apart = {"ratio/not_one": ratio != 1, "ratio/below_one": ratio < 1}
        loss = -(ratio * row.advantages * row.weights).sum() / denominator
        return LossOutput(loss=loss, metrics=masked_means(row.loss_mask.bool(), apart))


def sample(index: int, advantage: float | None = None) -> Sample:
    length = 6 + (index * 7) % 11
    sampled = 3 + index % 3
    value = (-1) ** index * (1 + index / 10) if advantage is None else advantage
    return made.sample(
        (0,) * (length - sampled) + (1,) * sampled,
        token_ids=[(index * 131 + 17 * step) % 1000 for step in range(length)],
        logprobs=0.0,
        advantages=value,
        versions=0,
        reward=value,
    )


def samples_of(step: int) -> list[Sample]:
    return [sample(index) for index in range(step, step + 11)]


def batch(step: int = 0, tokens_per_row: int = 64, minibatches: int = 1) -> Batch:
    return make_batch(samples_of(step), tokens_per_row, 0, minibatches=minibatches)


def tensors(learner: LearnerRank, model: torch.nn.Module | None = None) -> dict[str, torch.Tensor]:
    """The whole weights of the policy, or of another model, at any ZeRO stage."""
    items = weights(model or learner.stage.models.policy.model)
    with gather_parameters(items):
        return {name: item.tensor.detach().clone().cpu() for item in items for name in item.names}


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def save(learner: LearnerRank, folder: Path) -> None:
    snapshot = Snapshot()
    learner.save(folder, snapshot)
    snapshot.write()


def save_hf(learner: LearnerRank, folder: Path, tokenizer_from: str) -> None:
    snapshot = Snapshot()
    learner.save_hf(folder, tokenizer_from, snapshot)
    snapshot.write()


def begin(learner: LearnerRank, path: str, total_steps: int = 6, **changes) -> None:
    learner.begin(path, dataclasses.replace(CONFIG, **changes), WeightedLogprob(), total_steps, 1.0)


def test_the_same_batch_from_the_same_start_gives_the_same_bits(learner, path) -> None:
    outcomes = []
    for _ in range(2):
        begin(learner, path)
        reports = [learner.update(batch(step)) for step in range(3)]
        assert all(report.applied for report in reports)
        outcomes.append(tensors(learner))
    assert same(*outcomes)


def test_a_step_follows_the_gradient_and_reports_it(learner, path) -> None:
    begin(learner, path)
    start = learner.logprobs(PROBE)
    report = learner.update(batch())
    metrics = report.metrics
    assert metrics["learner/lr"].value == 0.5e-3  # the first of two warm-up steps
    assert metrics["learner/grad_norm"].value > 0
    assert metrics["learner/tokens"].value == sum(len(sample(index).token_ids) for index in range(11))
    assert metrics["learner/rows"].value == len(batch().rows) == 2
    assert math.isfinite(metrics["loss/total"].value)
    assert metrics["memory/learner_rss_peak_mb"].value > 100
    assert learner.update(batch()).metrics["loss/total"].value < metrics["loss/total"].value
    assert learner.logprobs(PROBE) != start


def both_models(learner: LearnerRank) -> list[dict[str, torch.Tensor]]:
    return [tensors(learner), tensors(learner, learner.stage.models.critic_engine.module)]


def leave_and_return(learner: LearnerRank, times: int) -> None:
    for _ in range(times):
        learner.leave_card()
    for _ in range(times):
        learner.return_to_card()


def test_a_learner_that_leaves_the_card_between_all_calls_learns_the_same_bits(learner, path, tmp_path) -> None:
    """On a CPU nothing is moved; but DeepSpeed clears every view of what it moves, and makes it again."""
    outcomes = []
    for leaves in (False, True):
        away = partial(leave_and_return, learner, 2 * leaves)  # twice: a driver may not be sure
        learner.begin(path, CONFIG, ActorCritic(), 6, 1.0)
        away()
        for step in range(3):
            report = learner.update(batch(step))
            assert report.applied
            away()
            learner.export(WeightFolder(tmp_path / f"versions-{leaves}"), step)
            away()
        folder = tmp_path / f"checkpoint-{leaves}"
        save(learner, folder)
        away()
        scores = learner.logprobs(PROBE)
        learner.load(folder)
        away()
        learner.update(batch(3))
        outcomes.append((both_models(learner), scores))
    (plain, plain_scores), (moved, moved_scores) = outcomes
    assert all(map(same, plain, moved)) and plain_scores == moved_scores


def test_everything_that_deepspeed_keeps_leaves_the_card(learner, path) -> None:
    """Else the test above would pass with a `leave_card` that does nothing."""
    begin(learner, path)
    learner.leave_card()
    optimizer = learner.stage.models.policy_engine.optimizer
    assert len(optimizer.offloaded_states) >= 4  # weights, masters, gradients, moments
    learner.return_to_card()
    assert not optimizer.offloaded_states


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_neither_rows_nor_zero_stage_change_the_gradient(learner, path, zero_stage) -> None:
    norms, weights = [], []
    for tokens_per_row in (1, 40, 1000):
        begin(learner, path, zero_stage=zero_stage, lr=1e-2)
        norms.append(learner.update(batch(tokens_per_row=tokens_per_row)).metrics["learner/grad_norm"].value)
        learner.update(batch(1, tokens_per_row))
        weights.append(tensors(learner))
    begin(learner, path, zero_stage=2)
    plain = plain_gradient_norm(learner)
    assert norms == pytest.approx([plain] * 3, rel=1e-5)
    for candidate in weights[1:]:
        for name, tensor in candidate.items():
            assert (tensor - weights[0][name]).abs().max() < 2e-4, name  # of steps of 1e-2: Adam magnifies rounding


def plain_gradient_norm(learner: LearnerRank) -> float:
    """By autograd alone: one sample at a time, no DeepSpeed."""
    policy = learner.stage.models.policy
    total = 0.0
    parameters = list(policy.parameters())
    grads = [torch.zeros_like(parameter) for parameter in parameters]
    data = batch()
    for row in data.rows:
        logp_T, _ = policy(row.token_ids, row.position_ids, row.cu_seqlens, 1.0, 10_000)
        loss = -(logp_T * row.advantages * row.loss_mask).sum() / data.denominators[0]
        for grad, part in zip(grads, torch.autograd.grad(loss, parameters), strict=True):
            grad += part
    total = sum(float(grad.double().square().sum()) for grad in grads)
    return math.sqrt(total)


UNKNOWN = dataclasses.replace(sample(1), behavior_logprobs=(math.nan,) * len(sample(1).token_ids))
BROKEN = {"nan reward": sample(1, math.nan), "infinite loss": sample(1, math.inf), "clamped nan": UNKNOWN}


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("case", BROKEN)
def test_a_step_that_is_not_finite_is_skipped_and_says_so(learner, path, zero_stage, case) -> None:
    """The third is grpo, whose clamps stop a `nan` on its way back: the gradient alone is that of the sound tokens."""
    begin(learner, path, zero_stage=zero_stage, warmup_steps=4)
    if case == "clamped nan":
        config = dataclasses.replace(CONFIG, zero_stage=zero_stage, warmup_steps=4)
        learner.begin(path, config, GRPO(GRPOConfig()), 6, 1.0)
    learner.update(batch())
    before = tensors(learner)
    report = learner.update(make_batch([sample(0), BROKEN[case]], 64, 0))
    assert not report.applied and report.metrics["learner/skipped"].value == 1
    assert "loss/total" not in report.metrics and "learner/grad_norm" not in report.metrics
    sound = finite(report.metrics)
    assert set(report.metrics) - set(sound) == (set() if case == "clamped nan" else {"advantage/mean", "advantage/std"})
    assert same(tensors(learner), before)
    after = learner.update(batch())
    assert after.applied and after.metrics["learner/lr"].value == 0.5e-3  # of the second of four warm-up steps
    assert not same(tensors(learner), before)
    assert all(torch.isfinite(tensor).all() for tensor in tensors(learner).values())


@dataclasses.dataclass(frozen=True)
class BrokenCritic(ActorCritic):
    def value_loss(self, values_T: torch.Tensor, row: MicroBatch, *, denominator: float) -> LossOutput:
        return LossOutput(loss=values_T.sum() * math.nan, metrics={})


def test_a_step_of_the_critic_that_is_not_finite_is_skipped_and_counted(learner, path) -> None:
    for algorithm, skipped in ((ActorCritic(), 0), (BrokenCritic(), 6)):
        learner.begin(path, CONFIG, algorithm, 6, 1.0)
        critic = learner.stage.models.critic_engine.module
        before = {name: tensor.clone() for name, tensor in critic.state_dict().items()}
        report = learner.update(batch(minibatches=3))
        assert report.applied and report.metrics["critic/skipped"].value == skipped
        assert same(before, critic.state_dict()) == (skipped > 0)


def test_scores_are_those_of_the_plain_model_in_the_order_of_the_lists(learner, path) -> None:
    from transformers import AutoModelForCausalLM

    begin(learner, path, tokens_per_row=8)
    scores = learner.logprobs([*PROBE, []])
    assert [len(values) for values in scores] == [4, 1, 0, 6, 0]
    model = AutoModelForCausalLM.from_pretrained(path)
    for ids, values in zip(PROBE, scores, strict=False):
        logp = model(torch.tensor([ids])).logits[0, :-1].detach().log_softmax(-1)
        expected = [float(logp[index, token]) for index, token in enumerate(ids[1:])]
        assert values == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_perturbed_weights_are_published_and_scored_and_leave_no_trace(learner, path, zero_stage, tmp_path) -> None:
    runs = []
    for visit in (False, True):
        begin(learner, path, zero_stage=zero_stage)
        learner.update(batch())
        before, true = tensors(learner), learner.logprobs(PROBE)
        if visit:
            _, values = learner.export(WeightFolder(tmp_path), 3, made.probe(PROBE, 0.5))
            moved = values.logprobs
            assert 0 < mean_gap(moved, values.rounded) < 1e-3
            assert same(tensors(learner), before)
            assert learner.logprobs(PROBE) == true
            pairs = [(a, b) for old, new in zip(true, moved, strict=True) for a, b in zip(old, new, strict=True)]
            assert sum(abs(a - b) for a, b in pairs) / len(pairs) > 0.2
            published = load_file(tmp_path / "v000003" / "bucket-000.safetensors")
            assert all((published[name] != tensor).float().mean() > 0.9 for name, tensor in before.items())
        learner.update(batch(1))
        runs.append(tensors(learner))
    assert same(*runs)


def test_an_export_holds_the_weights_that_score(learner, path, tmp_path) -> None:
    begin(learner, path)
    learner.update(batch())
    published, values = learner.export(WeightFolder(tmp_path), 17, made.probe(PROBE))
    logprobs = values.logprobs
    assert logprobs == learner.logprobs(PROBE)
    WeightFolder.check(published)
    assert same(dict(WeightFolder.receive(published)), tensors(learner))


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_a_loaded_checkpoint_continues_to_the_same_bits(learner, path, zero_stage, tmp_path) -> None:
    begin(learner, path, zero_stage=zero_stage)
    for step in range(3):
        learner.update(batch(step))
    snapshot, saved = Snapshot(), tensors(learner)
    learner.save(tmp_path / "learner", snapshot)
    snapshot.wait_copied()
    expected_report = learner.update(batch(3))
    expected = tensors(learner)
    snapshot.write()  # after the step that followed: what is written is what was copied

    begin(learner, path, zero_stage=zero_stage)
    learner.load(tmp_path / "learner")
    assert same(tensors(learner), saved)
    report = learner.update(batch(3))
    assert report.metrics["learner/lr"] == expected_report.metrics["learner/lr"]
    assert same(tensors(learner), expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 3), (3, 1)])
def test_a_checkpoint_continues_under_another_zero_stage(
    learner, path, before, after, dtype, tmp_path, monkeypatch
) -> None:
    """To the same bits where it is loaded, and as far from the same stage's next step as the stages are apart."""
    monkeypatch.setattr(learner, "spec", dataclasses.replace(learner.spec, dtype=dtype))
    begin(learner, path, zero_stage=before)
    for step in range(3):
        learner.update(batch(step))
    save(learner, tmp_path / "learner")
    saved = tensors(learner)
    learner.update(batch(3))
    expected = tensors(learner)

    begin(learner, path, zero_stage=after, lr=2e-3)
    learner.load(tmp_path / "learner")
    assert same(tensors(learner), saved) and learner.step == 3
    save(learner, tmp_path / "again")
    begin(learner, path, zero_stage=before)
    learner.load(tmp_path / "again")
    assert same(tensors(learner), saved)
    learner.update(batch(3))
    assert same(tensors(learner), expected)  # the moments have come back, too

    begin(learner, path, zero_stage=after)
    learner.load(tmp_path / "learner")
    learner.update(batch(3))
    limit = 1e-6 if dtype == "float32" else 2e-3
    assert all((tensor - expected[name]).abs().max() < limit for name, tensor in tensors(learner).items())


def test_a_checkpoint_before_any_step_continues_under_another_zero_stage(learner, path, tmp_path) -> None:
    """There are no moments yet."""
    begin(learner, path, zero_stage=2)
    save(learner, tmp_path / "learner")
    learner.update(batch())
    expected = tensors(learner)
    begin(learner, path, zero_stage=3)
    learner.load(tmp_path / "learner")
    learner.update(batch())
    assert all((tensor - expected[name]).abs().max() < 1e-6 for name, tensor in tensors(learner).items())


def test_a_checkpoint_that_does_not_fit_is_bad_input(learner, path, tmp_path) -> None:
    begin(learner, path)
    with pytest.raises(BadInput, match="not a learner checkpoint"):
        learner.load(tmp_path)
    save(learner, tmp_path)
    other_model = save_model(tmp_path / "other", shape=dataclasses.replace(SHAPE, intermediate_size=512))
    begin(learner, other_model, zero_stage=1)
    with pytest.raises(BadInput, match="numbers, expected"):
        learner.load(tmp_path)
    begin(learner, path, zero_stage=1)
    (part,) = (tmp_path / "state").glob("*optim_states.pt")
    part.unlink()
    with pytest.raises(BadInput, match="0 files .*optim_states.pt, expected 1"):
        learner.load(tmp_path)


class Code:
    """What a pickle runs when it is read."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return (Path.touch, (self.trace,))


@pytest.mark.parametrize(("zero_stage", "name"), [(2, "mp_rank_00_model_states.pt"), (3, "*optim_states.pt")])
def test_a_checkpoint_that_brings_code_along_is_refused_and_runs_nothing(
    learner, path, zero_stage, name, tmp_path
) -> None:
    begin(learner, path, zero_stage=zero_stage)
    save(learner, tmp_path / "learner")
    (file,) = (tmp_path / "learner" / "state").glob(name)
    state = torch.load(file, weights_only=False)
    torch.save(state | {"extra": Code(tmp_path / "ran")}, file)
    for next_stage in (zero_stage, 1):
        begin(learner, path, zero_stage=next_stage)
        with pytest.raises(BadInput, match="it holds more than data"):
            learner.load(tmp_path / "learner")
        assert not (tmp_path / "ran").exists()


def test_the_next_stage_begins_from_what_the_last_one_saved(learner, path, tmp_path) -> None:
    from transformers import AutoTokenizer

    begin(learner, path)
    learner.update(batch())
    save_hf(learner, tmp_path / "first", path)
    after = learner.logprobs(PROBE)
    begin(learner, str(tmp_path / "first"), zero_stage=1)
    assert learner.logprobs(PROBE) == after
    assert learner.step == 0
    shutil.rmtree(tmp_path / "first")  # a checkpoint that only its own stage needed
    save_hf(learner, tmp_path / "second", path)
    text = "<tag>and 12"
    assert AutoTokenizer.from_pretrained(tmp_path / "second")(text) == AutoTokenizer.from_pretrained(path)(text)


# -- critic, reference, minibatches ------------------------------------------------------------------------------------


def begin_actor_critic(learner: LearnerRank, path: str, algorithm: Algorithm | None = None, **changes) -> None:
    learner.begin(path, dataclasses.replace(CONFIG, critic_lr=3e-3, **changes), algorithm or ActorCritic(), 6, 1.0)


def models_of(learner: LearnerRank) -> list[dict[str, torch.Tensor]]:
    """Policy, critic and reference."""
    models = learner.stage.models
    reference = models.reference.policy.model
    return [tensors(learner), tensors(learner, models.critic_engine.module), tensors(learner, reference)]


def test_a_stage_may_go_on_with_the_optimizer_of_the_one_before(learner, path, tmp_path) -> None:
    begin(learner, path)
    for step in range(3):
        learner.update(batch(step))
    save(learner, tmp_path / "learner")
    save_hf(learner, tmp_path / "hf", path)
    begin(learner, str(tmp_path / "hf"))
    learner.update(batch(3))
    fresh = tensors(learner)
    begin(learner, str(tmp_path / "hf"))
    learner.load(tmp_path / "learner", optimizers_alone=True)
    assert learner.step == 0
    learner.update(batch(3))
    continued = tensors(learner)
    assert not same(continued, fresh)
    begin(learner, str(tmp_path / "hf"))
    learner.load(tmp_path / "learner")
    learner.step = 0  # the same moments, by the way of a resume, and the same place in the schedule
    learner.update(batch(3))
    assert same(tensors(learner), continued)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_a_loaded_optimizer_moves_weights_as_the_configuration_says(learner, path, zero_stage, tmp_path) -> None:
    begin(learner, path, zero_stage=zero_stage, weight_decay=0.0)
    learner.update(batch())
    save(learner, tmp_path / "learner")
    for alone in (False, True):
        begin(learner, path, zero_stage=zero_stage, weight_decay=0.1, betas=(0.8, 0.99), clip_grad=0.5)
        learner.load(tmp_path / "learner", optimizers_alone=alone)
        optimizer = learner.stage.models.policy_engine.optimizer
        groups = optimizer.param_groups
        settings = [(group["weight_decay"], tuple(group["betas"])) for group in groups]
        assert settings == [(0.1, (0.8, 0.99)), (0.0, (0.8, 0.99))]
        assert optimizer.clip_grad == 0.5 and learner.update(batch(1)).applied


def test_a_critic_continues_under_another_zero_stage(learner, path, tmp_path) -> None:
    begin_actor_critic(learner, path, zero_stage=2)
    learner.update(batch(0, minibatches=3))
    save(learner, tmp_path / "learner")
    saved = models_of(learner)
    learner.update(batch(1, minibatches=3))
    expected = models_of(learner)
    begin_actor_critic(learner, path, zero_stage=3)
    learner.load(tmp_path / "learner")
    assert all(map(same, models_of(learner), saved))
    learner.update(batch(1, minibatches=3))
    for ours, theirs in zip(models_of(learner), expected, strict=True):
        assert all((tensor - theirs[name]).abs().max() < 1e-5 for name, tensor in ours.items())


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_with_critic_and_reference_a_checkpoint_continues_to_the_same_bits(learner, path, zero_stage, tmp_path) -> None:
    shutil.copytree(path, tmp_path / "origin")
    begin_actor_critic(learner, str(tmp_path / "origin"), zero_stage=zero_stage)
    start = tensors(learner)
    learner.update(batch(0, minibatches=3))
    save(learner, tmp_path / "one" / "learner")
    save_hf(learner, tmp_path / "one" / "hf", path)
    for step in (1, 2):
        learner.update(batch(step, minibatches=3))
    expected = models_of(learner)
    assert not same(expected[0], start) and same(expected[2], start)

    def begin_midway(folder: Path) -> None:
        config = dataclasses.replace(CONFIG, critic_lr=3e-3, zero_stage=zero_stage)
        learner.begin(str(folder / "hf"), config, ActorCritic(), 6, 1.0, str(tmp_path / "origin"))

    begin_midway(tmp_path / "one")
    learner.load(tmp_path / "one" / "learner")
    learner.update(batch(1, minibatches=3))
    save(learner, tmp_path / "two" / "learner")
    save_hf(learner, tmp_path / "two" / "hf", path)
    shutil.rmtree(tmp_path / "one")
    begin_midway(tmp_path / "two")
    learner.load(tmp_path / "two" / "learner")
    learner.update(batch(2, minibatches=3))
    assert all(map(same, models_of(learner), expected))


def test_passes_are_made_before_the_first_gradient_and_credit_sees_them(learner, path) -> None:
    algorithm = ActorCritic()
    begin_actor_critic(learner, path, algorithm, zero_stage=2)
    first = learner.update(batch(minibatches=3)).metrics
    assert first["learner/steps"].value == 6 and first["learner/skipped"].value == 0
    assert first["kl/reference"].value > 0  # six steps away from it, on average
    second = learner.update(batch(minibatches=3)).metrics
    for rows, stale in zip(algorithm.seen, (True, False), strict=True):
        for row in rows:
            keep = row.loss_mask.bool()
            assert torch.equal(row.reference_logprobs, row.proximal_logprobs) == stale
            assert row.reference_logprobs[keep].lt(0).all() and not row.proximal_logprobs[~keep].any()
            assert bool(row.values.any()) != stale  # the critic's head starts at zero
    assert second["value/explained_variance"].value > first["value/explained_variance"].value
    for name in ("loss/total", "loss/critic_total", "critic/grad_norm", "critic/lr", "advantage/std"):
        assert math.isfinite(second[name].value), name
    for phase in ("reference", "values", "proximal", "credit", "forward_backward", "optimizer", "critic_optimizer"):
        assert second[f"time/learner_{phase}"].value > 0, phase
    assert 0 < second["tokens/useful_share"].value < 1 and second["learner/tokens_per_s"].value > 0
    assert second["learner/flops_per_s"].value > 0 and "learner/mfu" not in second  # no card to be measured against


def test_minibatches_are_the_same_however_samples_are_packed(learner, path) -> None:
    losses = []
    for tokens_per_row in (1, 30, 1000):
        begin_actor_critic(learner, path)
        report = learner.update(batch(0, tokens_per_row, minibatches=3))
        losses.append([report.metrics[name].value for name in ("loss/total", "loss/critic_total", "ratio/mean")])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3) and losses[2] == pytest.approx(losses[0], rel=1e-3)


def test_each_stage_has_the_reference_that_it_asks_for(learner, path, tmp_path) -> None:
    begin_actor_critic(learner, path)
    learner.update(batch(minibatches=3))
    save_hf(learner, tmp_path / "hf", path)
    first, trained = models_of(learner)[2], tensors(learner)
    begin_actor_critic(learner, str(tmp_path / "hf"))
    assert same(models_of(learner)[2], trained)
    config = dataclasses.replace(CONFIG, reference="run")
    learner.begin(str(tmp_path / "hf"), config, ActorCritic(), 6, 1.0, path)
    assert same(models_of(learner)[2], first)


def test_a_critic_that_a_checkpoint_lacks_is_bad_input(learner, path, tmp_path) -> None:
    begin(learner, path)
    save(learner, tmp_path)
    begin_actor_critic(learner, path)
    with pytest.raises(BadInput, match="saved without a critic, expected the algorithm that the stage began with"):
        learner.load(tmp_path)


def versions_of(batch: Batch, version: int) -> Batch:
    """Every second row sampled by an older version."""
    rows = [
        dataclasses.replace(row, versions=torch.where(row.versions >= 0, version - index % 2, -1))
        for index, row in enumerate(batch.rows)
    ]
    return dataclasses.replace(batch, rows=tuple(rows), version=version)


def test_on_policy_grpo_has_ratios_of_exactly_one_at_the_first_update(learner, path) -> None:
    """What `rlsys` trains with, with a pass of its own and without; with the engine's: test_determinism.py."""
    for several in ({}, {"epochs": 2, "is_correction": "decoupled"}):
        config = GRPOConfig(kl_coef=0.01, **several)
        learner.begin(path, dataclasses.replace(CONFIG, behavior="learner", lr=1e-30), GRPO(config), 6, 1.0)
        first = learner.update(batch(tokens_per_row=20)).metrics
        exact = {"ratio/mean": 1, "ratio/outside_0.1": 0, "kl/behavior": 0, "clip/low": 0, "clip/high": 0}
        assert {name: first[name].value for name in exact} == exact
        assert first["mismatch/mean"].value > 1  # it is the learner's pass that is compared with


@pytest.mark.parametrize("needs", [frozenset(), frozenset({PROXIMAL})])  # with a pass of its own, and without
def test_with_the_learner_s_own_behaviour_policy_the_first_ratios_are_exactly_one(learner, path, needs) -> None:
    algorithm = Ratio(needs=needs)
    learner.begin(path, dataclasses.replace(CONFIG, behavior="learner"), algorithm, 6, 1.0)
    on_policy = learner.update(batch(tokens_per_row=20)).metrics
    assert on_policy["ratio/not_one"].value == 0
    assert on_policy["mismatch/mean"].value > 1  # the engine's numbers here were zeros, and are still compared
    learner.begin(path, dataclasses.replace(CONFIG, behavior="learner"), algorithm, 6, 1.0)
    lagging = versions_of(batch(tokens_per_row=20), 7)
    old = sum(float(row.loss_mask.sum()) for row in lagging.rows[1::2]) / lagging.denominators[0]
    metrics = learner.update(lagging).metrics
    assert metrics["ratio/not_one"].value == metrics["ratio/below_one"].value == pytest.approx(old)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_on_the_learner(learner, path, name) -> None:
    config = choose("algorithm", ALGORITHMS, name).schema
    several = {"kl_coef": 0.01, "epochs": 2, "minibatches": 2} if issubclass(config, KLTerm) else {}
    algorithm = make_algorithm(config(**several))
    # Against itself a policy has nothing to learn: recorded numbers that are not its own stand for a teacher there.
    behavior = "engine" if algorithm.needs_teacher else "learner"
    learner.begin(path, dataclasses.replace(CONFIG, behavior=behavior), algorithm, 6, 1.0)
    samples = weigh([[[sample(index)] for index in range(12)]], algorithm.reduction, length=20)
    batch = make_batch(samples, 64, 0, minibatches=algorithm.minibatches, samples_per_unit=2 if name == "dpo" else 1)
    start, report = tensors(learner), learner.update(batch)
    assert report.applied and report.metrics["learner/steps"].value == algorithm.epochs * algorithm.minibatches
    assert report.metrics["learner/skipped"].value == 0 and math.isfinite(report.metrics["loss/total"].value)
    assert not same(tensors(learner), start)


# -- the rest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_bfloat16_learns_skips_and_is_saved_at_every_stage(path, zero_stage, learner, tmp_path, monkeypatch) -> None:
    device = dataclasses.replace(learner.spec.device, held_dtype=None)  # a CPU's rank would hold float32
    monkeypatch.setattr(learner, "spec", dataclasses.replace(learner.spec, dtype="bfloat16", device=device))
    begin(learner, path, zero_stage=zero_stage)
    losses = [learner.update(batch()).metrics["loss/total"].value for _ in range(4)]
    assert losses[-1] < losses[0]
    before = tensors(learner)
    assert not learner.update(make_batch([sample(0), sample(1, math.nan)], 64, 0)).applied
    assert same(tensors(learner), before)
    save(learner, tmp_path / "learner")
    assert learner.update(batch(1)).applied
    expected = tensors(learner)
    begin(learner, path, zero_stage=zero_stage)
    learner.load(tmp_path / "learner")
    learner.update(batch(1))
    assert same(tensors(learner), expected)


def test_a_scaled_rope_is_scored_saved_and_not_scaled_again(learner, path, tmp_path) -> None:
    begin(learner, path)
    plain = learner.logprobs(PROBE)
    begin(learner, path, rope_theta_scale=10.0)
    scaled = learner.logprobs(PROBE)
    assert scaled != plain
    save_hf(learner, tmp_path, path)
    theta = [
        json.loads((Path(f) / "config.json").read_text())["rope_parameters"]["rope_theta"] for f in (path, tmp_path)
    ]
    assert theta[1] == 10 * theta[0]
    begin(learner, str(tmp_path), rope_theta_scale=10.0)
    assert learner.logprobs(PROBE) == scaled


def test_what_a_cpu_cannot_offload_is_bad_input(learner, path) -> None:
    with pytest.raises(BadInput, match="learner.offload='optimizer': expected 'none' on a CPU"):
        begin(learner, path, offload="optimizer")


def test_an_empty_batch_is_refused_and_a_weightless_one_takes_no_step(learner, path) -> None:
    begin(learner, path)
    before = tensors(learner)
    with pytest.raises(ValueError, match="a batch without rows"):
        learner.update(dataclasses.replace(batch(), rows=()))
    report = learner.update(dataclasses.replace(batch(), denominators=(0.0,)))
    assert not report.applied and report.metrics["learner/steps"].value == 0
    assert same(tensors(learner), before)


def test_a_minibatch_without_weight_is_passed_over_and_the_next_one_is_trained(learner, path) -> None:
    begin(learner, path)
    before, full_batch = tensors(learner), batch(minibatches=2)
    report = learner.update(dataclasses.replace(full_batch, denominators=(0.0, full_batch.denominators[1])))
    assert report.applied and report.metrics["learner/steps"].value == 1
    assert not same(tensors(learner), before)


# -- two ranks ---------------------------------------------------------------------------------------------------------


def run_rank(rank: int, world_size: int, port: int, path: str, folder: str) -> None:
    """Two steps at each ZeRO stage; the ranks' rows differ in number of tokens and of logit chunks."""
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port))
    for zero_stage in (2, 3):
        begin(learner, path, zero_stage=zero_stage)
        reports = [learner.update(make_shards(samples_of(step), 40, 0, world_size)[rank]) for step in range(2)]
        assert all(report.applied for report in reports)
        channel, before = WeightFolder(Path(folder) / f"perturbed{zero_stage}"), tensors(learner)
        perturbed = learner.export(channel, 1, made.probe(PROBE, 0.5))[1].logprobs
        assert same(tensors(learner), before)
        learner.export(WeightFolder(Path(folder) / f"zero{zero_stage}"), 1)
        save(learner, Path(folder) / f"zero{zero_stage}" / "learner")
        save_hf(learner, Path(folder) / f"zero{zero_stage}" / "hf", path)
        policy, parts, snapshot = learner.stage.models.policy, Path(folder) / f"zero{zero_stage}" / "parts", Snapshot()
        copy_hf(policy, parts, path, snapshot, rank=rank, num_ranks=world_size, shard_bytes=10**6)
        snapshot.write()
        expected = learner.update(make_shards(samples_of(2), 40, 0, world_size)[rank])
        begin(learner, path, zero_stage=zero_stage)
        learner.load(Path(folder) / f"zero{zero_stage}" / "learner")
        resumed = learner.update(make_shards(samples_of(2), 40, 0, world_size)[rank])
        assert resumed.metrics["learner/grad_norm"] == expected.metrics["learner/grad_norm"]
        norm = reports[0].metrics["learner/grad_norm"].value
        torch.save((learner.logprobs(PROBE), perturbed, norm), f"{folder}/{zero_stage}-{rank}.pt")
    learner.close()


@pytest.mark.slow
def test_two_ranks_give_the_weights_of_one_under_zero_2_and_3(path, tmp_path) -> None:
    results = {}
    for world_size in (1, 2):
        folder = tmp_path / str(world_size)
        folder.mkdir()
        spawn(run_rank, world_size, path, str(folder), deadline_s=300)
        results[world_size] = folder
    expected = load_file(results[1] / "zero2" / "v000001" / "bucket-000.safetensors")
    scores, perturbed, norm = torch.load(results[1] / "2-0.pt")
    for zero_stage in (2, 3):
        for world_size, folder in results.items():
            published = load_file(folder / f"zero{zero_stage}" / "v000001" / "bucket-000.safetensors")
            saved = load_file(folder / f"zero{zero_stage}" / "hf" / "model.safetensors")
            assert same(published, saved)
            files = sorted((folder / f"zero{zero_stage}" / "parts").glob("*.safetensors"))
            loaded = {name: tensor for file in files for name, tensor in load_file(file).items()}
            assert len(files) > 2 and same(loaded, saved)
            index = json.loads((folder / f"zero{zero_stage}" / "parts" / INDEX).read_text())
            assert set(index["weight_map"].values()) == {file.name for file in files}
            assert index["weight_map"].keys() == saved.keys()
            for name, tensor in expected.items():
                assert (published[name] - tensor).abs().max() < 2e-5, (zero_stage, world_size, name)  # steps of 1e-3
            for rank in range(world_size):
                loaded = torch.load(folder / f"{zero_stage}-{rank}.pt")
                for ours, theirs in ((loaded[0], scores), (loaded[1], perturbed)):
                    assert sum(ours, []) == pytest.approx(sum(theirs, []), abs=2e-3)
                assert loaded[2] == pytest.approx(norm, rel=1e-5)
