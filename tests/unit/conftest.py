"""Unit tests start no Ray: a command that is refused too late fails its test at once, instead of training."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest
import ray


@pytest.fixture(autouse=True, scope="session")
def _no_ray() -> Iterator[None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise RuntimeError("a unit test was about to start Ray")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "init", refuse)
        yield


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    """A command that ends in the tests' own process ignores signals from then on, as it would at its end; the children
    of later tests would inherit that."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
