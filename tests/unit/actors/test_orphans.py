"""What a killed process cannot clean up."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("parent", ["lives", "died before"])
def test_a_child_asks_the_kernel_for_its_end_and_ends_itself_where_that_comes_too_late(
    monkeypatch: pytest.MonkeyPatch, parent: str
) -> None:
    done: list[Any] = []

    class Kernel:
        refuses = 0

        def __init__(self, name: None, *, use_errno: bool) -> None:
            assert use_errno  # else nobody would hear why

        def prctl(self, *asked: int) -> int:
            done.append(asked)
            ctypes.set_errno(1)
            return self.refuses

    monkeypatch.setattr(ctypes, "CDLL", Kernel)
    monkeypatch.setattr(os, "kill", lambda *asked: done.append(asked))
    orphans.die_with(os.getppid() if parent == "lives" else -1)
    assert done == [(1, signal.SIGKILL)] + [(os.getpid(), signal.SIGKILL)] * (parent != "lives")
    Kernel.refuses = -1
    with pytest.raises(OSError, match="PR_SET_PDEATHSIG"):
        orphans.die_with(os.getppid())
