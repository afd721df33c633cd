"""What the tests with real parts compute on: a CPU, or in tests/gpu the same tests on GPUs."""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from _pytest.fixtures import FixtureFunctionDefinition

from rlsys.system.device import DEVICES, Device

VARIABLE = "RLSYS_TEST_DEVICE"  # inherited by every process that a test starts
RAY_CPUS = 16  # of a cluster that a test starts: Ray keeps an actor that asks for more pending, and says nothing


def name() -> str:
    return os.environ.get(VARIABLE, "cpu")


def device() -> Device:
    return DEVICES[name()]


@cache
def no_gpu() -> str | None:
    """Why nothing can be computed on a GPU here, in one line."""
    import torch

    from launch.checks import machine

    try:
        torch.zeros(1, device="cuda")
    except (AssertionError, RuntimeError) as error:
        message = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return machine.cuda_unusable() or f"no CUDA: {message} (CUDA_VISIBLE_DEVICES={visible})"
    return None


def need_gpus(count: int) -> None:
    """Skips a test that is run on GPUs and has fewer."""
    import torch

    if name() == "cuda" and torch.cuda.device_count() < count:
        pytest.skip(f"needs {count} GPUs: this machine has {torch.cuda.device_count()}")


def same_tests(module: ModuleType, *names: str) -> dict[str, Any]:
    """The tests of another module, all or those named, and its fixtures: for `globals().update` in tests/gpu."""
    tests = {key: test for key, test in vars(module).items() if key.startswith("test_") and (key in names or not names)}
    assert tests.keys() >= set(names), set(names) - tests.keys()
    return tests | {key: entry for key, entry in vars(module).items() if isinstance(entry, FixtureFunctionDefinition)}
