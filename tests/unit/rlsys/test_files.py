"""Files that are compressed, what nobody could read to its end, and folders that come and go whole."""

import gzip
import os
import shutil
from pathlib import Path

import pytest

from rlsys.files import REMOVED, is_there, link_or_copy, remove_tree, rename_synced, unpack


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_compressed_file_is_unpacked_once_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    plain = tmp_path / "a.jsonl"
    plain.write_bytes(b"one\n")
    assert unpack(plain) == plain
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    first, before = unpack(path), descriptors()
    assert all(unpack(path) == first for _ in range(3)) and descriptors() == before
    assert first.read_bytes() == b"one\n"
    path.write_bytes(gzip.compress(b"two lines\n"))
    assert unpack(path).read_bytes() == b"two lines\n" and first.read_bytes() == b"one\n"


def test_a_link_to_nothing_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert not is_there(tmp_path / "link") and is_there(tmp_path)


def test_a_second_name_takes_no_room_where_the_disk_has_links_and_is_a_copy_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    source, (linked, copied) = tmp_path / "weights", (tmp_path / name for name in ("linked", "copied"))
    source.write_bytes(b"12")
    (tmp_path / "alias").symlink_to(source)
    assert link_or_copy(tmp_path / "alias", linked) == str(linked)
    monkeypatch.setattr(os, "link", refuse)
    link_or_copy(source, copied)
    assert linked.samefile(source) and not linked.is_symlink()
    assert copied.read_bytes() == b"12" and not copied.samefile(source)


def test_a_folder_is_on_the_disk_before_it_has_its_name_and_its_name_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, final = tmp_path / "draft", tmp_path / "final"
    (draft / "below").mkdir(parents=True)
    (draft / "one").write_bytes(b"1")
    (draft / "below" / "two").write_bytes(b"2")
    synced: list[tuple[Path, bool]] = []  # what, and whether it had its name by then
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append((Path(f"/proc/self/fd/{file}").resolve(), final.exists()))
    )
    assert rename_synced(draft, final) == final
    before = {draft, draft / "one", draft / "below", draft / "below" / "two"}
    assert {path for path, named in synced if not named} == before
    assert synced[-1] == (tmp_path, True) and len(synced) == len(before) + 1
    assert (final / "below" / "two").read_bytes() == b"2"


def test_a_folder_that_is_removed_is_gone_under_its_name_before_a_file_of_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle, and then once more with what the kill left."""
    folder, remove = tmp_path / "step-000001", shutil.rmtree

    def die(path: Path, **how: bool) -> None:
        if not how:
            assert not folder.exists()
            raise KeyboardInterrupt
        remove(path, **how)

    for _ in range(2):
        folder.mkdir()
        (folder / "file").touch()
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(shutil, "rmtree", die)
            remove_tree(folder)
        assert [path.name for path in tmp_path.iterdir()] == [f"{REMOVED}step-000001"]
