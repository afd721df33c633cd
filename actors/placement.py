"""Where the actors run: what they ask of the nodes, as bundles of one placement group, so that they start together.

Each engine and each service is a separate bundle. Learner ranks talk to each other most, so those that one node can
hold share a bundle. The group is packed on as few nodes as hold it. A node that dies takes its bundles with it; Ray
moves each to another node as soon as one has room, and until then what starts there waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, TypeVar

from rlsys.errors import RunFailed
from rlsys.system import supervisor

log = logging.getLogger("rlsys.placement")
T = TypeVar("T")
USUAL_NODE = 8  # GPUs of a node, as long as none is there to be asked


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
    resources = [{"CPU": bundle.cpus} | ({"GPU": bundle.gpus} if bundle.gpus else {}) for bundle in bundles]
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
        # vLLM and DeepSpeed start their own processes outside the bundle, not in it
        placement_group_capture_child_tasks=False,
    )


def all_nodes() -> list[Node]:
    """Those that live, with what they have when idle."""
    return [_as_node(node, node["Resources"]) for node in _live_nodes()]


def free_nodes() -> list[Node]:
    """The same with what is not taken."""
    from ray._private.state import available_resources_per_node  # Ray offers no other way per node

    free = available_resources_per_node()
    return [_as_node(node, free.get(node["NodeID"], {})) for node in _live_nodes()]


def _live_nodes() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _as_node(node: dict[str, Any], has: dict[str, float]) -> Node:
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
    return node_of(where) in {node["NodeID"] for node in _live_nodes()}


async def while_placed(work: Awaitable[T], where: Any, label: str) -> T:
    """Await `work` for as long as the actor that does it has a node. Raises NoPlace when that is gone."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=supervisor.PING_EVERY_S))[0]:
            if not await asyncio.to_thread(has_place, where):
                raise NoPlace(f"{label}: its node is gone")
        return task.result()
    finally:
        task.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequest:
    """What one actor asks for. ResourceRequest(what="rollout worker", cpus=8, gpus=2, lower="rollout.workers")"""

    what: str
    cpus: float
    gpus: float = 0
    lower: str = ""  # the keys that make it less
    gathers: bool = False  # shares a bundle with its like, as far as a node holds them


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """That lies on one node. Bundle(what="4 x learner rank", actors=4, cpus=4, gpus=4, lower="learner.ranks")"""

    what: str
    actors: int
    cpus: float
    gpus: float
    lower: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine of the cluster, and what is free on it."""

    address: str
    cpus: float
    gpus: float


def pack_bundles(needs: Sequence[ResourceRequest], *nodes: Sequence[Node]) -> list[Bundle]:
    """The bundles of `needs`, in their order: the fewest that find room on the first of `nodes` where any do.

    nodes: the same machines as they are now, as they are when no other job computes there, ...
    """
    sizes = range(_most(needs, (node for snapshot in nodes for node in snapshot)), 0, -1)
    for snapshot in nodes:
        for size in sizes:
            bundles = list(_cut_into_bundles(needs, size))
            if not shortage(bundles, snapshot):
                return bundles
    return list(_cut_into_bundles(needs, sizes[0]))


def _most(needs: Sequence[ResourceRequest], nodes: Iterable[Node]) -> int:
    """How many of those that gather the largest node holds."""
    gathering = [need for need in needs if need.gathers]
    if not gathering:
        return 1
    need, capacity = gathering[0], 0
    for node in nodes:
        amounts = [(node.cpus, need.cpus), (node.gpus, need.gpus)]
        capacity = max(capacity, int(min((has // wants for has, wants in amounts if wants), default=len(gathering))))
    return min(capacity or USUAL_NODE, len(gathering))


def _cut_into_bundles(needs: Sequence[ResourceRequest], size: int) -> Iterator[Bundle]:
    for need, group in groupby(needs):
        count, most = len(list(group)), size if need.gathers else 1
        for first in range(0, count, most):
            actors = min(most, count - first)
            label = need.what if actors == 1 else f"{actors} x {need.what}"
            yield Bundle(what=label, actors=actors, cpus=actors * need.cpus, gpus=actors * need.gpus, lower=need.lower)


def shortage(bundles: Sequence[Bundle], nodes: Sequence[Node]) -> str:
    """Which bundle has no place, on which node it nearly has one, and what to change; empty where all have theirs.

    The largest first, each where it leaves least: nodes with GPUs stay free for what needs them.
    """
    free = list(nodes)
    for bundle in sorted(bundles, key=lambda bundle: (bundle.gpus, bundle.cpus), reverse=True):
        fitting = [node for node in free if node.gpus >= bundle.gpus and node.cpus >= bundle.cpus]
        if not fitting:
            return f"no node has room for {bundle.what} ({_amount(bundle.gpus, bundle.cpus)}): {_nearest(bundle, free)}"
        best = min(fitting, key=lambda node: (node.gpus, node.cpus))
        remainder = replace(best, gpus=best.gpus - bundle.gpus, cpus=best.cpus - bundle.cpus)
        free[free.index(best)] = remainder
    return ""


def _nearest(bundle: Bundle, free: Sequence[Node]) -> str:
    lower = f"; lower {bundle.lower}, or wait for other jobs" if bundle.lower else ""
    if not free:
        return "no node is alive"
    lacks = {node: (max(0, bundle.gpus - node.gpus), max(0, bundle.cpus - node.cpus)) for node in free}
    nearest = min(free, key=lacks.__getitem__)
    return f"{nearest.address} comes closest and lacks {_amount(*lacks[nearest])} next to the other actors{lower}"


def _amount(gpus: float, cpus: float) -> str:
    """2 GPUs and 1 CPU"""
    parts = [(gpus, "GPU"), (cpus, "CPU")]
    return " and ".join(f"{count:g} {name}{'s' if count != 1 else ''}" for count, name in parts if count) or "nothing"
