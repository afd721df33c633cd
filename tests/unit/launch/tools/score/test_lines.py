"""A file of lines is read as it is, or as what gzip made of it."""

import gzip
from pathlib import Path

import pytest

from launch.tools.score.lines import CHUNK, LineReader
from tests.refused import refused

LINES = b"".join(b'{"line": %d, "padding": "%s"}\n' % (number, b"x" * (number % 700)) for number in range(1, 900))


def lines_of(path: Path) -> list[tuple[int, bytes | None]]:
    reader = LineReader(str(path))
    try:
        return [line for line in reader if line is not None]
    finally:
        reader.close()


def test_what_is_compressed_has_the_same_lines(tmp_path: Path) -> None:
    plain, packed, parts = (tmp_path / name for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl.gz"))
    assert len(LINES) > 4 * CHUNK
    plain.write_bytes(LINES)
    packed.write_bytes(gzip.compress(LINES))
    cut = len(LINES) // 3
    parts.write_bytes(gzip.compress(LINES[:cut]) + gzip.compress(LINES[cut:]))  # as `cat a.gz b.gz` makes it
    assert lines_of(packed) == lines_of(parts) == lines_of(plain)
    assert len(lines_of(plain)) == 899


@pytest.mark.parametrize("damage", [lambda whole: whole[:-20], lambda whole: whole[:300] + b"\0" * 50 + whole[350:]])
def test_what_is_damaged_says_so(tmp_path: Path, damage) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(damage(gzip.compress(LINES)))
    with refused("--input", says="a.jsonl.gz: compressed, and"):
        lines_of(path)
