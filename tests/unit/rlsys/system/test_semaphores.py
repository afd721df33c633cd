"""The semaphores of a run's processes say whose they are."""

import multiprocessing
from multiprocessing.synchronize import SemLock
from pathlib import Path

import pytest

from rlsys.system import semaphores


def test_a_tagged_process_names_its_semaphores_after_the_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    monkeypatch.setitem(config, "semprefix", config["semprefix"])
    monkeypatch.setenv(semaphores.VARIABLE, "a-machine.7:12:34")
    semaphores.tag_own()
    child = multiprocessing.get_context("spawn").Process()  # not started: what it is given is what counts
    assert child._config["semprefix"] == "/rlsys-a-machine.7:12:34"  # type: ignore[attr-defined]
    name = SemLock._make_name()  # type: ignore[attr-defined]
    (tmp_path / f"sem.{name.removeprefix('/')}").write_bytes(b"")  # as the system would
    monkeypatch.setattr(semaphores, "FOLDER", tmp_path)
    assert len(semaphores.find_left_behind("a-machine.7:12:34".__eq__)) == 1
    assert semaphores.find_left_behind("a-machine.7:12:3".__eq__) == []


def test_outside_of_a_run_nothing_is_renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(semaphores.VARIABLE, raising=False)
    before = dict(multiprocessing.current_process()._config)  # type: ignore[attr-defined]
    semaphores.tag_own()
    assert multiprocessing.current_process()._config == before  # type: ignore[attr-defined]
