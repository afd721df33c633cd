"""An adapter under the real DeepSpeed: what a step changes, what a checkpoint holds, how many ranks there are."""

import dataclasses
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learners.algorithms.grpo import GRPO, GRPOConfig
from learners.rank import LearnerRank
from rlsys.adapters import WEIGHTS, Adapter, AdapterStart, read_adapter
from rlsys.config.model import LoraConfig
from rlsys.errors import BadInput
from rlsys.system.weight_folder import WeightFolder
from tests.e2e.learner_cases import bare_process, spawn, spec
from tests.e2e.learner_cases import learner as learner
from tests.e2e.learner_cases import path as path
from tests.e2e.test_learner_rank import CONFIG, PROBE, WeightedLogprob, batch, same, samples_of, save, save_hf, tensors
from tests.makers import made
from tests.makers.made import make_shards

LORA = LoraConfig(rank=4, alpha=8.0)


def begin(learner: LearnerRank, path: str, folder: Path | None = None, algorithm=None, reference=None, **changes):
    start = AdapterStart(adapter=Adapter.on(path, LORA), folder=str(folder) if folder else None)
    config = dataclasses.replace(CONFIG, **changes)
    learner.begin(path, config, algorithm or WeightedLogprob(), 6, 1.0, reference, start=start)


def base_of(learner: LearnerRank) -> dict[str, torch.Tensor]:
    model = learner.stage.models.policy.model
    return {name: tensor.clone() for name, tensor in model.state_dict().items() if "lora_" not in name}


@pytest.mark.parametrize("zero_stage", [1, 2])
def test_steps_change_the_adapter_alone_and_a_checkpoint_continues_to_the_same_bits(
    learner, path, zero_stage, tmp_path
) -> None:
    begin(learner, path, zero_stage=zero_stage)
    frozen, new, first = base_of(learner), tensors(learner), learner.logprobs(PROBE)
    reports = [learner.update(batch(step)) for step in range(3)]
    assert all(report.applied for report in reports) and reports[0].metrics["learner/grad_norm"].value > 0
    assert same(base_of(learner), frozen)
    moved = tensors(learner)
    assert moved.keys() == new.keys() and all(not torch.equal(moved[name], new[name]) for name in new)
    assert learner.logprobs(PROBE) != first
    save(learner, tmp_path / "learner")
    save_hf(learner, tmp_path / "hf", path)
    learner.update(batch(3))
    expected = tensors(learner)

    for stage in (zero_stage, 3 - zero_stage):  # their gradients are the same bits
        begin(learner, path, tmp_path / "hf", zero_stage=stage)
        assert same(tensors(learner), moved)
        learner.load(tmp_path / "learner")
        assert same(tensors(learner), moved) and same(base_of(learner), frozen)
        learner.update(batch(3))
        assert same(tensors(learner), expected)

    files = [file for file in (tmp_path / "learner").rglob("*") if file.is_file()]
    base_bytes = sum(tensor.numel() * 4 for tensor in frozen.values())
    assert sum(file.stat().st_size for file in files) < base_bytes / 2
    assert same(load_file(tmp_path / "hf" / WEIGHTS), moved)
    assert read_adapter(tmp_path / "hf") == Adapter.on(path, LORA)


def test_a_version_is_the_adapter_and_says_on_which_model(learner, path, tmp_path) -> None:
    begin(learner, path)
    learner.update(batch())
    true = learner.logprobs(PROBE)
    published, values = learner.export(WeightFolder(tmp_path), 1, made.probe(PROBE))
    assert values.logprobs == true and published.adapter == Adapter.on(path, LORA)
    assert same(dict(WeightFolder.receive(published)), tensors(learner))
    moved = learner.export(WeightFolder(tmp_path), 2, made.probe(PROBE, 0.5))[1].logprobs
    assert learner.logprobs(PROBE) == true
    pairs = [(a, b) for old, new in zip(true, moved, strict=True) for a, b in zip(old, new, strict=True)]
    assert sum(abs(a - b) for a, b in pairs) / len(pairs) > 0.2


def test_the_reference_is_the_model_under_the_adapter_and_then_the_adapter_that_a_stage_began_with(
    learner, path, tmp_path
) -> None:
    algorithm = GRPO(GRPOConfig(kl_coef=0.1))
    begin(learner, path, algorithm=algorithm, reference=path, warmup_steps=0)
    models = learner.stage.models
    assert models.reference.policy is models.policy  # no second copy
    first = learner.update(batch()).metrics["kl/reference"].value
    later = learner.update(batch(1)).metrics["kl/reference"].value
    assert first == pytest.approx(0, abs=1e-6) and later > 1e-6
    save_hf(learner, tmp_path / "hf", path)

    begin(learner, path, tmp_path / "hf", algorithm=algorithm, reference=str(tmp_path / "hf"), warmup_steps=0)
    before = tensors(learner)
    assert learner.update(batch()).metrics["kl/reference"].value == pytest.approx(0, abs=1e-6)
    assert learner.update(batch(1)).metrics["kl/reference"].value > 1e-6
    assert not same(tensors(learner), before)


def test_a_checkpoint_of_all_weights_or_of_another_rank_is_refused(learner, path, tmp_path) -> None:
    learner.begin(path, CONFIG, WeightedLogprob(), 6, 1.0)
    save(learner, tmp_path)
    begin(learner, path)
    with pytest.raises(BadInput, match=r"saved with model\.lora\.rank=0, expected 4"):
        learner.load(tmp_path)


def run_rank(rank: int, world_size: int, port: int, path: str, folder: str) -> None:
    bare_process(rank)
    learner = LearnerRank(spec(rank, world_size, port))
    for zero_stage in (1, 2):
        begin(learner, path, zero_stage=zero_stage)
        for step in range(2):
            learner.update(make_shards(samples_of(step), 64, 0, world_size)[rank])
        torch.save(tensors(learner), Path(folder) / f"{zero_stage}-{rank}.pt")
    learner.close()


def test_two_ranks_train_the_adapter_that_one_trains(path, tmp_path) -> None:
    for world_size in (1, 2):
        (tmp_path / str(world_size)).mkdir()
        spawn(run_rank, world_size, path, str(tmp_path / str(world_size)), deadline_s=300)
    expected = torch.load(tmp_path / "1" / "2-0.pt")
    for zero_stage in (1, 2):
        for rank in range(2):
            weights = torch.load(tmp_path / "2" / f"{zero_stage}-{rank}.pt")
            for name, tensor in expected.items():
                assert (weights[name] - tensor).abs().max() < 2e-5, (zero_stage, rank, name)  # steps of 1e-3
