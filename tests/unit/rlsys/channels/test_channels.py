"""A version arrives as it was sent through every channel; a new channel is one file and one line of the table."""

import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from actors.engine import ReloadExtension
from launch.config.compose import compose
from learners.export import export_version
from rlsys.channels import CHANNELS, open_channel, receiver, remove_stale
from rlsys.channels.base import Published, WeightsRejected, joined
from rlsys.channels.shm import PREFIX, SharedMemory
from rlsys.errors import BadInput
from tests.pickled_channel import Pickled

NUM_RANKS = 2


@pytest.fixture(params=[SharedMemory, Pickled])
def channel(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path / "channel")


def send(channel: Any, version: int, *tensors: torch.Tensor) -> Published:
    buckets = [lambda index=index, tensor=tensor: {f"w{index}": tensor} for index, tensor in enumerate(tensors)]
    channel = pickle.loads(pickle.dumps(channel))  # as on its way to a rank
    return joined([channel.send(version, buckets, rank, NUM_RANKS) for rank in range(NUM_RANKS)])


def test_what_all_ranks_sent_is_received_whole_with_its_count_and_size(channel: Any) -> None:
    tensors = [torch.arange(6.0).view(2, 3), torch.tensor([7], dtype=torch.bfloat16), torch.zeros(4)]
    published = send(channel, 17, *tensors)
    assert (published.version, published.tensors, published.bytes) == (17, 3, 6 * 4 + 2 + 4 * 4)
    receiver(published).check(published)
    received = dict(receiver(published).receive(published))
    assert received.keys() == {"w0", "w1", "w2"}
    assert all(torch.equal(received[f"w{index}"], tensor) for index, tensor in enumerate(tensors))


def test_the_newest_version_and_the_one_before_it_stay_and_nothing_after_the_end(channel: Any) -> None:
    versions = []
    for version in (1, 2, 3):
        versions.append(send(channel, version, torch.ones(2)))
        channel.forget(version)
    for kept in versions[1:]:
        receiver(kept).check(kept)
    with pytest.raises(WeightsRejected):
        receiver(versions[0]).check(versions[0])
    channel.close()
    channel.close()
    with pytest.raises(WeightsRejected):
        receiver(versions[2]).check(versions[2])
    assert not channel.folder.exists()


def test_a_version_under_another_number_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    published = replace(send(SharedMemory(tmp_path), 900, torch.ones(2)), version=901)
    with pytest.raises(WeightsRejected, match="v000900: holds version 900, expected 901"):
        SharedMemory.check(published)


def test_what_dead_owners_left_in_memory_is_removed_and_the_live_one_kept() -> None:
    live, dead = (open_channel("shm", f"test-{name}-{torch.seed()}") for name in ("live", "dead"))
    assert isinstance(live, SharedMemory) and isinstance(dead, SharedMemory)
    for each in (live, dead):
        assert not each.folder.exists()
        send(each, 1, torch.ones(2))
    try:
        remove_stale(lambda owner: f"{PREFIX}{owner}" == dead.folder.name)
        assert live.folder.is_dir() and not dead.folder.exists()
    finally:
        live.close()


def test_a_new_channel_is_one_line_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chosen by its name, it carries a model's weights from the learner's export to the engine's loader."""
    with pytest.raises(BadInput, match="weights.channel='pickled': expected one of shm"):
        compose("quickstart", ["weights.channel=pickled"])
    monkeypatch.setitem(CHANNELS, "pickled", "tests.pickled_channel.Pickled")  # type: ignore[arg-type]
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    chosen = compose("quickstart", ["weights.channel=pickled"]).recipe.weights.channel
    config = Qwen3Config(
        vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
    )  # fmt: skip
    model, channel = Qwen3ForCausalLM(config), open_channel(chosen, "test")
    each = {"num_ranks": NUM_RANKS, "bucket_bytes": 10_000}
    published = joined([export_version(model, channel, 1, rank=rank, **each) for rank in range(NUM_RANKS)])
    received = dict(ReloadExtension().rl_tensors(asdict(published)))
    expected = model.state_dict()
    assert len(published.places) > NUM_RANKS and published.tensors == len(expected) == len(received)
    assert all(torch.equal(received[name], tensor) for name, tensor in expected.items())


def test_a_channel_holds_for_the_whole_run() -> None:
    with pytest.raises(BadInput, match="stages.rl: weights holds for the whole run"):
        compose("quickstart", ["stages.rl.weights.channel=shm"])
