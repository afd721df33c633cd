"""Files that are compressed, and what nobody could read to its end."""

import gzip
import os
from pathlib import Path

import pytest

from rlsys.files import is_there, link_or_copy, unpack


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
