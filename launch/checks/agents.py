"""Where agents cannot play."""

from __future__ import annotations

from typing import Any

from envs.mixture import parts_of
from rlsys.errors import BadInput


def refuse_agents(env: Any) -> None:
    """Raises BadInput for the config of an environment that agents play."""
    if any(part.name == "agent" for part in parts_of(env)):
        expected = "another with generate.teacher: what an agent offers, and where it stops, stand in no record"
        raise BadInput(key="env.name", found="agent", expected=expected)
