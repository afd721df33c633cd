"""A weight store from its start to its end, two of which bring a part from one node's folder to another's."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import ray.util

from actors.weights.store import NodeWeightStore
from actors.weights.transfer import SourceFailed
from rlsys.system import memory
from rlsys.system.weight_folder import Part, WeightFolder, WeightManifest, digest_of


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is done about folders, in order."""
    done: list[Any] = []
    monkeypatch.setattr(ray.util, "get_node_ip_address", lambda: "127.0.0.1")
    for name in ("lock", "guard", "sweep"):
        monkeypatch.setattr(memory, name, lambda folder, name=name: done.append((name, folder)))
    return done


def test_it_takes_the_folder_over_with_what_is_of_use_and_brings_what_lacks(tmp_path: Path, held: list[Any]) -> None:
    folders = [WeightFolder(tmp_path / name, name) for name in ("a", "b")]
    for version, folder in product((1, 2), "ab"):
        (tmp_path / folder / f"v{version:06d}").mkdir(parents=True)
        os.utime(tmp_path / folder / f"v{version:06d}", (version, version))
    file = tmp_path / "a/v000002/p.safetensors"
    file.write_bytes(b"weights")
    size, digest = digest_of(file)
    published = WeightManifest(version=2, parts=(Part(name="p.safetensors", bytes=size, digest=digest, node="a"),))
    source, target = map(NodeWeightStore, folders)
    source.start(None)
    assert held == [("lock", tmp_path / "a"), ("guard", tmp_path / "a"), ("sweep", tmp_path)]
    assert len(list((tmp_path / "a").iterdir())) == 2
    target.start(2)
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["v000002"]
    try:
        address = source.serve("token")
        assert source.serve("token") == address and address.startswith("grpc://127.0.0.1:")
        target.serve("token")
        assert target.list_present(published) == []
        target.fetch(published, 0, address, 20)
        brought = tmp_path / "b/v000002/p.safetensors"
        assert brought.read_bytes() == b"weights" and target.list_present(published) == [0]
        brought.write_bytes(b"damaged")
        assert target.list_present(published) == [0]  # it brought it itself, and looks at no byte twice
        target.keep(3)
        assert target.known == set() and target.list_present(published) == []
    finally:
        source.stop()
    with pytest.raises(SourceFailed):
        target.fetch(published, 0, address, 5)
    target.stop()
    assert not (tmp_path / "a").exists() or not list((tmp_path / "a").iterdir())
    NodeWeightStore(folders[1]).stop()  # one that gave nothing away
    assert repr(source) == "weight store"


def test_a_store_that_is_started_again_keeps_what_is_newer_than_the_kept_version(
    tmp_path: Path, held: list[Any]
) -> None:
    """A version that was sent and not yet kept is what the engines that come back are waiting for."""
    versions = WeightFolder(tmp_path / "a", "a")
    for age, name in enumerate(("v-00001", "v000006", "v000007", "v000008", "v-00002")):  # a canary is numbered down
        folder = versions.folder / name
        folder.mkdir(parents=True)
        os.utime(folder, (1e9 + age, 1e9 + age))
    store = NodeWeightStore(versions)
    store.start(7)
    assert sorted(path.name for path in versions.folder.iterdir()) == ["v-00002", "v000007", "v000008"]
    versions.forget_older(9)  # of one that is not here
    assert len(list(versions.folder.iterdir())) == 3
    store.stop()
