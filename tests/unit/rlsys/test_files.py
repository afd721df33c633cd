"""Files that are compressed, and what nobody could read to its end."""

import gzip
import os
from pathlib import Path

from rlsys.files import is_there, unpacked


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_compressed_file_is_unpacked_once_as_long_as_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"one\n"))
    first, before = unpacked(path), descriptors()
    assert all(unpacked(path) == first for _ in range(3)) and descriptors() == before
    assert first.read_bytes() == b"one\n"
    path.write_bytes(gzip.compress(b"two lines\n"))
    assert unpacked(path).read_bytes() == b"two lines\n" and first.read_bytes() == b"one\n"


def test_a_link_to_nothing_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert not is_there(tmp_path / "link") and is_there(tmp_path)
