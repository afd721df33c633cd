"""What a run is made of: the lock it was installed from, the source, the cards."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.checks.hardware import Machine, look_at_machine
from launch.checks.software import closest_lock, describe_software, read_lock, source_digest
from rlsys.system.card_memory import read_cards


def test_the_lock_is_the_one_that_differs_least() -> None:
    locks = {
        "cpu.txt": read_lock("# comment\ntorch==2.13.0+cpu\nRay_X==2.60.0  # why\nmissing==1.0\n"),
        "gpu.txt": read_lock("torch==2.13.0\nray.x==2.60.0\nnvidia==1\nother==3\n"),
    }
    installed = {"torch": "2.13.0+cpu", "ray-x": "2.59.0", "more": "9"}
    name, differs = closest_lock(locks, installed)
    assert name == "cpu.txt"
    assert differs == {"ray-x": ("2.60.0", "2.59.0"), "missing": ("1.0", None)}
    assert closest_lock({}, installed) == (None, {})


def test_what_differs_is_told_apart_from_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launch.checks.software.installed_packages", dict)
    report = describe_software()
    assert report["differs"]["torch"] == [f"{report['packages']['torch']} (lock)", None]


def test_a_checkout_has_a_commit_and_anything_else_a_digest_of_its_source(tmp_path: Path) -> None:
    software = describe_software()
    assert (software["commit"] is None) != (software["source"] is None)
    assert software["packages"]["torch"] and software["lock"]["file"] in ("cpu.txt", "gpu.txt")
    (tmp_path / "rlsys").mkdir()
    (tmp_path / "rlsys" / "a.py").write_text("x = 1\n")
    before = source_digest(tmp_path)
    (tmp_path / "rlsys" / "__pycache__").mkdir()
    (tmp_path / "rlsys" / "__pycache__" / "a.pyc").write_text("1")
    assert source_digest(tmp_path) == before
    (tmp_path / "rlsys" / "a.py").write_text("x = 2\n")
    assert source_digest(tmp_path) != before


def test_cards_as_the_driver_lists_them() -> None:
    line = "0, GPU-aa, NVIDIA A100-SXM4-80GB, 81920, 541, 4, Disabled, 580.65.06, 0\n"
    node = Machine(cores=96, memory=2 * 10**12, cards=tuple(read_cards(line * 8, "")))
    gpus = {"name": "NVIDIA A100-SXM4-80GB", "count": 8, "memory_gb": 85.9, "driver": "580.65.06"}
    assert node.describe() == {"cores": 96, "memory_gb": 2000.0, "gpus": gpus}
    assert Machine(cores=1, memory=1, cards=tuple(read_cards("NVIDIA-SMI has failed\n", ""))).describe()["gpus"] is None
    here = look_at_machine()
    assert here.cores >= 1 and here.memory > 0
