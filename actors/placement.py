"""Where the actors run: one placement group, so that they start together or not at all.

Weights travel through shared memory, so every actor of a run is packed onto one node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlsys.errors import RunFailed

READY_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What one actor asks for."""

    cpus: float
    gpus: float


async def place(needs: Sequence[Need]) -> list[Any]:
    """A scheduling strategy per actor, in the order of `needs`. Raises RunFailed when no node has room for all."""
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundles = [{"CPU": need.cpus} | ({"GPU": need.gpus} if need.gpus else {}) for need in needs]
    group = placement_group(bundles, strategy="STRICT_PACK")
    try:
        async with asyncio.timeout(READY_DEADLINE_S):
            await group.ready()
    except TimeoutError as error:
        cpus, gpus = sum(need.cpus for need in needs), sum(need.gpus for need in needs)
        raise RunFailed(
            f"no node had {cpus:g} free CPUs and {gpus:g} free GPUs for the {len(needs)} actors of this run "
            f"within {READY_DEADLINE_S:g} s; lower rollout.workers or learner.ranks, or wait for other jobs"
        ) from error
    return [
        PlacementGroupSchedulingStrategy(
            placement_group=group,
            placement_group_bundle_index=index,
            # vLLM and DeepSpeed start their own processes beside the bundle, not in it
            placement_group_capture_child_tasks=False,
        )
        for index in range(len(needs))
    ]
