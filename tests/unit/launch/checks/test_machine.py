"""Why GPUs cannot be used is one line with both versions in it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from launch.checks import gpu_plan, machine
from rlsys.config.cluster import ClusterConfig
from rlsys.system.card_memory import Card
from rlsys.system.cards import VISIBLE
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
    explanation = machine.explain_cuda("2.13.0", built_for, known, release)
    assert explanation is not None and "\n" not in explanation
    for part in parts:
        assert part in explanation


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


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Card], int, str], None]]:
    """A machine: the cards that NVIDIA's tool knows, how many torch counts, and what CUDA's process prints."""

    def set_machine(cards: list[Card], count: int, said: str) -> None:
        machine.first_card.cache_clear()
        monkeypatch.setattr(machine, "cards_of_machine", lambda: cards)
        for module in (machine, gpu_plan):
            monkeypatch.setattr(module, "local_gpus", lambda: count)
        monkeypatch.setattr(machine, "ASK_CUDA", f"print({said!r})")

    monkeypatch.delenv(VISIBLE, raising=False)
    yield set_machine
    machine.first_card.cache_clear()


def test_the_size_of_a_card_is_asked_once_and_never_guessed_where_there_is_one(
    ask: Callable[[list[Card], int, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """81,008 MiB are 84.9 GB; an instance of the card has 9.75 GiB, 10.5 GB, and only CUDA says so."""
    whole = Card("0", "GPU-aa", "H100", 81008, 0)
    usual = ClusterConfig()
    ask([whole], 1, "")
    assert gpu_plan.card_gb(usual) == 84.9
    monkeypatch.setattr(machine, "cards_of_machine", list)
    assert gpu_plan.card_gb(usual) == 84.9  # the tool is not started again
    for cards in ([replace(whole, parted=True)], []):
        ask(cards, 1, f"{int(9.75 * 2**30)} H100 MIG 1g.10gb")
        assert gpu_plan.card_gb(usual) == 10.5 and machine.first_card() == ("H100 MIG 1g.10gb", int(9.75 * 2**30))
    monkeypatch.setenv(VISIBLE, "MIG-1")
    ask([whole], 1, f"{int(9.75 * 2**30)} H100 MIG 1g.10gb")
    assert gpu_plan.card_gb(usual) == 10.5
    ask([], 1, "no driver")
    with refused("cluster.gpu_memory_gb"):
        gpu_plan.card_gb(usual)
    assert gpu_plan.card_gb(ClusterConfig(gpu_memory_gb=24.0)) == 24.0
    ask([], 0, "")
    assert gpu_plan.card_gb(usual) == 80.0  # a plan for another machine
