"""Weights leave the learner whole, named as on the hub, and come back bit for bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from learners import export
from learners.export import buckets, export_version, perturb_weights, weights
from learners.policy import PolicyModel, load_policy
from learners.rows import pack_ids
from rlsys.system.weight_folder import WeightFolder, WeightManifest, join_manifests


def load_whole(source: Path) -> PolicyModel:
    return load_policy(str(source), dtype="float32", attention_key="packed_sdpa")


def load(source: Path):
    return load_whole(source).model


def read(published: WeightManifest) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for place in published.places:
        part = load_file(place)
        assert not part.keys() & tensors.keys()
        tensors |= part
    return tensors


def test_an_exported_version_holds_every_tensor_and_the_head_even_when_it_is_tied(source, tmp_path) -> None:
    model = load(source)
    published = export_version(model, WeightFolder(tmp_path / "out"), 17, rank=0, num_ranks=1, bucket_bytes=10_000)
    folder = tmp_path / "out" / "v000017"
    tensors, expected = read(published), model.state_dict()
    assert "lm_head.weight" in tensors
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    assert published.version == 17
    assert published.tensors == len(expected) == 25
    assert published.bytes == sum(4 * tensor.numel() for tensor in expected.values())
    assert len(published.places) > 1
    assert {str(file) for file in folder.iterdir()} == {*published.places}  # no draft is left
    assert [str(folder / part.name) for part in published.parts] == [*published.places]


def test_ranks_write_a_version_together_each_tensor_once(source, tmp_path) -> None:
    model, folder = load(source), WeightFolder(tmp_path / "out")
    shares = [export_version(model, folder, 1, rank=rank, num_ranks=3, bucket_bytes=10_000) for rank in range(3)]
    assert all(len(share.places) > 1 for share in shares)
    tensors, expected = read(join_manifests(shares)), model.state_dict()
    assert tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], expected[name]) for name in expected)


def test_a_rank_without_a_share_writes_nothing(source, tmp_path) -> None:
    share = export_version(load(source), WeightFolder(tmp_path / "out"), 1, rank=1, num_ranks=2)
    assert (share.places, share.tensors, share.bytes) == ((), 0, 0)
    assert not (tmp_path / "out").exists()


def test_buckets_hold_consecutive_weights_up_to_the_limit(source) -> None:
    items = weights(load(source))
    filled = buckets(items, 10_000)
    assert [item for bucket in filled for item in bucket] == items
    for bucket in filled:
        assert len(bucket) == 1 or sum(item.num_bytes * len(item.names) for item in bucket) <= 10_000


def test_a_perturbation_touches_every_tensor_moves_every_logprob_and_leaves_no_trace(source) -> None:
    policy = load_policy(str(source), dtype="float32", attention_key="packed_sdpa")
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    row = pack_ids([[1, 2, 3, 4, 5, 6, 7, 8]], "cpu")
    true = policy(*row, 1.0, 100)[0]
    random_state = torch.get_rng_state()
    with perturb_weights(policy.model, 0.5):
        moved = policy(*row, 1.0, 100)[0]
        for name, tensor in policy.model.state_dict().items():
            assert (tensor != before[name]).float().mean() > 0.9, name
            if tensor.numel() > 500:  # half of its own size, or of a matrix's usual one; embeddings and head a share
                usual = max(before[name].square().mean().sqrt(), tensor.shape[-1] ** -0.5)
                share = 1.0 if "layers" in name else export.WORDS_SHARE
                assert (tensor - before[name]).std() == pytest.approx(0.5 * share * usual, rel=0.1), name
        first = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    assert torch.isfinite(moved).all()
    assert (moved - true)[1:].abs().mean() > 0.1
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random_state)
    with perturb_weights(policy.model, 0.5):
        assert all(torch.equal(tensor, first[name]) for name, tensor in policy.model.state_dict().items())
    with perturb_weights(policy.model, 0.5, seed=1):
        assert not any(torch.equal(tensor, first[name]) for name, tensor in policy.model.state_dict().items())


def test_the_originals_come_back_when_something_fails_inside(source) -> None:
    model = load(source)
    before = model.model.norm.weight.clone()
    with pytest.raises(RuntimeError), perturb_weights(model, 0.5):
        raise RuntimeError
    assert torch.equal(model.model.norm.weight, before)


def test_the_originals_come_back_when_a_tensor_cannot_be_changed(source, monkeypatch) -> None:
    model = load(source)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    noise, last = export.noise_for, "model.norm.weight"

    def fails(item: export.Weight, scale: float, seed: int) -> torch.Tensor:
        if last in item.names:
            raise RuntimeError("no memory")
        return noise(item, scale, seed)

    monkeypatch.setattr(export, "noise_for", fails)
    with pytest.raises(RuntimeError, match="no memory"), perturb_weights(model, 0.5):
        raise AssertionError("unreachable")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_of_several_ranks_each_puts_its_own_back_and_sends_it_to_the_others_unless_one_failed(
    source, monkeypatch
) -> None:
    sent: list[int] = []
    for name, value in {"is_initialized": True, "get_rank": 1, "get_world_size": 2}.items():
        monkeypatch.setattr(torch.distributed, name, lambda value=value: value)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, owner: sent.append(owner))
    model = load(source)
    before = [item.tensor.clone() for item in weights(model)]

    def matches() -> list[bool]:
        return [torch.equal(item.tensor, old) for item, old in zip(weights(model), before, strict=True)]

    with perturb_weights(model, 0.5):
        assert not any(matches())
    assert matches() == [bool(number % 2) for number in range(len(before))]  # the others' are in what they would send
    assert sent == [number % 2 for number in range(len(before))]
    sent.clear()
    with pytest.raises(RuntimeError), perturb_weights(model, 0.5):
        raise RuntimeError
    assert sent == [] and not any(matches())
