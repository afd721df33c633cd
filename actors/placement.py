"""Where the actors run: one placement group, so that they start together or not at all.

It is packed on as few nodes as hold it. A node that dies takes its bundles with it; Ray moves each to another node as
soon as one has room, and until then what starts there waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from actors.bundles import Node, ResourceRequest, pack_bundles, shortage
from rlsys.errors import RunFailed
from rlsys.system import supervisor

log = logging.getLogger("rlsys.placement")
T = TypeVar("T")


class NoPlace(RunFailed):
    """The bundle of an actor lies on no living node."""


def actor_name(run: str, part: str, restarts: int = 0) -> str | None:
    """What Ray's dashboard and `ray list actors` call it: "rlsys:quickstart:rollout:3", a restarted one with "#1".

    Of a run without a name None. Ray keeps names apart by driver, and that of a killed actor for a moment longer.
    """
    return f"rlsys:{run}:{part}" + (f"#{restarts}" if restarts else "") if run else None


async def place(needs: Sequence[ResourceRequest], *, timeout_s: float, run: str = "") -> list[Any]:
    """A scheduling strategy per actor, in the order of `needs`. Raises RunFailed when there is no room for all.

    timeout_s: how long to wait for other jobs to end and for nodes to come.
    """
    from ray.util.placement_group import placement_group, remove_placement_group

    bundles = pack_bundles(needs, free_nodes(), all_nodes())
    resources = [{"CPU": each.cpus} | ({"GPU": each.gpus} if each.gpus else {}) for each in bundles]
    why = shortage(bundles, free_nodes())
    if why:
        log.warning("%s; waiting up to %g s for it", why, timeout_s)
    group = placement_group(resources, strategy="PACK", name=f"rlsys:{run}" if run else "")
    try:
        async with asyncio.timeout(timeout_s):
            await group.ready()
    except TimeoutError as error:
        remove_placement_group(group)
        why = shortage(bundles, free_nodes()) or why or "Ray did not say why"
        raise RunFailed(
            f"the Ray cluster had no place for this run within {timeout_s:g} s (cluster.placement_timeout_s): {why}"
        ) from error
    return [_strategy(group, index) for index, bundle in enumerate(bundles) for _ in range(bundle.actors)]


def check(needs: Sequence[ResourceRequest]) -> None:
    """Of a cluster that does not grow. Raises RunFailed when it would not hold the actors if it were idle."""
    nodes = all_nodes()
    why = shortage(pack_bundles(needs, nodes), nodes)
    if why:
        raise RunFailed(f"the Ray cluster is too small: {why}")


def _strategy(group: Any, index: int) -> Any:
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    return PlacementGroupSchedulingStrategy(
        placement_group=group,
        placement_group_bundle_index=index,
        # vLLM and DeepSpeed start their own processes beside the bundle, not in it
        placement_group_capture_child_tasks=False,
    )


def all_nodes() -> list[Node]:
    """Those that live, with what they have when idle."""
    return [_node(each, each["Resources"]) for each in _alive()]


def free_nodes() -> list[Node]:
    """The same with what nobody has taken."""
    from ray._private.state import available_resources_per_node  # Ray offers no other way per node

    free = available_resources_per_node()
    return [_node(each, free.get(each["NodeID"], {})) for each in _alive()]


def _alive() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _node(node: dict[str, Any], has: dict[str, float]) -> Node:
    return Node(address=node["NodeManagerAddress"], cpus=has.get("CPU", 0), gpus=has.get("GPU", 0))


def node_of(where: Any) -> str:
    """The id of the node on which the bundle of an actor lies; empty where it waits for one."""
    from ray.util.placement_group import placement_group_table

    group = placement_group_table(where.placement_group)
    nodes = group["bundles_to_node_id"] if group["state"] != "REMOVED" else {}
    return str(nodes.get(where.placement_group_bundle_index) or "")


def has_place(where: Any) -> bool:
    """Whether that node lives. Asks Ray and waits for the answer."""
    if isinstance(where, str):  # "DEFAULT"
        return True
    return node_of(where) in {node["NodeID"] for node in _alive()}


async def while_placed(work: Awaitable[T], where: Any, what: str) -> T:
    """Await `work` for as long as the actor that does it has a node. Raises NoPlace when that is gone."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=supervisor.PING_EVERY_S))[0]:
            if not await asyncio.to_thread(has_place, where):
                raise NoPlace(f"{what}: its node is gone")
        return task.result()
    finally:
        task.cancel()
