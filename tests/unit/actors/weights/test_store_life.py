"""A weight store from its start to its end, two of which bring a part from one node's folder to another's."""

from __future__ import annotations

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
    for version in (1, 2):
        (tmp_path / "a" / f"v{version:06d}").mkdir(parents=True)
        (tmp_path / "b" / f"v{version:06d}").mkdir(parents=True)
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
