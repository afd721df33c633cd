"""Folders are bounded in number, have plain names, and become an archive without secrets."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from launch.checks.shareable import Hider
from launch.driver.incidents.facts import Facts, write_facts
from launch.driver.incidents.folder import find_folder, folder_name, list_folders, make_folder, write_bundle
from rlsys.errors import BadInput


def made(run: Path, at: float, who: str = "rollout:0", keep: int = 3) -> Path:
    folder = make_folder(run, int(at), "lost", who, keep)
    write_facts(folder, Facts(kind="lost", who=who, text="t", time=at))
    return folder


def test_the_oldest_go_and_names_are_plain(tmp_path: Path) -> None:
    for at in range(6):
        made(tmp_path, float(at))
    assert [incident.name for incident in list_folders(tmp_path)] == [f"00000{at}-lost-rollout-0" for at in (3, 4, 5)]
    assert folder_name(7, "stall", "../../etc/x y") == "000007-stall-etc-x-y"
    assert made(tmp_path, 5.0).name == "000005-lost-rollout-0-2"


def test_one_is_found_by_the_beginning_of_its_name(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no incident"):
        find_folder(tmp_path, None)
    first, second = made(tmp_path, 1.0), made(tmp_path, 2.0)
    assert find_folder(tmp_path, None) == second and find_folder(tmp_path, "000001") == first
    for name in ("00000", "000009", "../x"):
        with pytest.raises(BadInput, match="such incident"):
            find_folder(tmp_path, name)


def test_a_bundle_has_all_files_without_secrets(tmp_path: Path) -> None:
    folder, target = made(tmp_path, 1.0), tmp_path / "b.tar.gz"
    (folder / "logs").mkdir()
    (folder / "logs" / "a.out").write_text("token=planted-0123\nline 2\n")
    (folder / "logs" / "link").symlink_to("/etc/passwd")
    write_bundle(folder, target, Hider(["planted-0123"]))
    with tarfile.open(target) as archive:
        assert sorted(archive.getnames()) == [f"{folder.name}/incident.json", f"{folder.name}/logs/a.out"]
        member = archive.extractfile(f"{folder.name}/logs/a.out")
        assert member is not None and member.read() == b"token=***\nline 2\n"
