"""Where agents cannot play, and whether one can be played at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from envs import make_world
from envs.mixture import parts_of
from rlsys.config.identity import config_key
from rlsys.errors import BadInput


def try_agents(envs: Iterable[Any]) -> None:
    """Each is started once, on a task, and ends when it asks. Raises BadInput for one that cannot be started."""
    agents = {config_key(part): part for env in envs for part in parts_of(env) if part.name == "agent"}
    for agent in agents.values():
        asyncio.run(make_world(agent).check())


def refuse_agents(env: Any) -> None:
    """Raises BadInput for the config of an environment that agents play."""
    if any(part.name == "agent" for part in parts_of(env)):
        expected = "another with generate.teacher: what an agent offers, and where it stops, stand in no record"
        raise BadInput(key="env.name", found="agent", expected=expected)
