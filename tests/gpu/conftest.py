"""What a first hour on a machine with GPUs runs: `make gpu`. The tests of tests/e2e again, with CUDA for the device."""

import os
from collections.abc import Iterator

import pytest

from tests import device


@pytest.fixture(autouse=True, scope="module")
def on_gpus() -> Iterator[None]:
    os.environ[device.VARIABLE] = "cuda"
    yield
    del os.environ[device.VARIABLE]
