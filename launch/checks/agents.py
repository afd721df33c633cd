"""Where agents cannot play, and whether one can be played at all."""

from __future__ import annotations

import asyncio
from typing import Any

from envs import make_world
from envs.mixture import parts_of
from rlsys.errors import BadInput


def try_agents(env: Any) -> None:
    """Each is started on a task, and ends when it asks. Raises BadInput for one that cannot be started."""
    for part in parts_of(env):
        if part.name == "agent":
            asyncio.run(make_world(part).check())


def refuse_agents(env: Any) -> None:
    """Raises BadInput for the config of an environment that agents play."""
    if any(part.name == "agent" for part in parts_of(env)):
        expected = "another with generate.teacher: what an agent offers, and where it stops, stand in no record"
        raise BadInput(key="env.name", found="agent", expected=expected)
