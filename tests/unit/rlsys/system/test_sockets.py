"""vLLM's sockets: in a folder that a stopped engine removes, or whoever finds its run dead; their paths are short."""

import os
import tempfile
from pathlib import Path

import pytest

from rlsys.system import sockets


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sockets, "LONGEST", 1000)  # pytest's own folders are long
    monkeypatch.setenv("RLSYS_OWNER", "here:1:2")
    monkeypatch.setenv(sockets.BASE, "set so that it is put back")
    monkeypatch.delenv(sockets.BASE)
    return tmp_path


def test_each_engine_has_a_folder_that_goes_with_its_owner(temporary: Path) -> None:
    first, second = sockets.make(), sockets.make()  # the second after a restart in the same process
    assert first is not None and second is not None and first != second and first.parent == temporary
    assert first.stat().st_mode & 0o777 == 0o700
    (first / "0a1b").touch()
    (temporary / "rlsys-sockets-made-a-moment-ago").mkdir()  # whose owner is about to be written
    sockets.remove(lambda owner: owner == "elsewhere:1:2")
    assert first.exists() and second.exists()
    sockets.remove(lambda owner: owner == "here:1:2")
    assert [path.name for path in temporary.iterdir()] == ["rlsys-sockets-made-a-moment-ago"]


def test_what_is_no_folder_of_ours_is_passed_over(temporary: Path) -> None:
    ours = sockets.make()
    assert ours is not None
    folders = [temporary / f"rlsys-sockets-{name}" for name in ("bytes", "pipe", "folder", "link", "file")]
    for folder in folders[:4]:
        folder.mkdir()
    (folders[0] / "owner").write_bytes(b"\xff\xfe")
    os.mkfifo(folders[1] / "owner")
    (folders[2] / "owner").mkdir()
    (folders[3] / "owner").symlink_to(ours / "owner")
    folders[4].touch()
    sockets.remove("here:1:2".__eq__)
    assert sorted(temporary.iterdir()) == sorted(folders)


def test_a_folder_of_another_user_is_passed_over(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    ours = sockets.make()
    assert ours is not None
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    sockets.remove(lambda owner: True)
    assert ours.exists()


def test_a_folder_that_a_person_has_named_is_left_to_them(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setenv(sockets.BASE, "/scratch/mine")
    assert sockets.make() is None and not list(temporary.iterdir())


@pytest.mark.parametrize(("length", "fits"), [(30, True), (47, True), (48, False), (200, False)])
def test_a_sockets_path_is_one_that_the_kernel_takes(monkeypatch: pytest.MonkeyPatch, length: int, fits: bool) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", "/" + "t" * (length - 1))
    assert (sockets.root() == Path(tempfile.gettempdir())) == fits
    assert len(str(sockets.root() / f"{sockets.PREFIX}12345678" / ("u" * 36))) <= 107
