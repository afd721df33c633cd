"""Unit tests start no Ray: a command that is refused too late fails its test at once, instead of training."""

from __future__ import annotations

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
