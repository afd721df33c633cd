"""Why GPUs cannot be used is one line with both versions in it."""

from pathlib import Path

import pytest

from launch.checks import machine
from tests.refused import refused

PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\nGCC: 12.3\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC: 13.2.0\n"


@pytest.mark.parametrize(
    ("built_for", "known", "release", "parts"),
    [
        (None, 13000, "580.65.06", ["torch 2.13.0 is a build for CPUs", "make setup-gpu"]),
        ("13.0", None, None, ["no NVIDIA driver", "CUDA 13.0", "580 or newer"]),
        ("13.0", None, "535.183.01", ["535.183.01", "libcuda.so.1 does not load", "580 or newer"]),
        ("13.0", 12020, "535.183.01", ["535.183.01 knows CUDA up to 12.2", "CUDA 13.0", "580 or newer"]),
        ("12.8", 11040, None, ["up to 11.4", "525 or newer"]),
        ("14.1", 13000, "580.65.06", ["up to 13.0", "CUDA 14.1"]),
    ],
)
def test_a_driver_that_does_not_know_torchs_cuda(
    built_for: str | None, known: int | None, release: str | None, parts: list[str]
) -> None:
    said = machine.explain_cuda("2.13.0", built_for, known, release)
    assert said is not None and "\n" not in said
    for part in parts:
        assert part in said


@pytest.mark.parametrize("known", [13000, 13010, 14000])
def test_a_driver_that_does(known: int) -> None:
    assert machine.explain_cuda("2.13.0", "13.0", known, "580.65.06") is None
    assert machine.explain_cuda("2.13.0", "13.1", known, "535.183.01") is None  # a newer library beside an older module


@pytest.mark.parametrize(("text", "release"), [(PROPRIETARY, "535.183.01"), (OPEN, "580.65.06"), ("", None)])
def test_the_release_of_the_kernels_module(
    text: str, release: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "MODULE", tmp_path / "version")
    assert machine.driver_release() is None
    (tmp_path / "version").write_text(text)
    assert machine.driver_release() == release


def test_gpus_that_ray_hands_to_everybody_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "cuda_unusable", lambda: None)
    monkeypatch.setenv(machine.NOSET, "0")
    machine.check_cuda()
    monkeypatch.setenv(machine.NOSET, "1")
    with refused(says="would take GPU 0"):
        machine.check_cuda()
    monkeypatch.delenv(machine.NOSET)
    monkeypatch.setattr(machine, "cuda_unusable", lambda: "no CUDA")
    with refused(says="no CUDA"):
        machine.check_cuda()
