"""A folder in memory belongs to whoever holds its lock; what nobody holds goes."""

import os
from pathlib import Path

import pytest

from rlsys.system import memory


def made(root: Path, name: str) -> Path:
    folder = root / f"{memory.PREFIX}{name}"
    (folder / "v000001").mkdir(parents=True)
    return folder


def test_a_folder_whose_lock_is_free_is_swept_and_one_that_is_held_stays(tmp_path: Path) -> None:
    held, left, other = made(tmp_path, "held"), made(tmp_path, "left"), tmp_path / "somebody-elses"
    other.mkdir()
    lock = memory.lock(held)
    assert memory.find_abandoned(tmp_path) == [left]
    memory.sweep(tmp_path)
    assert sorted(tmp_path.iterdir()) == [held, other]
    os.close(lock)
    memory.sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [other]


def test_a_lock_makes_its_folder_keeps_what_is_there_and_is_nobody_elses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "LOCK_WAIT_S", 0.0)
    folder = tmp_path / f"{memory.PREFIX}run"
    lock = memory.lock(folder)
    (folder / "v000001").mkdir()
    descriptors = os.listdir("/proc/self/fd")
    with pytest.raises(TimeoutError, match="another process has held its lock"):
        memory.lock(folder)
    assert os.listdir("/proc/self/fd") == descriptors  # who waits for long would run out of descriptors
    os.close(lock)
    os.close(memory.lock(folder))
    assert (folder / "v000001").is_dir()


def test_a_folder_that_was_removed_and_made_anew_under_a_lock_is_not_that_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making and locking it, a sweep may take it away."""
    folder, swept = tmp_path / f"{memory.PREFIX}run", []
    flock = memory.fcntl.flock

    def sweep_first(handle: int, how: int) -> None:
        if not swept:
            swept.append(folder.rmdir())
        flock(handle, how)

    monkeypatch.setattr(memory.fcntl, "flock", sweep_first)
    lock = memory.lock(folder)
    assert os.fstat(lock).st_ino == folder.stat().st_ino
    assert folder.stat().st_mode & 0o777 == 0o700
    os.close(lock)


def test_room_says_what_is_missing_and_which_key_helps(tmp_path: Path) -> None:
    assert memory.describe_no_room(tmp_path, 1) == ""
    text = memory.describe_no_room(tmp_path, 10**18)
    assert text.startswith(f"{tmp_path} has ") and "1000000000.0 GB" in text and "cluster.weights_dir" in text
    text = memory.describe_no_room(tmp_path / "missing", 1)
    assert "cannot lie there" in text and "cluster.weights_dir" in text
