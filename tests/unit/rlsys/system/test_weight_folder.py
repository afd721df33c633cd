"""A version arrives at the engine as the ranks sent it."""

import pickle
import shutil
import zlib
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from actors.engine_worker import ReloadExtension
from launch.config.compose import compose
from learners.export import export_version
from rlsys.errors import RunFailed
from rlsys.system.weight_folder import WeightFolder, WeightManifest, WeightsRejected, join_manifests
from tests.refused import refused

NUM_RANKS = 2


def send(folder: WeightFolder, version: int, *tensors: torch.Tensor) -> WeightManifest:
    buckets = [lambda index=index, tensor=tensor: {f"w{index}": tensor} for index, tensor in enumerate(tensors)]
    folder = pickle.loads(pickle.dumps(folder))  # as on its way to a rank
    return join_manifests([folder.send(version, buckets, rank, NUM_RANKS) for rank in range(NUM_RANKS)])


def test_what_all_ranks_sent_is_received_whole_with_its_count_and_size(tmp_path: Path) -> None:
    tensors = [torch.arange(6.0).view(2, 3), torch.tensor([7], dtype=torch.bfloat16), torch.zeros(4)]
    published = send(WeightFolder(tmp_path), 17, *tensors)
    assert (published.version, published.tensors, published.bytes) == (17, 3, 6 * 4 + 2 + 4 * 4)
    WeightFolder.check(published)
    received = dict(WeightFolder.receive(published))
    assert received.keys() == {"w0", "w1", "w2"}
    assert all(torch.equal(received[f"w{index}"], tensor) for index, tensor in enumerate(tensors))


def test_ranks_divide_the_buckets_and_a_part_says_where_it_was_written(tmp_path: Path) -> None:
    shares = [
        WeightFolder(tmp_path, node="n1").send(
            3, [lambda v=v: {f"w{v}": torch.full((v,), 1.0)} for v in (1, 2, 3)], r, 2
        )
        for r in range(2)
    ]
    assert [share.tensors for share in shares] == [2, 1] and [share.bytes for share in shares] == [4 + 12, 8]
    names = [part.name for share in shares for part in share.parts]
    assert names == ["bucket-000.safetensors", "bucket-002.safetensors", "bucket-001.safetensors"]
    folder = tmp_path / "v000003"
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)  # no draft is left
    for part in join_manifests(shares).parts:
        content = (folder / part.name).read_bytes()
        assert (part.bytes, part.digest, part.node) == (len(content), zlib.crc32(content), "n1")


def test_a_version_that_goes_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    published = send(WeightFolder(tmp_path), 1, torch.ones(2), torch.zeros(3))
    received = WeightFolder.receive(published)
    first = next(received)
    shutil.rmtree(tmp_path / "v000001")
    assert {name: tensor.tolist() for name, tensor in [first, *received]} == {"w0": [1, 1], "w1": [0, 0, 0]}


def test_a_version_that_is_not_whole_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    published = send(WeightFolder(tmp_path), 900, torch.ones(2), torch.ones(2))
    WeightFolder.check(published)
    with pytest.raises(WeightsRejected, match="a file of another version, expected 901"):
        WeightFolder.check(replace(published, version=901))
    with pytest.raises(WeightsRejected, match="1 files, expected 2"):
        WeightFolder.check(replace(published, places=published.places[:1]))
    cut = Path(published.places[1])
    cut.write_bytes(cut.read_bytes()[:-1])
    with pytest.raises(WeightsRejected, match=r"v000900/bucket-001.safetensors: \d+ bytes, expected \d+"):
        WeightFolder.check(published)
    cut.unlink()
    with pytest.raises(WeightsRejected, match="version 900 is not whole"):
        WeightFolder.check(published)


def test_memory_that_is_full_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(tensors: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    folder = WeightFolder(tmp_path / "rlsys-versions-x")
    with pytest.raises(RuntimeError, match="os error 28"):
        send(folder, 1, torch.zeros(4))  # for another reason: there is room
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=15))
    with pytest.raises(RunFailed, match=r"rlsys-versions-x/v000002 has 0 MB free, .*set cluster\.weights_dir"):
        send(folder, 2, torch.zeros(4))
    assert not list(tmp_path.rglob("*.tmp"))


def test_every_node_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Also where two of them see the same disk."""
    opened = WeightFolder.open("owner", str(tmp_path))
    assert opened.folder == tmp_path / "rlsys-versions-owner"
    first, second = opened.on_node("a" * 56), opened.on_node("b" * 56)
    published = send(first, 4, torch.ones(2))
    assert second.here(published).places == (
        f"{tmp_path}/rlsys-versions-owner-{'b' * 12}/v000004/bucket-000.safetensors",
    )
    assert first.here(published) == published


def test_a_models_weights_go_from_the_learners_export_to_the_engines_loader(tmp_path: Path) -> None:
    config = Qwen3Config(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
    )  # fmt: skip
    model, folder = Qwen3ForCausalLM(config), WeightFolder(tmp_path)
    options = {"num_ranks": NUM_RANKS, "bucket_bytes": 10_000}
    published = join_manifests([export_version(model, folder, 1, rank=rank, **options) for rank in range(NUM_RANKS)])
    received = dict(ReloadExtension().rl_tensors(asdict(published)))
    expected = model.state_dict()
    assert len(published.places) > NUM_RANKS and published.tensors == len(expected) == len(received)
    assert all(torch.equal(received[name], tensor) for name, tensor in expected.items())


def test_the_key_of_the_channel_takes_its_one_value_for_the_whole_run() -> None:
    assert compose("quickstart", ["weights.channel=shm"]).recipe.weights.channel == "shm"
    with refused("weights.channel", found="pickled"):
        compose("quickstart", ["weights.channel=pickled"])
    with refused(where="stages.rl", says="weights holds for the whole run"):
        compose("quickstart", ["stages.rl.weights.channel=shm"])
