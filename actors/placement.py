"""Where the actors run: one placement group, so that they start together or not at all."""

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


def actor_name(run: str, part: str, restarts: int = 0) -> str | None:
    """What Ray's dashboard and `ray list actors` call it: "rlsys:quickstart:rollout:3", a restarted one with "#1".

    Of a run without a name None. Ray keeps names apart by driver, and that of a killed actor for a moment longer.
    """
    return f"rlsys:{run}:{part}" + (f"#{restarts}" if restarts else "") if run else None


async def place(needs: Sequence[Need], *, one_node: bool = True, run: str = "") -> list[Any]:
    """A scheduling strategy per actor, in the order of `needs`. Raises RunFailed when there is no room for all.

    one_node: all on the same one, as a weight channel through shared memory asks.
    """
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundles = [{"CPU": need.cpus} | ({"GPU": need.gpus} if need.gpus else {}) for need in needs]
    group = placement_group(bundles, strategy="STRICT_PACK" if one_node else "PACK", name=f"rlsys:{run}" if run else "")
    try:
        async with asyncio.timeout(READY_DEADLINE_S):
            await group.ready()
    except TimeoutError as error:
        cpus, gpus = sum(need.cpus for need in needs), sum(need.gpus for need in needs)
        where = "no node" if one_node else "the cluster never"
        raise RunFailed(
            f"{where} had {cpus:g} free CPUs and {gpus:g} free GPUs for the {len(needs)} actors of this run "
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
