"""What a process of the sandbox may take, before it runs anything."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from envs.tools.sandbox.jail import setup
from tests.unit.envs.tools.sandbox.test_frames import LIMITS


@pytest.mark.parametrize("weaker", [False, True])
def test_limits_reach_the_kernel(weaker: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are counted for a user: without a user of its own that would be all of the machine's."""
    taken: dict[int, tuple[int, int]] = {}
    hard = {resource.RLIMIT_FSIZE: 100}
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (0, hard.get(limit, resource.RLIM_INFINITY)))
    monkeypatch.setattr(resource, "setrlimit", taken.__setitem__)
    setup.limit_resources(replace(LIMITS, weaker=weaker), base_bytes=1000)
    assert taken[resource.RLIMIT_AS] == (1000 + 64 * 2**20,) * 2
    assert taken[resource.RLIMIT_FSIZE] == (100, 100)  # never more than it was
    assert all(taken[limit] == (0, 0) for limit in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK))
    assert taken.get(resource.RLIMIT_NPROC) == (None if weaker else (LIMITS.processes + 2,) * 2)
