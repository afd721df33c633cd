"""What a killed process cannot clean up: semaphores and folders of sockets say whose they are, children end with it."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import signal
import tempfile
from multiprocessing.synchronize import SemLock
from pathlib import Path
from typing import Any

import pytest

from rlsys.system import orphans


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(orphans, "LONGEST", 1000)  # pytest's own folders are long
    monkeypatch.setenv("RLSYS_OWNER", "here:1:2")
    monkeypatch.setenv(orphans.BASE, "set so that it is put back")
    monkeypatch.delenv(orphans.BASE)
    return tmp_path


def test_a_tagged_process_names_its_semaphores_after_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    monkeypatch.setitem(config, "semprefix", config["semprefix"])
    monkeypatch.setenv(orphans.VARIABLE, "a-machine.7:12:34")
    orphans.tag_own()
    child = multiprocessing.get_context("spawn").Process()  # not started: what it is given is what counts
    assert child._config["semprefix"] == "/rlsys-a-machine.7:12:34"  # type: ignore[attr-defined]
    name = SemLock._make_name()  # type: ignore[attr-defined]
    (tmp_path / f"sem.{name.removeprefix('/')}").write_bytes(b"")  # as the system would
    monkeypatch.setattr(orphans, "SHARED", tmp_path)
    assert len(orphans.find_left_behind("a-machine.7:12:34".__eq__)) == 1
    assert orphans.find_left_behind("a-machine.7:12:3".__eq__) == []


def test_outside_of_a_run_nothing_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(orphans.VARIABLE, raising=False)
    before = dict(multiprocessing.current_process()._config)  # type: ignore[attr-defined]
    orphans.tag_own()
    assert multiprocessing.current_process()._config == before  # type: ignore[attr-defined]


def test_each_engine_has_a_folder_that_goes_with_its_owner(temporary: Path) -> None:
    first, second = orphans.make_sockets(), orphans.make_sockets()  # the second after a restart in the same process
    assert first is not None and second is not None and first != second and first.parent == temporary
    assert first.stat().st_mode & 0o777 == 0o700
    (first / "0a1b").touch()
    (temporary / "rlsys-sockets-made-a-moment-ago").mkdir()  # whose owner is about to be written
    orphans.remove_left_behind(lambda owner: owner == "elsewhere:1:2")
    assert first.exists() and second.exists()
    orphans.remove_left_behind(lambda owner: owner == "here:1:2")
    assert [path.name for path in temporary.iterdir()] == ["rlsys-sockets-made-a-moment-ago"]


def test_what_is_no_folder_of_ours_is_passed_over(temporary: Path) -> None:
    ours = orphans.make_sockets()
    assert ours is not None
    folders = [temporary / f"rlsys-sockets-{name}" for name in ("bytes", "pipe", "folder", "link", "file")]
    for folder in folders[:4]:
        folder.mkdir()
    (folders[0] / "owner").write_bytes(b"\xff\xfe")
    os.mkfifo(folders[1] / "owner")
    (folders[2] / "owner").mkdir()
    (folders[3] / "owner").symlink_to(ours / "owner")
    folders[4].touch()
    orphans.remove_left_behind("here:1:2".__eq__)
    assert sorted(temporary.iterdir()) == sorted(folders)


def test_a_folder_of_another_user_is_passed_over(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    ours = orphans.make_sockets()
    assert ours is not None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    orphans.remove_left_behind(lambda owner: True)
    assert ours.exists()


def test_a_folder_that_a_person_has_named_is_left_to_them(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setenv(orphans.BASE, "/scratch/mine")
    assert orphans.make_sockets() is None and not list(temporary.iterdir())


@pytest.mark.parametrize(("length", "fits"), [(30, True), (47, True), (48, False), (200, False)])
def test_a_sockets_path_is_one_that_the_kernel_takes(monkeypatch: pytest.MonkeyPatch, length: int, fits: bool) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", "/" + "t" * (length - 1))
    assert (orphans.sockets_root() == Path(tempfile.gettempdir())) == fits
    assert len(str(orphans.sockets_root() / f"{orphans.SOCKETS}12345678" / ("u" * 36))) <= 107


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
    monkeypatch.setattr(os, "kill", lambda *args: done.append(args))
    orphans.die_with(os.getppid() if parent == "lives" else -1)
    assert done == [(1, signal.SIGKILL)] + [(os.getpid(), signal.SIGKILL)] * (parent != "lives")
    Kernel.refuses = -1
    with pytest.raises(OSError, match="PR_SET_PDEATHSIG"):
        orphans.die_with(os.getppid())
