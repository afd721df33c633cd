"""Writes the table of docs/recipes.md from the recipes and the planner: `python docs/make_needs.py`.

A test makes it again and compares.
"""

import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.checks.gpu_memory import GIGA
from launch.commands.config import fill_between
from launch.config.compose import compose
from launch.driver.stages.base import stages_with_rollouts
from launch.driver.stages.train import gpus_of_services, services_of
from launch.tools.plan.memory import device_of, plan_memory
from launch.tools.plan.nodes import Nodes
from launch.tools.plan.plan import assume_machines, time_recipe
from rlsys.config.recipe import RunConfig

PAGE = Path(__file__).parent / "recipes.md"
COSTS = runpy.run_path(str(Path(__file__).with_name("make_costs.py")))  # how many examples a stage finds
BEGIN, END = "<!-- python docs/make_needs.py -->", "<!-- end -->"
HEAD = ("recipe and keys", "GPUs", "a rank, GB", "RAM of its node, GB", "/dev/shm, GB", "disk, GB", "services", "hours")


@dataclass(frozen=True)
class Division:
    """A recipe on so many GPUs."""

    recipe: str
    keys: tuple[str, ...] = ()


HALF = ("rollout.workers=4", "learner.ranks=4")
DIVISIONS = (
    Division("research"),
    Division("research", ("rollout.workers=6", "learner.ranks=8")),
    Division("research", ("rollout.workers=2", "learner.ranks=4", "learner.zero_stage=3")),
    Division("research/ablations/32b"),
    Division("icrl"),
    Division("icrl", ("rollout.workers=1", "learner.ranks=3", "learner.offload=none")),
    Division("icrl", (*HALF, "learner.offload=none")),
    Division("icrl/ablations/14b"),
    Division("icrl/ablations/14b", ("rollout.workers=2", "learner.ranks=6", "learner.offload=none")),
    Division("icrl/code"),
    Division("graph_rl"),
    Division("graph_rl", (*HALF, "cluster.gpu_memory_gb=80")),
    Division("swirl"),
    Division("swirl", ("rollout.workers=4", "learner.ranks=8", "learner.offload=optimizer")),
    Division("swirl", ("rollout.workers=2", "learner.ranks=4", "learner.offload=optimizer")),
    Division("long_cot"),
    Division("long_cot", (*HALF, "learner.offload=optimizer")),
)


def make_table() -> str:
    lines = [f"| {' | '.join(HEAD)} |", f"|{'---|' * len(HEAD)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row(division))} |" for division in DIVISIONS)]) + "\n"


def row(division: Division) -> tuple[str, ...]:
    config = compose(division.recipe, list(division.keys))
    served = gpus_of_services(config)
    nodes = assume_machines(config, served)
    memory = plan_memory(config, nodes, served)
    assert memory.problem is None, f"{division}: {memory.problem}"
    rows = {memory_row.name: memory_row for memory_row in memory.rows}
    split = config.recipe.rollout.workers * config.recipe.engine.tensor_parallel, config.recipe.learner.ranks, served
    parts = " + ".join(str(part) for part in split if part)
    assert nodes.card is not None
    return (
        f"`{division.recipe}`" + "".join(f" `{key}`" for key in division.keys),
        f"{parts} = {sum(split)} of {nodes.card.memory_gb:.0f} GB",
        f"{rows['rank'].needed / GIGA:.1f}",
        f"{rows['host'].needed / GIGA:.0f}",
        f"{rows['/dev/shm'].needed / GIGA:.0f}",
        f"{rows['disk'].needed / GIGA:,.0f}",
        services(config, nodes),
        hours(config, COSTS["assumed_for"](division.recipe)),
    )


def services(config: RunConfig, nodes: Nodes) -> str:
    needs = services_of(config, device_of(nodes))
    kinds = []
    for name in ("retriever", "judge"):
        group = [need for need in needs if need.name.startswith(name)]
        if group:
            cpus, index = sum(need.cpus for need in group), sum(need.host_bytes for need in group) / GIGA
            gpus = sum(need.gpus for need in group)
            takes = (
                [f"{gpus} GPU{'s' * (gpus > 1)}"] * bool(gpus)
                + [f"{cpus} CPU{'s' * (cpus > 1)}"]
                + [f"{index:.0f} GB"] * bool(index)
            )
            kinds.append(f"{len(group)} {name}{'s' * (len(group) > 1)}: {', '.join(takes)}")
    return "; ".join(kinds) or "none"


def hours(config: RunConfig, assumed: Any) -> str:
    """Of the rl and stepwise stages alone."""
    about = config.recipe.about
    timed = time_recipe(config, about.answer_tokens, about.prefill_tokens)
    assert timed is not None
    steps = sum(COSTS["steps_of"](stage, assumed) for stage in stages_with_rollouts(config))
    return f"{steps * timed.forecast.seconds / 3600:.0f} at {about.answer_tokens:,} tokens"


def main() -> None:
    PAGE.write_text(fill_between(PAGE.read_text(), BEGIN, END, make_table()))


if __name__ == "__main__":
    main()
