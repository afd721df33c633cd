"""What one node gives away and another fetches: whole files, with the run's token, and nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.weights.store import NodeWeightStore
from actors.weights.transfer import CHUNK_BYTES, FlightTransfer, SourceFailed
from rlsys.system.weight_folder import Part, WeightFolder, WeightManifest, digest_of

NAME = "v000001/bucket-000.safetensors"


@pytest.fixture
def transfers(tmp_path: Path) -> Iterator[dict[str, FlightTransfer]]:
    flights = {name: FlightTransfer(tmp_path / name, "127.0.0.1", "secret") for name in ("one", "two")}
    (tmp_path / "one" / "v000001").mkdir(parents=True)
    (tmp_path / "two" / "v000001").mkdir(parents=True)
    yield flights
    for transfer in flights.values():
        transfer.close()


def written(folder: Path, content: bytes, name: str = NAME) -> tuple[int, int]:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return digest_of(folder / name)


def test_a_file_arrives_byte_for_byte_under_its_name(
    transfers: dict[str, FlightTransfer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not through a proxy that the cluster has for the world outside."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    content = bytes(range(256)) * (CHUNK_BYTES // 128) + b"odd"  # two chunks and a rest
    size, digest = written(tmp_path / "one", content)
    transfers["two"].fetch(transfers["one"].address, NAME, size, digest, 20)
    assert (tmp_path / "two" / NAME).read_bytes() == content
    assert [path.name for path in (tmp_path / "two/v000001").iterdir()] == ["bucket-000.safetensors"]


def test_other_bytes_than_the_rank_wrote_are_refused(transfers: dict[str, FlightTransfer], tmp_path: Path) -> None:
    size, digest = written(tmp_path / "one", b"as it was written")
    for now in (b"as it was wrItten", b"cut"):
        written(tmp_path / "one", now)
        with pytest.raises(SourceFailed, match=rf"{NAME} from grpc.* are \(.*\), expected \({size}, {digest}\)"):
            transfers["two"].fetch(transfers["one"].address, NAME, size, digest, 20)
    assert list((tmp_path / "two/v000001").iterdir()) == []


def test_nothing_is_given_to_a_wrong_token(transfers: dict[str, FlightTransfer], tmp_path: Path) -> None:
    size, digest = written(tmp_path / "one", b"weights")
    stranger = FlightTransfer(tmp_path / "two", "127.0.0.1", "another")
    with pytest.raises(SourceFailed, match="a wrong token"):
        stranger.fetch(transfers["one"].address, NAME, size, digest, 20)
    stranger.close()


@pytest.mark.parametrize("name", ["v000001/../../secret.safetensors", "v000001/.bucket-000.safetensors.tmp", "secret"])
def test_nothing_but_whole_parts_is_given_away(transfers: dict[str, FlightTransfer], tmp_path: Path, name: str) -> None:
    size, digest = written(tmp_path / "one", b"weights", name)
    with pytest.raises(SourceFailed, match="no such part"):
        transfers["two"].fetch(transfers["one"].address, name, size, digest, 20)


def test_a_source_that_is_gone_is_its_failure_and_a_full_disk_is_not(
    transfers: dict[str, FlightTransfer], tmp_path: Path
) -> None:
    size, digest = written(tmp_path / "one", b"weights")
    with pytest.raises(SourceFailed, match="no such part"):
        transfers["two"].fetch(transfers["one"].address, "v000002/bucket-000.safetensors", size, digest, 20)
    address = transfers["one"].address
    transfers["one"].close()
    with pytest.raises(SourceFailed):
        transfers["two"].fetch(address, NAME, size, digest, 20)
    (tmp_path / "two").chmod(0o700)
    (tmp_path / "file").write_text("")
    nowhere = FlightTransfer(tmp_path / "file", "127.0.0.1", "secret")
    with pytest.raises(NotADirectoryError):
        nowhere.fetch(address, NAME, size, digest, 20)
    nowhere.close()


def test_a_fetch_that_comes_after_the_end_leaves_nothing(transfers: dict[str, FlightTransfer], tmp_path: Path) -> None:
    """A store may be told to stop while another thread of it fetches."""
    size, digest = written(tmp_path / "one", b"weights")
    WeightFolder(tmp_path / "two", "n2").close()
    with pytest.raises(FileNotFoundError):
        transfers["two"].fetch(transfers["one"].address, NAME, size, digest, 20)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
    WeightFolder(tmp_path / "two", "n2").close()  # twice is once


def test_a_store_finds_what_is_whole_and_keeps_one_version(tmp_path: Path) -> None:
    """What an earlier process brought is looked at byte by byte; what a rank of this node wrote is taken as it is."""
    folder = WeightFolder(tmp_path, "n1")
    contents = {"bucket-000.safetensors": b"own", "bucket-001.safetensors": b"brought", "bucket-002.safetensors": b"no"}
    parts = []
    for name, content in contents.items():
        size, digest = written(tmp_path, content, f"v000007/{name}")
        parts.append(Part(name=name, bytes=size, digest=digest, node="n1" if content == b"own" else "n2"))
    (tmp_path / "v000007/bucket-002.safetensors").unlink()
    published = WeightManifest(version=7, parts=tuple(parts))
    assert NodeWeightStore(folder).list_present(published) == [0, 1]
    (tmp_path / "v000007/bucket-001.safetensors").write_bytes(b"damaged")
    store = NodeWeightStore(folder)
    assert store.list_present(published) == [0]
    for version in ("v000006", "v-00001"):
        (tmp_path / version).mkdir()
    store.keep(7)
    assert [path.name for path in tmp_path.iterdir()] == ["v000007"]
