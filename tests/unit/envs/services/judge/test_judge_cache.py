"""Where a judge's answers lie decides how SQLite may write them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.services.judge.judge import Cache, file_system

MOUNTS = [("/", "ext4"), ("/shared", "nfs4"), ("/shared/scratch", "lustre"), ("/sharedish", "xfs")]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/home/me/judge.sqlite", "ext4"),
        ("/shared/runs/judge.sqlite", "nfs4"),
        ("/shared/scratch/judge.sqlite", "lustre"),
        ("/sharedish/judge.sqlite", "xfs"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(monkeypatch: pytest.MonkeyPatch, file: str, kind: str) -> None:
    mounts = [SimpleNamespace(mountpoint=mount, fstype=fstype) for mount, fstype in MOUNTS]
    monkeypatch.setattr("psutil.disk_partitions", lambda all: mounts)
    assert file_system(file) == kind


@pytest.mark.parametrize(("kind", "mode"), [("ext4", "wal"), ("nfs4", "truncate"), ("", "truncate")])
def test_nodes_that_share_a_file_share_no_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, mode: str
) -> None:
    monkeypatch.setattr("envs.services.judge.judge.file_system", lambda file: kind)
    file = str(tmp_path / "judge.sqlite")

    async def story() -> str:
        cache = Cache(0, file)
        await cache.put("question", "YES")
        with sqlite3.connect(file) as other:
            journal = other.execute("PRAGMA journal_mode").fetchone()[0]
        assert await cache.get("question") == "YES"
        await cache.close()
        return str(journal)

    # A log is written in the file's head; without one every opener starts with the default, a journal.
    assert (asyncio.run(story()) == "wal") == (mode == "wal")
