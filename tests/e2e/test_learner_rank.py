"""One learner rank with the real DeepSpeed: what a step does, that it can be repeated, moved, saved and taken apart."""

import dataclasses
import math
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learners.export import gathered, weights
from learners.rank import LearnerRank, RankSpec
from learners.scratch import build
from rlsys.config import LearnerConfig, ScratchModel
from rlsys.device import DEVICES
from rlsys.errors import BadInput
from rlsys.losses import LossOutput
from rlsys.packing import make_batch, split_rows
from rlsys.types import Batch, Row, Sample
from rlsys.weights import read_manifest

# Above 100,000 elements a tensor is really partitioned under ZeRO-3: here embedding, head and the MLPs.
SHAPE = ScratchModel(
    hidden_size=128, intermediate_size=1024, num_layers=2, num_heads=4, num_kv_heads=2, vocab_size=1024
)
CONFIG = LearnerConfig(lr=1e-3, schedule="cosine", warmup_steps=2, weight_decay=0.1, clip_grad=0.5, logit_chunk=16)
PROBE = [[5, 6, 7, 8, 9], [10, 11], [12], [13, 14, 15, 16, 17, 18, 19]]


@dataclasses.dataclass(frozen=True)
class WeightedLogprob:
    """The simplest algorithm: minus advantage times log-probability."""

    def advantages(self, rewards):
        return list(rewards)

    def loss(self, logp_T: torch.Tensor, entropy_T: torch.Tensor, row: Row, *, denominator: float) -> LossOutput:
        return LossOutput(loss=-(logp_T * row.advantages * row.loss_mask).sum() / denominator, metrics={})


def spec(rank: int = 0, world_size: int = 1, port: int = 0) -> RankSpec:
    if not port:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
    return RankSpec(
        rank=rank, world_size=world_size, master_addr="127.0.0.1", master_port=port, device=DEVICES["cpu"],
        dtype="float32", gradient_checkpointing=False, seed=0,
    )  # fmt: skip


def sample(index: int, advantage: float | None = None) -> Sample:
    length = 6 + (index * 7) % 11
    sampled = 3 + index % 3
    value = (-1) ** index * (1 + index / 10) if advantage is None else advantage
    return Sample(
        token_ids=tuple((index * 131 + 17 * step) % 1000 for step in range(length)),
        loss_mask=(0,) * (length - sampled) + (1,) * sampled,
        behavior_logprobs=(0.0,) * length,
        advantages=(0.0,) * (length - sampled) + (value,) * sampled,
        versions=(-1,) * (length - sampled) + (0,) * sampled,
    )


def batch(step: int = 0, tokens_per_row: int = 64) -> Batch:
    return make_batch([sample(index) for index in range(step, step + 11)], tokens_per_row, 0)


def tensors(learner: LearnerRank) -> dict[str, torch.Tensor]:
    """The whole weights at any ZeRO stage."""
    items = weights(learner._policy.model)
    with gathered(items):
        return {name: item.tensor.detach().clone() for item in items for name in item.names}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("scratch") / "model"
    build(folder, SHAPE, ["a few words", "and 12 more"] * 9, ["<tag>"], max_positions=128, seed=0)
    return str(folder)


@pytest.fixture(scope="module")
def learner() -> Iterator[LearnerRank]:
    rank = LearnerRank(spec())
    yield rank
    rank.close()


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
    start = learner.score(PROBE)
    report = learner.update(batch())
    metrics = report.metrics
    assert metrics["learner/lr"].value == 0.5e-3  # the first of two warm-up steps
    assert metrics["learner/grad_norm"].value > 0
    assert metrics["learner/tokens"].value == sum(len(sample(index).token_ids) for index in range(11))
    assert metrics["learner/rows"].value == len(batch().rows) == 2
    assert math.isfinite(metrics["loss/total"].value)
    assert metrics["memory/learner_rss_peak_mb"].value > 100
    assert learner.update(batch()).metrics["loss/total"].value < metrics["loss/total"].value
    assert learner.score(PROBE) != start


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_neither_rows_nor_zero_stage_change_the_gradient(learner, path, zero_stage) -> None:
    norms, found = [], []
    for tokens_per_row in (1, 40, 1000):
        begin(learner, path, zero_stage=zero_stage, lr=1e-2)
        norms.append(learner.update(batch(tokens_per_row=tokens_per_row)).metrics["learner/grad_norm"].value)
        learner.update(batch(1, tokens_per_row))
        found.append(tensors(learner))
    begin(learner, path, zero_stage=2)
    plain = plain_gradient_norm(learner)
    assert norms == pytest.approx([plain] * 3, rel=1e-5)
    for other in found[1:]:
        for name, tensor in other.items():
            assert (tensor - found[0][name]).abs().max() < 2e-4, name  # of steps of 1e-2: Adam magnifies rounding


def plain_gradient_norm(learner: LearnerRank) -> float:
    """By autograd alone: one sample at a time, no DeepSpeed."""
    policy = learner._policy
    total = 0.0
    parameters = list(policy.parameters())
    grads = [torch.zeros_like(parameter) for parameter in parameters]
    data = batch()
    for row in data.rows:
        logp_T, _ = policy(row.token_ids, row.position_ids, row.cu_seqlens, 1.0, 10_000)
        loss = -(logp_T * row.advantages * row.loss_mask).sum() / data.num_loss_tokens
        for grad, part in zip(grads, torch.autograd.grad(loss, parameters), strict=True):
            grad += part
    total = sum(float(grad.double().square().sum()) for grad in grads)
    return math.sqrt(total)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.parametrize("advantage", [math.nan, math.inf])
def test_a_step_that_is_not_finite_is_skipped_and_says_so(learner, path, zero_stage, advantage) -> None:
    begin(learner, path, zero_stage=zero_stage)
    learner.update(batch())
    before = tensors(learner)
    broken = make_batch([sample(0), sample(1, advantage)], 64, 0)
    report = learner.update(broken)
    assert not report.applied
    assert all(math.isfinite(metric.value) for metric in report.metrics.values())
    assert same(tensors(learner), before)
    assert learner.update(batch()).applied
    assert not same(tensors(learner), before)
    assert all(torch.isfinite(tensor).all() for tensor in tensors(learner).values())


def test_scores_are_those_of_the_plain_model_in_the_order_of_the_lists(learner, path) -> None:
    from transformers import AutoModelForCausalLM

    begin(learner, path, tokens_per_row=8)
    scores = learner.score([*PROBE, []])
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
        before, true = tensors(learner), learner.score(PROBE)
        if visit:
            moved = learner.score_perturbed(PROBE, tmp_path, 3)
            assert same(tensors(learner), before)
            assert learner.score(PROBE) == true
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
    manifest = learner.export(tmp_path, 17)
    assert manifest == read_manifest(tmp_path / "v000017")
    assert same(load_file(tmp_path / "v000017" / manifest.buckets[0]), tensors(learner))


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
def test_a_loaded_checkpoint_continues_to_the_same_bits(learner, path, zero_stage, tmp_path) -> None:
    begin(learner, path, zero_stage=zero_stage)
    for step in range(3):
        learner.update(batch(step))
    learner.save(tmp_path / "learner")
    saved = tensors(learner)
    expected_report = learner.update(batch(3))
    expected = tensors(learner)

    begin(learner, path, zero_stage=zero_stage)
    learner.load(tmp_path / "learner")
    assert same(tensors(learner), saved)
    report = learner.update(batch(3))
    assert report.metrics["learner/lr"] == expected_report.metrics["learner/lr"]
    assert same(tensors(learner), expected)


def test_a_checkpoint_that_does_not_fit_is_bad_input(learner, path, tmp_path) -> None:
    begin(learner, path)
    with pytest.raises(BadInput, match="not a learner checkpoint"):
        learner.load(tmp_path)
    learner.save(tmp_path)
    begin(learner, path, zero_stage=1)
    with pytest.raises(BadInput, match=r"saved with learner\.zero_stage=2, expected 1"):
        learner.load(tmp_path)


def test_the_next_stage_begins_from_what_the_last_one_saved(learner, path, tmp_path) -> None:
    from transformers import AutoTokenizer

    begin(learner, path)
    learner.update(batch())
    learner.save_hf(tmp_path / "first", path)
    after = learner.score(PROBE)
    begin(learner, str(tmp_path / "first"), zero_stage=1)
    assert learner.score(PROBE) == after
    assert learner.step == 0
    shutil.rmtree(tmp_path / "first")  # a checkpoint that only its own stage needed
    learner.save_hf(tmp_path / "second", path)
    text = "<tag>and 12"
    assert AutoTokenizer.from_pretrained(tmp_path / "second")(text) == AutoTokenizer.from_pretrained(path)(text)


# -- two ranks ---------------------------------------------------------------------------------------------------------


def run_rank(rank: int, world_size: int, port: int, path: str, folder: str) -> None:
    """Two steps at each ZeRO stage; the ranks' rows differ in number of tokens and of logit chunks."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    learner = LearnerRank(spec(rank, world_size, port))
    for zero_stage in (2, 3):
        begin(learner, path, zero_stage=zero_stage)
        reports = [learner.update(split_rows(batch(step, 40), world_size)[rank]) for step in range(2)]
        assert all(report.applied for report in reports)
        perturbed = learner.score_perturbed(PROBE, Path(folder) / f"perturbed{zero_stage}", 1)
        learner.export(Path(folder) / f"zero{zero_stage}", 1)
        learner.save(Path(folder) / f"zero{zero_stage}" / "learner")
        learner.save_hf(Path(folder) / f"zero{zero_stage}" / "hf", path)
        expected = learner.update(split_rows(batch(2, 40), world_size)[rank])
        begin(learner, path, zero_stage=zero_stage)
        learner.load(Path(folder) / f"zero{zero_stage}" / "learner")
        again = learner.update(split_rows(batch(2, 40), world_size)[rank])
        assert again.metrics["learner/grad_norm"] == expected.metrics["learner/grad_norm"]
        norm = reports[0].metrics["learner/grad_norm"].value
        torch.save((learner.score(PROBE), perturbed, norm), f"{folder}/{zero_stage}-{rank}.pt")
    if world_size > 1:
        with pytest.raises(ValueError, match="between 1 and 2 rows"):
            learner.update(dataclasses.replace(batch(0, 40), rows=batch(0, 40).rows[: 1 + rank]))
    learner.close()


def test_two_ranks_give_the_weights_of_one_under_zero_2_and_3(path, tmp_path) -> None:
    results = {}
    for world_size in (1, 2):
        folder = tmp_path / str(world_size)
        folder.mkdir()
        port = spec().master_port
        torch.multiprocessing.spawn(run_rank, (world_size, port, path, str(folder)), nprocs=world_size)
        results[world_size] = folder
    expected = load_file(results[1] / "zero2" / "v000001" / "bucket-000.safetensors")
    scores, perturbed, norm = torch.load(results[1] / "2-0.pt")
    for zero_stage in (2, 3):
        for world_size, folder in results.items():
            published = load_file(folder / f"zero{zero_stage}" / "v000001" / "bucket-000.safetensors")
            saved = load_file(folder / f"zero{zero_stage}" / "hf" / "model.safetensors")
            assert same(published, saved)
            for name, tensor in expected.items():
                assert (published[name] - tensor).abs().max() < 2e-5, (zero_stage, world_size, name)  # steps of 1e-3
            for rank in range(world_size):
                found = torch.load(folder / f"{zero_stage}-{rank}.pt")
                for ours, theirs in ((found[0], scores), (found[1], perturbed)):
                    assert sum(ours, []) == pytest.approx(sum(theirs, []), abs=2e-3)
                assert found[2] == pytest.approx(norm, rel=1e-5)
