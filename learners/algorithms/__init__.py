"""The algorithms: one small file each, torch only. A new one is one file and one line of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlsys.choices import Table, choose, construct
from rlsys.errors import BadInput

if TYPE_CHECKING:
    from learners.algorithms.base import Algorithm

ALGORITHMS: Table = {
    "grpo": "learners.algorithms.grpo.GRPO",
    "ppo": "learners.algorithms.ppo.PPO",
    "reinforce_pp": "learners.algorithms.reinforce_pp.ReinforcePP",
    "rloo": "learners.algorithms.rloo.RLOO",
    "gspo": "learners.algorithms.gspo.GSPO",
    "swirl": "learners.algorithms.swirl.SWiRL",
    "opd": "learners.algorithms.opd.OPD",
    "dpo": "learners.algorithms.dpo.DPO",
    "sft": "learners.algorithms.sft.SFT",
}


def make_algorithm(config: Any) -> Algorithm:
    """The algorithm that `config.name` picks. Raises BadInput for a name or a configuration that does not fit."""
    if config is None:
        raise BadInput(
            "nothing chosen", where="algorithm", expected=f"algorithm.name to be one of {', '.join(ALGORITHMS)}"
        )
    fitting = choose("algorithm", ALGORITHMS, config.name).schema
    if not isinstance(config, fitting):
        raise BadInput(
            f"its keys are of a {type(config).__name__}",
            key="algorithm.name",
            found=config.name,
            expected=f"a {fitting.__name__}",
        )
    built: Algorithm = construct("algorithm", ALGORITHMS, config)
    return built
