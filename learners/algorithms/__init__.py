"""The algorithms: one small file each, torch only. A new one is one file and one line of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from learners.algorithms.base import Algorithm
from learners.algorithms.grpo import GRPO, GRPOConfig
from learners.algorithms.sft import SFT, SFTConfig
from rlsys.errors import BadInput

# algorithm.name -> its configuration, and what is built from it
ALGORITHMS: dict[str, tuple[type, Callable[[Any], Algorithm]]] = {
    "grpo": (GRPOConfig, GRPO),
    "sft": (SFTConfig, SFT),
}


def make_algorithm(config: Any) -> Algorithm:
    """The algorithm that `config.name` picks. Raises BadInput for a name or a configuration that does not fit."""
    name = getattr(config, "name", None)
    entry = ALGORITHMS.get(name) if isinstance(name, str) else None
    if entry is None:
        raise BadInput(f"algorithm.name={name!r}: expected one of {', '.join(ALGORITHMS)}")
    config_class, build = entry
    if not isinstance(config, config_class):
        raise BadInput(f"algorithm.name={name!r} in a {type(config).__name__}: expected a {config_class.__name__}")
    return build(config)


algorithm = make_algorithm  # for a caller that has no variable of this name
