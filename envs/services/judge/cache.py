"""What the judge said, by content: in memory, and in a SQLite file that several processes and runs share."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
from cachetools import LRUCache

from rlsys.errors import BadInput

log = logging.getLogger(__name__)

BUSY_S = 10.0  # for another process's write to end
# Of these, all who open a file share a kernel.
LOCAL = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay")


class Cache:
    """Least recently used out first, of the memory only. A file that breaks is given up with a warning, not scoring."""

    def __init__(self, size: int, file: str | None = None) -> None:
        """Raises BadInput for a file that cannot be used."""
        self._texts: LRUCache[str, str] = LRUCache(size)
        self._file = file
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="judge-cache")
        self._disk = self._open(file) if file is not None else None

    async def get(self, key: str) -> str | None:
        known: str | None = self._texts.get(key)
        if known is not None:
            return known
        text = await self._on_disk("SELECT text FROM answers WHERE key = ?", key)
        if text is not None:
            self._remember(key, text)
        return text

    async def put(self, key: str, text: str) -> None:
        self._remember(key, text)
        await self._on_disk("INSERT OR REPLACE INTO answers VALUES (?, ?)", key, text)

    async def close(self) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, disk.close)
        self._thread.shutdown(wait=False)

    def _remember(self, key: str, text: str) -> None:
        with suppress(ValueError):  # a size of 0 keeps none
            self._texts[key] = text

    def _open(self, file: str) -> sqlite3.Connection:
        try:
            Path(file).resolve().parent.mkdir(parents=True, exist_ok=True)
            disk = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            disk.execute(f"PRAGMA journal_mode={journal_mode(file_system(file))}")
            disk.execute("PRAGMA synchronous=NORMAL")
            disk.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, text TEXT NOT NULL)")
        except (sqlite3.Error, OSError) as error:
            raise BadInput(error, key="judge.cache_file", found=file, expected="a SQLite file, or none yet") from error
        return disk

    async def _on_disk(self, statement: str, *values: str) -> str | None:
        if self._disk is None:
            return None
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._execute, statement, values)

    def _execute(self, statement: str, values: tuple[str, ...]) -> str | None:
        if self._disk is None:
            return None
        try:
            row = self._disk.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            log.warning("the judge's cache %s is not used any more: %s", self._file, error)
            self._disk = None
            return None
        return str(row[0]) if row else None


def journal_mode(system: str) -> str:
    """By file system. SQLite's write-ahead log is 200 times as fast, and needs memory that all who open the file share:
    no two nodes do.
    """
    return "WAL" if system in LOCAL else "TRUNCATE"


def file_system(file: str) -> str:
    """The type of the one that a file lies on, or will lie on: "ext4", "nfs4"; "" where nobody knows."""
    mounts = [(each.mountpoint, each.fstype) for each in psutil.disk_partitions(all=True)]
    folder = Path(file).resolve().parent
    around = [(mount, kind) for mount, kind in mounts if folder.is_relative_to(mount)]
    return max(around, key=lambda found: len(found[0]), default=("", ""))[1]
