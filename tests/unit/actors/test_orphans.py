"""What a killed process cannot clean up."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from actors import orphans


def test_shared_memory_without_a_name_stays_with_those_who_opened_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "SHARED", tmp_path)
    ours, other = tmp_path / "vllm_dist_1-tp:0-[0-1]-cpushm_0", tmp_path / "vllm_dist_2-tp:0-[0-1]-cpushm_0"
    for path in (ours, other):
        path.write_bytes(b"shared")
    with ours.open("rb+") as file, mmap.mmap(file.fileno(), 0) as opened:
        orphans.unname("vllm_dist_1")
        orphans.unname(None)
        assert list(tmp_path.iterdir()) == [other]
        assert opened[:] == b"shared"
